//! The server under test.

use gpunet_device::{Group, Options, Result};
use gpunet_http::json::{Error, Kind, Reader, Writer};
use gpunet_http::{Connection, Http, Limits, Method, Reply, Request, Router, Status, Step};
use gpunet_proxy::{Attachment, Config, Proxy, embed};
use gpunet_serve::{Bytes, Carve, Heap, Next, Service, Turn};
use gpunet_serve_host::{Running, ServerSettings, start};
use std::net::SocketAddr;

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Api {
    /// Bytes of the heap; 0: there is none.
    pub heap: u64,
    /// From one event to the next.
    pub pause_ns: u64,
    pub limits: Limits,
    /// Not 0: each request is answered with what it is.
    pub describes: u64,
}

impl Api {
    pub const DEFAULT: Self =
        Self { heap: 8 << 20, pause_ns: 1_000_000, limits: Limits::DEFAULT, describes: 0 };
}

/// An answer that goes on.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answer {
    #[default]
    None,
    /// Letters, so many.
    Letters,
    /// Events; the last number of all is never reached.
    Events,
}

#[derive(Clone, Copy, Default)]
pub struct State {
    http: Connection,
    answer: Answer,
    /// How much of the answer there was, and how much there is.
    done: u64,
    end: u64,
    /// When the next event is due.
    at: u64,
}

/// What `/stream` and `/length` answer, again and again.
pub const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

impl Service for Api {
    const ENTRY: &'static str = "api";
    type State = State;
    type Shared = Heap;

    fn shared(&self, carve: &mut Carve) -> Heap {
        Heap::new(carve, self.heap.max(4096) as usize)
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let Turn { state, input, output, context, shared, .. } = turn;
        let State { http, answer, done, end, at } = &mut **state;
        let mut http = Http::new(http, input, output, *context, self.limits);
        if self.heap > 0 {
            http = http.with_heap(**shared);
        }
        loop {
            let request = match http.next(g)? {
                Step::Request(request) => request,
                Step::Wait(next) => return Ok(next),
                Step::Open if *answer == Answer::Letters => {
                    while done < end {
                        let start = (*done % 26) as usize;
                        let piece = &LETTERS[start..LETTERS.len().min(start + (*end - *done) as usize)];
                        match http.write(g, piece)? {
                            0 => return Ok(Next::Output),
                            len => *done += len as u64,
                        }
                    }
                    if !http.end(g)? {
                        return Ok(Next::Output);
                    }
                    continue;
                }
                // One event in a turn.
                Step::Open if done < end => {
                    if context.now < *at {
                        return Ok(Next::At(*at));
                    }
                    let name: &[u8] = if *done == 0 { b"first" } else { b"" };
                    if !http.event(g, name, std::format!("event\n{done}").as_bytes())? {
                        return Ok(Next::Output);
                    }
                    (*done, *at) = (*done + 1, context.now + self.pause_ns);
                    return Ok(Next::At(*at));
                }
                Step::Open => {
                    if !http.end(g)? {
                        return Ok(Next::Output);
                    }
                    continue;
                }
            };
            let text = Reply::new(Status::Ok, b"text/plain");
            let mut route = Router::new(&request);
            let is_answered = if self.describes != 0 {
                describe(g, &mut http, &request)?
            } else if route.is(Method::Get, b"/") {
                http.answer(g, text, b"hello\n")?
            } else if route.is(Method::Post, b"/echo") || route.is(Method::Put, b"/echo") {
                http.answer(g, text, request.body())?
            } else if route.is(Method::Post, b"/sum") {
                let body = request.body();
                let sum: u64 = (0..body.len()).map(|at| u64::from(body.get(at))).sum();
                let answer = std::format!("{} {sum}", body.len());
                http.answer(g, text, answer.as_bytes())?
            } else if route.is(Method::Post, b"/json") {
                json(g, &mut http, &request)?
            } else if route.is(Method::Get, b"/query") {
                let agent = request.field(b"user-agent").unwrap_or(Bytes::EMPTY);
                http.answer_with(g, text, |body| {
                    body.put(g, request.query());
                    body.put(g, b" ");
                    body.put(g, agent);
                })?
            } else if let Some(count) = route.with(Method::Get, b"/stream/{}") {
                (*answer, *done, *end) = (Answer::Letters, 0, number(count));
                http.begin(g, text, None)?
            } else if let Some(count) = route.with(Method::Get, b"/length/{}") {
                (*answer, *done, *end) = (Answer::Letters, 0, number(count));
                http.begin(g, text, Some(*end))?
            } else if let Some(count) = route.with(Method::Get, b"/events/{}") {
                (*answer, *done, *end, *at) = (Answer::Events, 0, number(count), 0);
                http.begin_events(g)?
            } else {
                http.answer_other(g, &route)?
            };
            if !is_answered {
                return Ok(Next::Output);
            }
        }
    }

