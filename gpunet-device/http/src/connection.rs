//! A connection's requests, one after another.

use crate::chunked::{Chunked, Piece};
use crate::head::{Head, Limits, flag};
use crate::reply::{ERROR_ROOM, Framing, Reply};
use crate::request::Request;
use crate::status::Status;
use gpunet_device::abi::options::MIN_RING_LOG2;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Context, Heap, MAX_CHUNK, Next, Reader, Spill, SpillError, Writer};

/// Requests that are longer are collected in the heap, so that they need not fit into a ring.
const COLLECTED_FROM: usize = 16 << 10;
/// Where there is a heap, what has not come at once is collected from this length on: where many
/// connections share the memory of rings, theirs are no larger.
const SMALLEST_RING: usize = 1 << MIN_RING_LOG2;
/// Requests of one connection before other connections have their turns.
const REQUESTS_OF_A_TURN: u32 = 64;
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before a request, or in it. It is in the ring.
    #[default]
    Receiving,
    /// Its head is collected, and the body follows.
    Collecting,
    /// It is complete, and not answered.
    Ready,
    /// The answer has begun.
    Open,
    /// The last answer has been given.
    Closed,
}

/// What a connection keeps from one turn to the next: a part of the service's state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connection {
    head: Head,
    chunked: Chunked,
    collected: Spill,
    /// When the request began; 0: it has not.
    since: u64,
    /// Bytes of the answer that are still to come.
    pub(crate) left: u64,
    pub(crate) phase: Phase,
    pub(crate) framing: Framing,
    /// The client was told to send the body.
    is_told: bool,
    /// The answer ends when the client's stream does.
    pub(crate) is_events: bool,
    /// The answer is the last one.
    pub(crate) closes: bool,
}

const _: () = assert!(size_of::<Connection>() <= 80);

impl Connection {
    /// Gives back the memory of a request that is under way: for [`gpunet_serve::Service::closed`]
    /// of a service with a heap.
    pub fn clear<G: Group>(&mut self, g: &G, context: &Context, heap: &Heap) {
        // It fails only if the launch is over, and with it all memory.
        let _ = self.collected.clear(g, context, heap);
    }
}

/// What a service does next.
#[derive(Clone, Copy, Debug)]
pub enum Step<'t> {
    /// It answers this request, by [`Http::answer`] or [`Http::begin`]. A request that is not
    /// answered is there again in the next turn.
    Request(Request<'t>),
    /// It goes on with the answer that it has begun.
    Open,
    /// It returns this from [`gpunet_serve::Service::serve`].
    Wait(Next),
}

/// What has come of a request.
enum Found {
    Whole,
    Part,
    Nothing,
    Refused(Status),
}

/// HTTP in one turn of a connection. All of its state is in the [`Connection`], so it is made when
/// it is needed.
///
/// # Cooperation
/// All lanes call every method with the same arguments.
#[derive(Debug)]
pub struct Http<'a, 't> {
    pub(crate) connection: &'a mut Connection,
    input: &'a mut Reader<'t>,
    pub(crate) output: &'a mut Writer<'t>,
    context: Context,
    limits: Limits,
    heap: Option<Heap>,
    answered: u32,
}

impl<'a, 't> Http<'a, 't> {
    /// HTTP over these. Without a heap, bodies come with their length, and a request has 16 KiB at
    /// most: others are answered with 411 and 413. The rings have to hold that much; with a heap
    /// they have to hold a head of the greatest length.
    #[must_use]
    pub const fn new(
        connection: &'a mut Connection,
        input: &'a mut Reader<'t>,
        output: &'a mut Writer<'t>,
        context: Context,
        limits: Limits,
    ) -> Self {
        Self { connection, input, output, context, limits, heap: None, answered: 0 }
    }

    /// The same with a heap for longer requests, and for those that come in chunks. Such a service
    /// calls [`Connection::clear`] when a connection has ended.
    #[must_use]
    pub const fn with_heap(self, heap: Heap) -> Self {
        Self { heap: Some(heap), ..self }
    }

