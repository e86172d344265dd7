//! A request for tokens, from its body to the end of its answer. Each turn goes on as far as it
//! can.

use crate::answer::{About, Event, Finish};
use crate::metrics::{Count, Metrics, Time};
use crate::refusal::Refusal;
use crate::request;
use crate::shared::Shared;
use crate::slots::{End, Settings, Slot};
use crate::text::settle;
use gpunet_device::{Group, Result, now_ns};
use gpunet_http::{Body, Http, Reply, Request, Status};
use gpunet_serve::{Bell, Bytes, Context, Next};
use gpunet_tokens_model::CONTEXT;

pub(crate) const JSON: &[u8] = b"application/json";
/// When a connection looks again that waits for the model to end its last request.
const AGAIN_NS: u64 = 1_000_000;
/// A connection that waits for its bell and for its client waits so long at a time.
const LATER_NS: u64 = 60_000_000_000;

/// Where an answer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none.
    #[default]
    None,
    /// The model works, and nothing of the answer is sent.
    Waiting,
    /// Its head is sent. In the stream of a chat the role follows.
    Begun,
    /// Text follows, and the reason of its end.
    Text,
    Usage,
    Done,
    /// The end of the body follows.
    Close,
    /// All of it is sent.
    End,
}

/// The request of a connection that the model works for: part of the connection's state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    about: About,
    /// When the request was whole, by the device's clock.
    since: u64,
    /// Bytes of the text that are final; of a stream, that are sent.
    len: u16,
    /// Bytes of the text up to its end, once that is known.
    end: u16,
    /// Tokens of the answer: up to the end of a stop sequence.
    tokens: u16,
    stops: u8,
    stage: Stage,
    /// Why the answer ends, once that is known.
    finish: Option<Reason>,
    is_stream: bool,
    /// A comment of the stream has asked whether the client is still there.
    has_asked: bool,
    /// The first token has been seen.
    has_token: bool,
}

// With that of HTTP a connection's state is shorter than 128 bytes: LLVM would move a longer one
// byte by byte.
const _: () = assert!(size_of::<Session>() <= 40 && CONTEXT <= u16::MAX as usize);

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Stop,
    Length,
    Failed,
}

impl Reason {
    /// As the API tells it; a failure is none of its reasons.
    const fn finish(self) -> Option<Finish> {
        match self {
            Self::Stop => Some(Finish::Stop),
            Self::Length => Some(Finish::Length),
            Self::Failed => None,
        }
    }
}

/// What a turn has for a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'t> {
    pub(crate) shared: &'t Shared,
    pub(crate) context: Context,
    pub(crate) bell: Bell,
    pub(crate) unix_ns: u64,
    /// The client has ended its stream.
    pub(crate) has_ended: bool,
    /// Events tell when their tokens were stored.
    pub(crate) has_timing: bool,
}

impl Around<'_> {
    fn slot(&self) -> Slot {
        self.shared.slots.at(self.bell.place())
    }

    fn metrics(&self) -> Metrics {
        self.shared.metrics
    }
}

/// Answers with an error. Returns whether there was room.
pub(crate) fn refuse<G: Group>(
    g: &G,
    http: &mut Http<'_, '_>,
    refusal: &Refusal<'_>,
    fields: Bytes<'_>,
) -> Result<bool> {
    let reply = Reply::new(refusal.status(), JSON).with_fields(fields);
    http.answer_with(g, reply, |body| refusal.put(g, body))
}

impl Session {
    /// Returns whether the model works for the connection, or its answer is not at its end.
    pub(crate) fn is_under_way(&self) -> bool {
        self.stage != Stage::None
    }

