//! What the blocks do: requests are routed, and the last blocks run the model.

use crate::engine;
use crate::metrics::Gauges;
use crate::refusal::Refusal;
use crate::request::MODEL;
use crate::session::{Around, JSON, Session, refuse};
use crate::shared::{Shared, Tokens};
use gpunet_device::{Group, Result};
use gpunet_http::{Connection, Http, Method, Reply, Router, Status, Step};
use gpunet_serve::{Bytes, Carve, Context, Next, Service, Turn, Worker};

/// What a connection keeps between its turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    http: Connection,
    session: Session,
}

impl Service for Tokens {
    const ENTRY: &'static str = "gpunet_tokens";
    type State = State;
    type Shared = Shared;

    fn shared(&self, carve: &mut Carve) -> Shared {
        Shared::carve(self, carve)
    }

    fn workers(&self) -> u32 {
        self.models
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let (bell, has_ended) = (turn.bell(), turn.input.has_ended());
        let Turn { state, input, output, context, shared, connections, unix_ns, .. } = turn;
        let State { http: connection, session } = &mut **state;
        let around = Around {
            shared,
            context: *context,
            bell,
            unix_ns: *unix_ns,
            has_ended,
            has_timing: self.timing != 0,
        };
        let mut http = Http::new(connection, input, output, *context, self.limits).with_heap(shared.bodies);
        loop {
            let request = match http.next(g)? {
                Step::Request(request) => Some(request),
                Step::Open => None,
                Step::Wait(next) => return Ok(next),
            };
            if session.is_under_way() {
                match session.go_on(g, &mut http, &around)? {
                    Some(next) => return Ok(next),
                    None => continue,
                }
            }
            // An answer that is open is that of a session.
            let Some(request) = request else { return Ok(Next::Close) };
            let mut route = Router::new(&request);
            let is_chat = route.is(Method::Post, b"/v1/chat/completions");
            if is_chat || route.is(Method::Post, b"/v1/completions") {
                match session.begin(g, &mut http, &request, is_chat, &around)? {
                    Some(next) => return Ok(next),
                    None => continue,
                }
            }
            let json = Reply::new(Status::Ok, JSON);
            let is_answered = if route.is(Method::Get, b"/v1/models") {
                http.answer_with(g, json, |body| {
                    body.put(g, b"{\"object\":\"list\",\"data\":[");
                    body.put(g, MODEL_OBJECT);
                    body.put(g, b"]}\n");
                })?
            } else if let Some(name) = route.with(Method::Get, b"/v1/models/{}")
                && name == MODEL
            {
                http.answer(g, json, MODEL_OBJECT)?
            } else if route.is(Method::Get, b"/healthz") {
                let now = context.now as i64;
                http.answer_with(g, json, |body| {
                    body.put(g, b"{\"status\":\"ok\",\"clock_ns\":");
                    body.put_number(g, now);
                    body.put(g, b"}\n");
                })?
            } else if route.is(Method::Get, b"/metrics") {
                let gauges = Gauges {
                    running: shared.batches.running(g),
                    waiting: shared.requests.queue().len(g),
                    connections: connections.count(g),
                };
                let sums = shared.metrics.sums(g);
                let reply = Reply::new(Status::Ok, b"text/plain; version=0.0.4; charset=utf-8");
                http.answer_with(g, reply, |body| sums.put(g, body, &gauges))?
            } else if route.methods().is_empty() && request.method() != Method::Options {
                refuse(g, &mut http, &Refusal::NoSuchUrl, Bytes::EMPTY)?
            } else {
                http.answer_other(g, &route)?
            };
            if !is_answered {
                return Ok(Next::Output);
            }
        }
    }

    fn work<G: Group>(&mut self, g: &G, worker: &mut Worker<'_, Self>) -> Result<()> {
        engine::run(self, g, worker)
    }

    fn closed<G: Group>(&mut self, g: &G, mut state: State, shared: &Shared, context: &Context) {
        state.session.abandon(g, context, shared);
        state.http.clear(g, context, &shared.bodies);
    }

    const COPIED_INPUT: usize = 2048;
}

/// The model, as the API describes one. `created` is the beginning of 2026.
const MODEL_OBJECT: &[u8] =
    br#"{"id":"gpunet-tokens","object":"model","created":1767225600,"owned_by":"gpunet"}"#;