    /// Finds out what is to be done: takes the next request, refuses what is none, and waits for
    /// what has not come.
    ///
    /// There is room for an answer of some hundred bytes when it returns a request.
    ///
    /// # Errors
    /// The connection has failed, or the launch is over.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn next<G: Group>(&mut self, g: &G) -> Result<Step<'t>> {
        loop {
            match self.connection.phase {
                Phase::Open if self.connection.is_events && self.input.has_ended() => {
                    // The client has gone, or wants no more.
                    self.connection.closes = true;
                    if !self.end(g)? {
                        return Ok(Step::Wait(Next::Close));
                    }
                    continue;
                }
                Phase::Open => return Ok(Step::Open),
                Phase::Closed => return Ok(Step::Wait(Next::Close)),
                Phase::Receiving | Phase::Collecting | Phase::Ready => {}
            }
            if !self.output.make_room(g, ERROR_ROOM)? {
                return Ok(Step::Wait(Next::Output));
            }
            if self.answered >= REQUESTS_OF_A_TURN {
                return Ok(Step::Wait(Next::Again));
            }
            let found = match self.connection.phase {
                Phase::Ready => Found::Whole,
                Phase::Collecting => self.collect(g)?,
                _ => self.receive(g)?,
            };
            match found {
                Found::Whole => {
                    self.connection.phase = Phase::Ready;
                    return Ok(Step::Request(self.request()));
                }
                Found::Nothing => return Ok(Step::Wait(Next::Input)),
                Found::Refused(status) => self.refuse(g, status)?,
                Found::Part if self.input.has_ended() => self.refuse(g, Status::BadRequest)?,
                // The ring holds no more of it.
                Found::Part if self.input.is_full() => {
                    let status = self.connection.head.too_long();
                    self.refuse(g, status)?;
                }
                Found::Part => {
                    let (now, limit) = (self.context.now, self.limits.request_ns);
                    if self.connection.since == 0 {
                        self.connection.since = now;
                    }
                    if limit == 0 {
                        let is_collecting = self.connection.phase == Phase::Collecting;
                        return Ok(Step::Wait(if is_collecting { Next::Rest } else { Next::Input }));
                    }
                    let until = self.connection.since.saturating_add(limit);
                    if now < until {
                        return Ok(Step::Wait(Next::At(until)));
                    }
                    self.refuse(g, Status::RequestTimeout)?;
                }
            }
        }
    }

    fn request(&self) -> Request<'t> {
        let Connection { head, collected, .. } = *self.connection;
        Request { head, received: self.input.rest(), collected, heap: self.heap }
    }

    /// Looks for a request in the ring.
    fn receive<G: Group>(&mut self, g: &G) -> Result<Found> {
        let bytes = self.input.rest();
        if bytes.is_empty() {
            return Ok(Found::Nothing);
        }
        match self.connection.head.parse(bytes, &self.limits) {
            Ok(true) => {}
            Ok(false) => return Ok(Found::Part),
            Err(status) => return Ok(Found::Refused(status)),
        }
        let head = self.connection.head;
        let (at, is_chunked) = (head.at as usize, head.has(flag::CHUNKED));
        let total = at + head.length as usize;
        if !is_chunked && bytes.len() >= total {
            return Ok(Found::Whole);
        }
        let most = if self.heap.is_some() { SMALLEST_RING } else { COLLECTED_FROM };
        if is_chunked || total > most {
            let beyond = if is_chunked { Status::LengthRequired } else { Status::ContentTooLarge };
            let Some(heap) = self.heap else { return Ok(Found::Refused(beyond)) };
            if let Some(found) = self.keep(g, &heap, bytes.first(at))? {
                return Ok(found);
            }
            self.input.consume(at);
            self.connection.phase = Phase::Collecting;
            self.tell(g);
            return self.collect(g);
        }
        if bytes.len() == at {
            self.tell(g);
        }
        Ok(Found::Part)
    }

    /// Takes what has come of a body.
    fn collect<G: Group>(&mut self, g: &G) -> Result<Found> {
        let Some(heap) = self.heap else { return Ok(Found::Refused(Status::InternalServerError)) };
        let head = self.connection.head;
        if head.has(flag::CHUNKED) {
            loop {
                match self.connection.chunked.next(self.input.rest(), &self.limits) {
                    Ok(Piece::Data { skip, len }) => {
                        self.input.consume(skip);
                        if let Some(found) = self.keep(g, &heap, self.input.rest().first(len))? {
                            return Ok(found);
                        }
                        self.input.consume(len);
                    }
                    Ok(Piece::Open { skip }) => {
                        self.input.consume(skip);
                        return Ok(Found::Part);
                    }
                    Ok(Piece::End { skip }) => {
                        self.input.consume(skip);
                        return Ok(Found::Whole);
                    }
                    Err(status) => return Ok(Found::Refused(status)),
                }
            }
        }
        let total = head.at as usize + head.length as usize;
        let collected = &mut self.connection.collected;
        match collected.collect(g, &self.context, &heap, self.input, (total, MAX_CHUNK)) {
            Ok(()) if collected.len() == total => Ok(Found::Whole),
            Ok(()) => Ok(Found::Part),
            Err(SpillError::NoMemory) => Ok(Found::Refused(Status::ServiceUnavailable)),
            Err(SpillError::Over(error)) => Err(error),
        }
    }

    fn keep<G: Group>(&mut self, g: &G, heap: &Heap, bytes: Bytes<'_>) -> Result<Option<Found>> {
        match self.connection.collected.append(g, &self.context, heap, bytes, MAX_CHUNK) {
            Ok(()) => Ok(None),
            Err(SpillError::NoMemory) => Ok(Some(Found::Refused(Status::ServiceUnavailable))),
            Err(SpillError::Over(error)) => Err(error),
        }
    }

    /// Tells a client that waits for it to send the body.
    fn tell<G: Group>(&mut self, g: &G) {
        let head = &self.connection.head;
        if head.has(flag::EXPECTS) && head.has(flag::IS_11) && !self.connection.is_told {
            self.connection.is_told = true;
            self.output.put(g, b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Answers what is no request, and ends the connection. What the client still sends the proxy
    /// reads and drops for a while, so that the answer is not lost.
    fn refuse<G: Group>(&mut self, g: &G, status: Status) -> Result<()> {
        self.connection.closes = true;
        self.connection.phase = Phase::Ready;
        self.connection.head.length = 0;
        let body = status.text();
        self.answer(g, Reply::new(status, b"text/plain"), body)?;
        Ok(())
    }

    /// Returns whether the request is HEAD.
    pub(crate) fn is_head(&self) -> bool {
        self.connection.head.method == Some(crate::Method::Head)
    }

    /// Returns whether the client reads chunks.
    pub(crate) const fn is_11(&self) -> bool {
        self.connection.head.has(flag::IS_11)
    }

    /// Returns whether the answer is the last one.
    pub(crate) const fn closes(&self) -> bool {
        self.connection.closes || self.connection.head.closes()
    }

    /// The answer has been given: forgets the request.
    pub(crate) fn finish<G: Group>(&mut self, g: &G) -> Result<()> {
        let closes = self.closes();
        self.consume();
        if let Some(heap) = self.heap {
            self.connection.collected.clear(g, &self.context, &heap)?;
        }
        *self.connection = Connection::default();
        self.answered += 1;
        if closes {
            self.connection.phase = Phase::Closed;
        }
        Ok(())
    }

    /// Consumes a request that is in the ring, once.
    pub(crate) fn consume(&mut self) {
        let head = &mut self.connection.head;
        if self.connection.collected.is_empty() {
            self.input.consume(head.at as usize + head.length as usize);
            (head.at, head.length) = (0, 0);
        }
    }
}