    /// Begins with a request. Returns what the connection waits for; `None`: there is something to
    /// do.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn begin<G: Group>(
        &mut self,
        g: &G,
        http: &mut Http<'_, '_>,
        request: &Request<'_>,
        is_chat: bool,
        around: &Around<'_>,
    ) -> Result<Option<Next>> {
        let slot = around.slot();
        let Some(number) = slot.next_number(g) else {
            return Ok(Some(Next::At(around.context.now + AGAIN_NS)));
        };
        let asked = match request::read(g, request.body(), slot, is_chat) {
            Ok(asked) => asked,
            Err(refusal) => {
                let is_answered = refuse(g, http, &refusal, Bytes::EMPTY)?;
                around.metrics().add(g, Count::Refused, is_answered.into());
                return Ok(if is_answered { None } else { Some(Next::Output) });
            }
        };
        let bell = around.bell;
        let name = (bell.place() as u64) << 32 | u64::from(number);
        let seed = asked.seed.unwrap_or_else(|| Bytes::from(&name.to_le_bytes()).hash(around.shared.secret));
        let request::Asked { prompt, most, temperature, ignores_end, .. } = asked;
        slot.submit(g, number, &Settings { prompt, most, temperature, seed, ignores_end });
        if !around.shared.requests.push(g, &around.context, [bell.raw(), number.into()])? {
            slot.withdraw(g, number);
            let is_answered = refuse(g, http, &Refusal::Busy, b"Retry-After: 1\r\n".into())?;
            around.metrics().add(g, Count::Busy, is_answered.into());
            return Ok(if is_answered { None } else { Some(Next::Output) });
        }
        around.metrics().add(g, Count::Accepted, 1);
        let about = About {
            is_chat,
            has_usage: asked.has_usage,
            place: bell.place() as u32,
            number,
            created: (around.unix_ns / 1_000_000_000) as u32,
            prompt: prompt as u16,
        };
        let (stops, since) = (asked.stops as u8, around.context.now);
        let stage = Stage::Waiting;
        *self = Self { about, stage, is_stream: asked.is_stream, stops, since, ..Self::default() };
        Ok(None)
    }

    /// Takes what the model has made, and sends what can be sent. Returns as [`Session::begin`].
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn go_on<G: Group>(
        &mut self,
        g: &G,
        http: &mut Http<'_, '_>,
        around: &Around<'_>,
    ) -> Result<Option<Next>> {
        let text = self.take(g, around);
        let is_sent = if self.is_stream {
            self.send_events(g, http, around, text)?
        } else {
            self.send_whole(g, http, around, text)?
        };
        match (is_sent, self.stage) {
            (false, _) => Ok(Some(Next::Output)),
            (true, Stage::End) => {
                let is_good = self.finish != Some(Reason::Failed);
                around.metrics().add(g, Count::Answered, is_good.into());
                *self = Self::default();
                Ok(None)
            }
            (true, _) => Ok(Some(Next::At(around.context.now + LATER_NS))),
        }
    }

    /// Looks how far the model is. Returns the text as far as it is final.
    fn take<'a, G: Group>(&mut self, g: &G, around: &Around<'_>) -> Bytes<'a> {
        let (slot, number) = (around.slot(), self.about.number);
        let progress = slot.progress(g);
        let (count, end) = if progress.number == number { (progress.count, progress.end) } else { (0, None) };
        if !self.has_token && (count > 0 || end.is_some()) {
            self.has_token = true;
            let ns = if g.is_leader() { now_ns().saturating_sub(self.since) } else { 0 };
            around.metrics().measured(g, Time::FirstToken, ns);
        }
        let output = slot.output(count);
        if self.finish.is_some() {
            return output.first(self.end as usize);
        }
        let stops = slot.stops(self.stops as usize);
        let settled = settle(output, self.len as usize, end.is_some(), stops);
        self.tokens = settled.stopped.unwrap_or(count) as u16;
        self.end = settled.len as u16;
        self.finish = match (settled.stopped, end) {
            (Some(_), None) => {
                slot.stop(g, number);
                Some(Reason::Stop)
            }
            (Some(_), Some(_)) | (None, Some(End::Text | End::Stopped)) => Some(Reason::Stop),
            (None, Some(End::Length)) => Some(Reason::Length),
            (None, Some(End::Failed)) => Some(Reason::Failed),
            (None, None) => None,
        };
        output.first(settled.len)
    }

    /// Sends the answer when it is whole. Returns whether there was room.
    fn send_whole<G: Group>(
        &mut self,
        g: &G,
        http: &mut Http<'_, '_>,
        around: &Around<'_>,
        text: Bytes<'_>,
    ) -> Result<bool> {
        self.len = text.len() as u16;
        let reply = Reply::new(Status::Ok, JSON);
        let Some(reason) = self.finish else {
            // It may have gone: then the head of the answer makes its host tell so.
            if around.has_ended && self.stage == Stage::Waiting {
                if !http.begin(g, reply, None)? {
                    return Ok(false);
                }
                self.stage = Stage::Begun;
            }
            return Ok(true);
        };
        let (about, tokens) = (&self.about, self.tokens);
        let put = |body: &mut Body<'_, '_>| match reason.finish() {
            Some(finish) => about.put_whole(g, body, text, (finish, tokens)),
            None => Refusal::Failed.put(g, body),
        };
        let is_sent = match (self.stage, reason) {
            (Stage::Waiting, Reason::Failed) => refuse(g, http, &Refusal::Failed, Bytes::EMPTY)?,
            (Stage::Waiting, _) => http.answer_with(g, reply, put)?,
            (Stage::Begun, _) if http.write_with(g, put)? => {
                self.stage = Stage::Done;
                http.end(g)?
            }
            (Stage::Done, _) => http.end(g)?,
            _ => false,
        };
        if is_sent {
            self.stage = Stage::End;
        }
        Ok(is_sent)
    }

    /// Sends what there is of a stream. Returns whether there was room.
    fn send_events<G: Group>(
        &mut self,
        g: &G,
        http: &mut Http<'_, '_>,
        around: &Around<'_>,
        text: Bytes<'_>,
    ) -> Result<bool> {
        loop {
            let (event, next) = match (self.stage, self.finish) {
                (Stage::Waiting, _) => {
                    let reply = Reply::new(Status::Ok, b"text/event-stream");
                    if !http.begin(g, reply.with_fields(b"Cache-Control: no-cache\r\n"), None)? {
                        return Ok(false);
                    }
                    self.stage = if self.about.is_chat { Stage::Begun } else { Stage::Text };
                    continue;
                }
                (Stage::Begun, _) => (Event::Role, Stage::Text),
                (Stage::Text, _) if text.len() > self.len as usize => {
                    let stored = g.broadcast(if g.is_leader() { around.slot().stored_at() } else { 0 });
                    let told = if around.has_timing { Some(stored) } else { None };
                    let event = Event::Text(text.skip(self.len as usize), told);
                    if !http.write_with(g, |body| self.about.put_event(g, body, &event))? {
                        return Ok(false);
                    }
                    self.len = text.len() as u16;
                    let ns = if g.is_leader() { now_ns().saturating_sub(stored) } else { 0 };
                    around.metrics().measured(g, Time::Delivery, ns);
                    continue;
                }
                (Stage::Text, None) => return self.ask(g, http, around),
                (Stage::Text, Some(reason)) => match reason.finish() {
                    Some(finish) => {
                        let after = if self.about.has_usage { Stage::Usage } else { Stage::Done };
                        (Event::Finish(finish), after)
                    }
                    None => (Event::Failed, Stage::Done),
                },
                (Stage::Usage, _) => (Event::Usage(self.tokens), Stage::Done),
                (Stage::Done, _) => (Event::Done, Stage::Close),
                (Stage::Close, _) => {
                    if !http.end(g)? {
                        return Ok(false);
                    }
                    self.stage = Stage::End;
                    continue;
                }
                (Stage::End | Stage::None, _) => return Ok(true),
            };
            if !http.write_with(g, |body| self.about.put_event(g, body, &event))? {
                return Ok(false);
            }
            self.stage = next;
        }
    }

    /// A client that has ended its stream and has nothing of the text yet may have gone: a comment
    /// makes its host tell so. The next event does otherwise. Returns whether there was room.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn ask<G: Group>(&mut self, g: &G, http: &mut Http<'_, '_>, around: &Around<'_>) -> Result<bool> {
        if around.has_ended && self.len == 0 && !self.has_asked {
            self.has_asked = http.write_with(g, |body| body.put(g, b":\n\n"))?;
            return Ok(self.has_asked);
        }
        Ok(true)
    }

    /// The connection has ended: the model need not go on for it. A request that waits leaves the
    /// queue, and its place is free.
    pub(crate) fn abandon<G: Group>(&self, g: &G, context: &Context, shared: &Shared) {
        if !self.is_under_way() {
            return;
        }
        let (place, number) = (self.about.place as usize, self.about.number);
        let slot = shared.slots.at(place);
        let is_it = |[bell, of]: [u64; 2]| Bell::from_raw(bell).place() == place && of == u64::from(number);
        // It fails only if the launch is over.
        if shared.requests.queue().remove(g, context, is_it) == Ok(true) {
            slot.take_back(g, number);
        } else {
            slot.stop(g, number);
        }
        shared.metrics.add(g, Count::Abandoned, 1);
    }
}