    fn closed<G: Group>(&mut self, g: &G, mut state: State, heap: &Heap, context: &gpunet_serve::Context) {
        state.http.clear(g, context, heap);
    }
}

/// Answers with the method, the target and the body.
fn describe<G: Group>(g: &G, http: &mut Http<'_, '_>, request: &Request<'_>) -> Result<bool> {
    let method = std::format!("{:?} ", request.method()).to_uppercase();
    http.answer_with(g, Reply::new(Status::Ok, b"text/plain"), |to| {
        to.put(g, method.as_bytes());
        to.put(g, request.path());
        to.put(g, b"?");
        to.put(g, request.query());
        to.put(g, b" ");
        to.put(g, request.body());
    })
}

fn number(digits: Bytes<'_>) -> u64 {
    digits.number().unwrap_or(0) as u64
}

/// Answers a document with the same one.
fn json<G: Group>(g: &G, http: &mut Http<'_, '_>, request: &Request<'_>) -> Result<bool> {
    let mut reader = Reader::new(request.body());
    if reader.skip().and_then(|()| reader.end()).is_err() {
        return http.answer(g, Reply::new(Status::BadRequest, b"text/plain"), b"no JSON\n");
    }
    http.answer_with(g, Reply::new(Status::Ok, b"application/json"), |body| {
        let _ = copy(&mut Reader::new(request.body()), &mut Writer::new(g, body));
    })
}

fn copy<G: Group>(from: &mut Reader<'_>, to: &mut Writer<'_, '_, '_, G>) -> core::result::Result<(), Error> {
    match from.kind()? {
        Kind::Object => {
            from.object()?;
            to.object();
            while let Some(name) = from.member()? {
                to.name(&name.bytes().collect::<Vec<u8>>()[..]);
                copy(from, to)?;
            }
            to.end_object();
        }
        Kind::Array => {
            from.array()?;
            to.array();
            while from.element()? {
                copy(from, to)?;
            }
            to.end_array();
        }
        Kind::String => drop(to.text(&from.text()?.bytes().collect::<Vec<u8>>()[..])),
        Kind::Number => match from.number()? {
            number if number.integer().is_some() => drop(to.number(number.integer().unwrap_or(0))),
            number => drop(to.raw(number.raw())),
        },
        Kind::Bool => drop(to.bool(from.bool()?)),
        Kind::Null => {
            from.null()?;
            to.null();
        }
    }
    Ok(())
}

/// A server that runs; the attachment ends the launch when it is dropped.
pub struct Serving {
    pub running: Running,
    _attachment: Attachment,
    _proxy: Proxy,
}

impl Serving {
    pub fn addr(&self) -> SocketAddr {
        self.running.addr()
    }
}

pub fn serve(api: Api) -> Serving {
    serve_by((1, 1), api, ServerSettings::DEFAULT)
}

pub fn serve_by(shape: (u32, u32), api: Api, settings: ServerSettings) -> Serving {
    serve_with(shape, api, settings, 32 << 10)
}

/// As [`serve_by`], with rings of so many bytes.
pub fn serve_with((blocks, threads): (u32, u32), api: Api, settings: ServerSettings, ring: u64) -> Serving {
    let proxy = embed(Config::small()).expect("a proxy");
    let attachment = proxy.attach_cpu().expect("the CPU device");
    let program = attachment.load("", threads).expect("nothing to load");
    let addr = "127.0.0.1:0".parse().expect("an address");
    let options = Options::DEFAULT.with_rings(ring, ring);
    let running =
        start(&attachment, &program, (blocks, threads), addr, options, settings, api).expect("it listens");
    Serving { running, _attachment: attachment, _proxy: proxy }
}
