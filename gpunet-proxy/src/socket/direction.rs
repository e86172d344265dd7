//! Directions of a socket that the host program has taken from the kernels, and the messages that it places in them.

use super::open::copy_error;
use super::operations::StreamOperations;
use super::{Inner, Socket, io_error};
use crate::model::ids::QueueId;
use gpunet_abi::entry::{Entry, HalfEntry, lock};
use gpunet_abi::position::{MASK, StreamWord, advance};
use gpunet_abi::{Direction, Error, Gate, Prepared, RingSpan, Status, TransportKind, Trigger, Word};
use gpunet_core::rc;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The sending direction of a socket, taken by the host program.
///
/// The program places messages in the direction's ring ([`Sender::prepare`]); kernels and queues fill and publish them.
/// Kernels that send by the socket's handle meanwhile get EALREADY. Dropping it gives the direction back, as
/// [`Sender::give_back`] does.
///
/// # Examples
/// A kernel fills a message and publishes it; here a thread of the CPU device stands for it:
///
/// ```
/// use gpunet_proxy::abi::Options;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
/// let socket = attachment.connect_blocking(server.local_addr()?, Options::DEFAULT)?;
/// let mut sender = socket.take_send()?;
/// let message = sender.prepare(64)?;
/// // Kernel parameters: message.prepared, message.post, message.room, message.done.
/// assert_eq!(message.span.len(), 64);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Sender(Taken);

/// The receiving direction of a socket, taken by the host program. As [`Sender`].
#[derive(Debug)]
pub struct Receiver(Taken);

/// A message to send: its place in the ring, and what kernels and queues do with it.
#[derive(Clone, Copy, Debug)]
pub struct SendMessage {
    /// The message as a kernel's parameter; kernels derive the rest from it, and the messages that follow.
    pub prepared: Prepared,
    /// Where it lies, in the device's address space. To be written once `room` has passed.
    pub span: RingSpan,
    /// Passes once the ring has room for the message.
    pub room: Gate,
    /// Publishes the message, and all before it.
    pub post: Trigger,
    /// Passes once the message is released: see [`Prepared::done`].
    pub done: Gate,
}

/// A message to receive: its place in the ring, and what kernels and queues do with it.
#[derive(Clone, Copy, Debug)]
pub struct RecvMessage {
    /// The message as a kernel's parameter; kernels derive the rest from it, and the messages that follow.
    pub prepared: Prepared,
    /// Where it lies, in the device's address space. To be read once `arrived` has passed.
    pub span: RingSpan,
    /// Passes once the whole message has landed.
    pub arrived: Gate,
    /// Gives the message's bytes back to the peer, and all before it, once it is read.
    pub consume: Trigger,
}

/// How far a taken direction has come, and why it comes no further.
#[derive(Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Bytes since the stream was opened: of a sender those that the peer, or the proxy, has released; of a receiver those
    /// that have landed. Between two devices it is what a gate or trigger has found last.
    pub position: u64,
    /// Why the direction has ended; `None` while it goes on. ENODATA for a stream that its peer ended in good order, EPIPE
    /// when the peer reads no more.
    pub error: Option<io::Error>,
}

/// A direction that is taken.
#[derive(Debug)]
struct Taken {
    hold: Arc<Hold>,
    /// Where the next message begins.
    next: u64,
}

/// The right to a direction. Operations of queues have it, too: the direction is given back after the last of them.
#[derive(Debug)]
pub(crate) struct Hold {
    inner: Arc<Inner>,
    direction: Direction,
    half: HalfEntry,
    posted: Mutex<Posted>,
    /// It is locked in the device's table.
    is_locked: AtomicBool,
    /// Operations of it are in a graph: where its next message lies is known when that runs.
    is_captured: AtomicBool,
    /// A queue has failed in the middle of a message: nothing follows it.
    is_given_up: AtomicBool,
}

/// How far queues are sure to publish a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Posted {
    position: u64,
    /// The queue that does so last.
    queue: Option<QueueId>,
}

/// The words of a direction's entry when it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    position: StreamWord,
    seen: StreamWord,
}

impl Settled {
    /// From the words as they stand, and the other end's, which is believed as far as it can be.
    fn of(
        direction: Direction,
        capacity: u64,
        (position, seen): (StreamWord, StreamWord),
        other: StreamWord,
        has_failed: impl FnOnce() -> bool,
    ) -> Self {
        let at = position.position();
        let limit = if direction == Direction::Send { at } else { at.saturating_add(capacity) };
        let seen = advance(seen, other, limit).unwrap_or(seen);
        // So much must have been released, or have landed, if no end has cut it off.
        let (least, most) = match direction {
            Direction::Send if has_failed() => (0, seen.position().saturating_add(capacity)),
            Direction::Send => (at.saturating_sub(capacity), MASK),
            Direction::Recv if seen.end() => (0, seen.position()),
            // A receiver may be ahead of what it has seen: by lines, and where a CUDA stream has believed more.
            Direction::Recv => (at.saturating_sub(capacity), MASK),
        };
        let seen = StreamWord(seen.0 + least.saturating_sub(seen.position()));
        Self { position: StreamWord(position.0 - at.saturating_sub(most)), seen }
    }
}

/// Who has a direction.
#[derive(Debug, Default)]
pub(super) struct Holder {
    is_taken: bool,
    hold: Weak<Hold>,
}

const fn lock_at(direction: Direction) -> usize {
    match direction {
        Direction::Send => offset_of!(Entry, send_lock),
        Direction::Recv => offset_of!(Entry, recv_lock),
    }
}

const fn half_at(direction: Direction) -> usize {
    match direction {
        Direction::Send => offset_of!(Entry, send),
        Direction::Recv => offset_of!(Entry, recv),
    }
}

impl Hold {
    fn take(socket: &Socket, direction: Direction) -> io::Result<Arc<Self>> {
        let inner = &socket.inner;
        let mut holder = inner.holder(direction);
        if holder.is_taken {
            return Err(io_error(Error::Busy));
        }
        let half = match direction {
            Direction::Send => inner.opened.send,
            Direction::Recv => inner.opened.recv,
        };
        let (posted, is_locked, is_captured, is_given_up) = Default::default();
        let inner = inner.clone();
        let hold = Arc::new(Self { inner, direction, half, posted, is_locked, is_captured, is_given_up });
        hold.lock()?;
        // What a kernel has read may be announced late, so the word may lie behind.
        hold.posted().position = hold.position_in_table()?;
        *holder = Holder { is_taken: true, hold: Arc::downgrade(&hold) };
        Ok(hold)
    }

    /// Locks the direction in the device's table.
    fn lock(&self) -> io::Result<()> {
        self.inner.check_unknown()?;
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        if !table.is_open(handle).map_err(copy_error)? {
            return Err(io_error(Error::BadHandle));
        }
        table.set_entry_flag(handle, lock_at(self.direction), lock::TAKEN).map_err(copy_error)?;
        self.inner.host.tell_taken(handle, self.direction, true);
        // Once more, after the store: a kernel that came in between is a user now, and one that comes later finds the lock.
        // Not before that, its line: the lanes of a group load it one by one, and must find the same.
        if let Err(error) = self.inner.check_unknown().and_then(|()| self.end_line()) {
            self.unlock()?;
            return Err(error);
        }
        // Ordering: Relaxed; nobody else has it yet.
        self.is_locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// A queue clears no line as a kernel does, and tags could repeat: the stream sends none any more.
    fn end_line(&self) -> io::Result<()> {
        if self.direction == Direction::Recv {
            return Ok(());
        }
        let line = half_at(self.direction) + offset_of!(HalfEntry, line);
        self.inner.shared.table.set_entry_flag(self.inner.handle, line, 0).map_err(copy_error)
    }

    fn unlock(&self) -> io::Result<()> {
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        table.set_entry_flag(handle, lock_at(self.direction), lock::FREE).map_err(copy_error)?;
        self.inner.host.tell_taken(handle, self.direction, false);
        Ok(())
    }

    fn give_back(&self) -> io::Result<()> {
        // Ordering: Relaxed; only the last holder is here.
        if !self.is_locked.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.inner.check_unknown()?;
        self.settle()?;
        self.unlock()?;
        self.is_locked.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Leaves the table as kernels that use the direction by handle expect it: they count free and landed bytes from what
    /// was published and what was last believed of the other end. A CUDA stream stores the one and not the other; and where
    /// an end or a failure has released it, it has run on and published more than came, or than there was room for.
    fn settle(&self) -> io::Result<()> {
        let (table, handle) = (&self.inner.shared.table, self.inner.handle);
        let at = half_at(self.direction);
        let word = |offset| table.entry_word(handle, at + offset).map(StreamWord).map_err(copy_error);
        let (position, seen) = (word(offset_of!(HalfEntry, position))?, word(offset_of!(HalfEntry, seen))?);
        let settled = Settled::of(
            self.direction,
            u64::from(self.half.capacity),
            (position, seen),
            self.other()?,
            || self.failure().is_some(),
        );
        let set = |offset, word: StreamWord| table.set_entry_word(handle, offset, word.0).map_err(copy_error);
        set(at + offset_of!(HalfEntry, position), settled.position)?;
        set(at + offset_of!(HalfEntry, seen), settled.seen)?;
        if self.direction == Direction::Recv {
            set(offset_of!(Entry, announced), StreamWord::at(settled.position.position()))?;
        }
        Ok(())
    }

    /// Keeps the data thread of the socket from long sleeps while a CUDA stream publishes the direction: until the guard is
    /// dropped.
    pub(crate) fn begin_stream_operations(&self) -> StreamOperations {
        StreamOperations::begin(self.inner.host.clone(), self.inner.data_thread)
    }

    fn posted(&self) -> MutexGuard<'_, Posted> {
        // Nothing that is done under the lock panics.
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a queue is sure to publish the direction up to that position, if `submit` enqueues what does.
    ///
    /// # Errors
    /// EBUSY, as long as another queue has not published what was enqueued there: the two have no order; EPROTO, when a queue has
    /// given the direction up; those of `submit`.
    pub(crate) fn post<T>(
        &self,
        queue: QueueId,
        position: u64,
        submit: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_given_up() {
            return Err(io_error(Error::Protocol));
        }
        let (before, after) = {
            let mut posted = self.posted();
            if posted.queue.is_some_and(|other| other != queue) && self.position()? < posted.position {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "another queue has operations of this direction under way, and the two have no order: \
                     use one queue for a direction, or wait until the other is done",
                ));
            }
            let after = Posted { position: posted.position.max(position), queue: Some(queue) };
            (std::mem::replace(&mut *posted, after), after)
        };
        submit().inspect_err(|_| {
            let mut posted = self.posted();
            if *posted == after {
                *posted = before;
            }
        })
    }

    /// Notes that the rest of a message will not come: nothing may be published behind it.
    pub(crate) fn give_up(&self) {
        // Ordering: Relaxed; a flag. The queue's thread, which sets it, carries out what comes later itself.
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    /// Returns whether a queue has given the direction up.
    pub(crate) fn is_given_up(&self) -> bool {
        // Ordering: Relaxed, as in `give_up`.
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// Bytes that were published, or consumed, so far, as the device's table says.
    fn position_in_table(&self) -> io::Result<u64> {
        let at = half_at(self.direction) + offset_of!(HalfEntry, position);
        let word = self.inner.shared.table.entry_word(self.inner.handle, at).map_err(copy_error)?;
        Ok(StreamWord(word).position())
    }

    /// Bytes that were published, or consumed, so far.
    fn position(&self) -> io::Result<u64> {
        match self.pinned_own() {
            // The same without a call of the driver: triggers publish what they store in the table.
            Some(word) => Ok(StreamWord::read(word.observe()).position()),
            None => self.position_in_table(),
        }
    }

    /// How far the direction is published, or sure to be by what was enqueued.
    pub(crate) fn published(&self) -> io::Result<u64> {
        let posted = self.posted().position;
        Ok(posted.max(self.position()?))
    }

    /// Whether operations of it are in a graph.
    pub(crate) fn is_captured(&self) -> bool {
        // Ordering: Relaxed; it is set once, by who enqueues.
        self.is_captured.load(Ordering::Relaxed)
    }

    /// The direction.
    pub(crate) const fn direction(&self) -> Direction {
        self.direction
    }

    /// Where its ring and words lie in the device's address space.
    pub(crate) const fn half(&self) -> &HalfEntry {
        &self.half
    }

    /// Where a message lies in the ring.
    pub(crate) fn span(&self, message: Prepared) -> RingSpan {
        RingSpan::new(self.half.base as *mut u8, u64::from(self.half.capacity), message.position, message.len)
    }

    /// The most bytes that can be in the ring behind what is published, or given back.
    pub(crate) fn most_ahead(&self) -> u64 {
        let capacity = u64::from(self.half.capacity);
        match (self.direction, self.inner.transport) {
            (Direction::Recv, TransportKind::Rc) => capacity - rc::least_area(capacity),
            _ => capacity,
        }
    }

    /// The words of the device's table that say how far the direction is published, in its address space. Whoever publishes
    /// stores them before.
    pub(crate) fn table_words(&self) -> [Option<u64>; 2] {
        let entry = self.inner.shared.table.entry_address(self.inner.handle);
        let position = entry + (half_at(self.direction) + offset_of!(HalfEntry, position)) as u64;
        let announced = entry + offset_of!(Entry, announced) as u64;
        [Some(position), (self.direction == Direction::Recv).then_some(announced)]
    }

    /// The socket's failure, by its status word.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }

    /// Why the direction goes no further than the other end's word says: the socket's failure, or its end. A peer that is closed
    /// by its host program writes no END between two devices.
    pub(crate) fn end(&self) -> Option<Error> {
        let status = self.inner.status()?;
        let flag = match self.direction {
            Direction::Send => Status::NO_SEND,
            Direction::Recv => Status::EOF,
        };
        status.error().or_else(|| status.has(flag).then(|| self.ended()))
    }

    /// Why the direction goes no further that its peer has ended in good order.
    pub(crate) const fn ended(&self) -> Error {
        match self.direction {
            Direction::Send => Error::BrokenPipe,
            Direction::Recv => Error::NoData,
        }
    }

    /// The other end's word of this direction, if the CPU can reach it: the proxy writes it.
    pub(crate) fn pinned_other(&self) -> Option<Word> {
        let (memory, slot) = (&self.inner.shared.memory, self.inner.handle.slot());
        self.inner.data_thread.map(|_| match self.direction {
            Direction::Send => memory.released(slot),
            Direction::Recv => memory.landed(slot),
        })
    }

    /// The word that publishes this direction, if the CPU can reach it: the proxy reads it.
    pub(crate) fn pinned_own(&self) -> Option<Word> {
        let (memory, slot) = (&self.inner.shared.memory, self.inner.handle.slot() as usize);
        self.inner.data_thread.map(|_| match self.direction {
            Direction::Send => memory.published_words().get(slot),
            Direction::Recv => memory.consumed_words().get(slot),
        })
    }

    /// The other end's word of this direction.
    pub(crate) fn other(&self) -> io::Result<StreamWord> {
        if let Some(word) = self.pinned_other() {
            return Ok(StreamWord::read(word.observe()));
        }
        let (shared, handle) = (&self.inner.shared, self.inner.handle);
        if let Some(word) = shared.table.word_of(self.half.theirs).map_err(copy_error)? {
            return Ok(StreamWord::read(word));
        }
        // In an arena: as a kernel believed it last.
        let at = half_at(self.direction) + offset_of!(HalfEntry, seen);
        Ok(StreamWord(shared.table.entry_word(handle, at).map_err(copy_error)?))
    }

    fn outcome(&self) -> io::Result<Outcome> {
        // Before the word: what landed, or was released, before the status was set counts.
        let end = self.end();
        let word = self.other()?;
        let error = end.or_else(|| word.end().then(|| self.ended()));
        Ok(Outcome { position: word.position(), error: error.map(io_error) })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !*self.is_locked.get_mut() {
            return;
        }
        let mut holder = self.inner.holder(self.direction);
        // What running launches may use stays locked; it can be taken again.
        let _ = self.give_back();
        *holder = Holder::default();
    }
}

impl Taken {
    fn take(socket: &Socket, direction: Direction) -> io::Result<Self> {
        let hold = Hold::take(socket, direction)?;
        let next = hold.posted().position;
        Ok(Self { hold, next })
    }

    /// Gives the direction back, unless queues have operations of it.
    fn give_back(self) -> io::Result<()> {
        match Arc::try_unwrap(self.hold) {
            Ok(hold) => {
                let result = hold.give_back();
                let direction = hold.direction;
                let inner = hold.inner.clone();
                if result.is_ok() {
                    *inner.holder(direction) = Holder::default();
                }
                result
            }
            Err(_) => Err(io::Error::from_raw_os_error(EBUSY)),
        }
    }

    /// Where a message of that length begins and ends: behind all that was placed, and behind what kernels have published
    /// of the messages that follow those ([`Prepared::nth`]).
    fn bounds(&self, len: u64, published: u64) -> io::Result<(u64, u64)> {
        if len == 0 {
            return Err(io_error(Error::InvalidArgument));
        }
        let start = self.next.max(published);
        let end = start.checked_add(len).filter(|&end| end <= MASK);
        Ok((start, end.ok_or_else(|| io_error(Error::NoBuffers))?))
    }

    /// Places the next message.
    fn place(&mut self, len: u64) -> io::Result<(Prepared, RingSpan)> {
        if self.hold.is_captured() {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                "a graph has operations of this direction: where its next message lies is not known",
            ));
        }
        let (published, ring) = (self.hold.published()?, self.hold.half);
        let (start, end) = self.bounds(len, published)?;
        if len > self.hold.most_ahead() {
            return Err(io::Error::from_raw_os_error(EMSGSIZE));
        }
        if let Some(error) = self.hold.inner.failure() {
            return Err(io_error(error));
        }
        if end - published > self.hold.most_ahead() {
            return Err(io_error(Error::NoBuffers));
        }
        let prepared = Prepared::new(self.hold.inner.handle, self.hold.direction, start, len);
        let span = RingSpan::new(ring.base as *mut u8, u64::from(ring.capacity), start, len);
        self.next = end;
        Ok((prepared, span))
    }

    /// Places a message of any length for a queue, which publishes it after all before it, if `submit` enqueues it. With `captures`
    /// the place is found when it is sent or received, and from then on for all that follow.
    fn append<T>(
        &mut self,
        len: u64,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> io::Result<T>,
    ) -> io::Result<T> {
        let captured = self.hold.is_captured();
        let published = self.hold.published()?;
        let (start, end) = self.bounds(len, published)?;
        if start > published && !captured {
            return Err(io_error(Error::Busy));
        }
        let hold = self.hold.clone();
        let has_place = !captures && !captured;
        hold.post(queue, if has_place { end } else { 0 }, || {
            if captures {
                // Ordering: Relaxed; as in `is_captured`. Before a graph can have it.
                hold.is_captured.store(true, Ordering::Relaxed);
            }
            let message = Prepared::new(hold.inner.handle, hold.direction, start, len);
            let appended = Appended { message, capacity: u64::from(hold.half.capacity), hold: hold.clone() };
            submit(appended).inspect_err(|_| hold.is_captured.store(captured, Ordering::Relaxed))
        })
        .inspect(|_| {
            if has_place {
                self.next = end;
            }
        })
    }
}

/// A message that a queue sends or receives.
#[derive(Debug)]
pub(crate) struct Appended {
    pub(crate) message: Prepared,
    /// Bytes in the ring.
    pub(crate) capacity: u64,
    hold: Arc<Hold>,
}

impl Appended {
    /// The direction, which stays taken until the message is done.
    pub(crate) const fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }
}

/// Linux's number: a message that is longer than the ring.
const EMSGSIZE: i32 = 90;
/// Linux's number: a running launch may know the socket.
const EBUSY: i32 = 16;

impl Inner {
    fn holder(&self, direction: Direction) -> MutexGuard<'_, Holder> {
        self.holders[direction as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to a direction that is taken.
    ///
    /// # Errors
    /// EINVAL, when the program has not taken it.
    pub(super) fn hold(&self, direction: Direction) -> io::Result<Arc<Hold>> {
        self.holder(direction).hold.upgrade().ok_or_else(|| io_error(Error::InvalidArgument))
    }

    /// Checks that no launch that runs knows the socket.
    fn check_unknown(&self) -> io::Result<()> {
        let users = self.shared.table.users(self.handle).map_err(copy_error)?;
        if self.shared.launches().running(users, self.host.id()) == 0 {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(EBUSY))
        }
    }

    /// The socket's status, once it has one.
    fn status(&self) -> Option<Status> {
        let status = Status(self.shared.memory.status(self.handle.slot()).observe());
        Some(status).filter(|status| status.is_set() && status.generation() == self.handle.generation())
    }

    /// The socket's failure, by its status word.
    fn failure(&self) -> Option<Error> {
        self.status().and_then(Status::error)
    }
}

impl Socket {
    /// Takes the sending direction from the kernels.
    ///
    /// # Errors
    /// EBUSY, when a launch that runs knows the socket, or may: finish it first. EALREADY, when the program has the
    /// direction. EBADF, when a kernel has closed the socket.
    pub fn take_send(&self) -> io::Result<Sender> {
        Taken::take(self, Direction::Send).map(Sender)
    }

    /// Takes the receiving direction from the kernels.
    ///
    /// # Errors
    /// As [`Socket::take_send`].
    pub fn take_recv(&self) -> io::Result<Receiver> {
        Taken::take(self, Direction::Recv).map(Receiver)
    }
}

impl Sender {
    /// The direction.
    pub(crate) fn hold(&self) -> &Hold {
        &self.0.hold
    }

    /// Places a message for a queue.
    pub(crate) fn append<T>(
        &mut self,
        len: usize,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.append(len as u64, queue, captures, submit)
    }

    /// Reserves `len` bytes of the ring for the next message.
    ///
    /// Messages are prepared ahead: as many as the ring holds may wait to be published. Published in the order in which
    /// they were prepared, a later one publishes all before it. A message lies behind those that were prepared, and behind
    /// all that is published: wait for kernels that play messages of their own ([`Prepared::nth`]) before the next one.
    ///
    /// # Errors
    /// ENOBUFS, when what is prepared and not published would not fit into the ring; EMSGSIZE, for a message longer than
    /// the ring; EINVAL, for 0 bytes; the stream's failure.
    pub fn prepare(&mut self, len: usize) -> io::Result<SendMessage> {
        let (prepared, span) = self.0.place(len as u64)?;
        let (room, post) = (prepared.room(self.capacity() as u64), prepared.trigger());
        Ok(SendMessage { prepared, span, room, post, done: prepared.done() })
    }

    /// Bytes in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.hold.half.capacity as usize
    }

    /// How far the direction has come. Sticky: once it has an error it keeps one.
    ///
    /// # Errors
    /// When the device's memory cannot be read.
    pub fn outcome(&self) -> io::Result<Outcome> {
        self.0.hold.outcome()
    }

    /// Gives the direction back to the kernels. Messages that were prepared and not published are void.
    ///
    /// # Errors
    /// EBUSY, when a launch that runs knows the socket, or a queue has operations of the direction: it stays taken until
    /// those are done, and [`Socket::take_send`] gives it again.
    pub fn give_back(self) -> io::Result<()> {
        self.0.give_back()
    }
}

impl Receiver {
    /// The direction.
    pub(crate) fn hold(&self) -> &Hold {
        &self.0.hold
    }

    /// Places a message for a queue.
    pub(crate) fn append<T>(
        &mut self,
        len: usize,
        queue: QueueId,
        captures: bool,
        submit: impl FnOnce(Appended) -> io::Result<T>,
    ) -> io::Result<T> {
        self.0.append(len as u64, queue, captures, submit)
    }

    /// Names the next `len` bytes of the stream as a message to come.
    ///
    /// # Errors
    /// ENOBUFS, when the ring has no room for it beside what is prepared and not consumed. Over rc the ring counts as smaller by a
    /// quarter, or by 64 KiB if that is less: the rest comes only after some is consumed. Otherwise as [`Sender::prepare`].
    pub fn prepare(&mut self, len: usize) -> io::Result<RecvMessage> {
        let (prepared, span) = self.0.place(len as u64)?;
        Ok(RecvMessage { prepared, span, arrived: prepared.arrived(), consume: prepared.trigger() })
    }

    /// Bytes in the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.0.hold.half.capacity as usize
    }

    /// How far the direction has come. Sticky: once it has an error it keeps one.
    ///
    /// # Errors
    /// When the device's memory cannot be read.
    pub fn outcome(&self) -> io::Result<Outcome> {
        self.0.hold.outcome()
    }

    /// Gives the direction back to the kernels. What has landed and was not consumed is theirs.
    ///
    /// # Errors
    /// As [`Sender::give_back`].
    pub fn give_back(self) -> io::Result<()> {
        self.0.give_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RING: u64 = 64;

    fn settled(direction: Direction, words: [StreamWord; 3], has_failed: bool) -> [StreamWord; 2] {
        let [position, seen, other] = words;
        let Settled { position, seen } = Settled::of(direction, RING, (position, seen), other, || has_failed);
        [position, seen]
    }

    #[test]
    fn a_direction_is_given_back_as_kernels_would_have_left_it() {
        let at = StreamWord::at;
        for (direction, words, has_failed, expected) in [
            // Streams believe nothing of the other end.
            (Direction::Send, [at(1000), at(0), at(990)], false, [at(1000), at(990)]),
            (Direction::Recv, [at(1000), at(0), at(1010)], false, [at(1000), at(1010)]),
            // The other end's word cannot be read, or cannot be believed.
            (Direction::Send, [at(1000), at(0), at(0)], false, [at(1000), at(936)]),
            // A receiver may be ahead by what a line has brought, or a stream has believed.
            (Direction::Recv, [at(1000), at(0), at(0)], false, [at(1000), at(936)]),
            (Direction::Recv, [at(1000), at(900), StreamWord::MALFORMED], false, [at(1000), at(936)]),
            (Direction::Recv, [at(1000), at(990), at(995)], false, [at(1000), at(995)]),
            // They have run on.
            (Direction::Recv, [at(1000), at(0), at(100).with_end()], false, [at(100), at(100).with_end()]),
            (Direction::Recv, [at(1000), at(0), at(100).with_err()], true, [at(100), at(100).with_err()]),
            (Direction::Send, [at(1000), at(0), at(100)], true, [at(164), at(100)]),
            (Direction::Send, [at(1000), at(0), at(100).with_end()], false, [at(1000), at(936).with_end()]),
        ] {
            assert_eq!(settled(direction, words, has_failed), expected, "{direction:?} {words:?}");
        }
    }

    proptest! {
        /// No kernel counts more bytes than the ring has, and marks stay.
        #[test]
        fn what_is_given_back_fits_the_ring(
            position in 0..400u64, seen in 0..400u64, other in any::<u64>(), small in any::<bool>(),
            is_send in any::<bool>(), has_failed in any::<bool>(),
        ) {
            let other = StreamWord::read(if small { other % 400 } else { other });
            let direction = if is_send { Direction::Send } else { Direction::Recv };
            // What was believed, was believable.
            let seen = StreamWord::at(if is_send { seen.min(position) } else { seen.min(position + RING) });
            let [to, seen] = settled(direction, [StreamWord::at(position), seen, other], has_failed);
            // A receiver may be ahead of what it has seen.
            let is_ahead = is_send || seen.position() < to.position();
            let (from, until) = if is_ahead { (seen, to) } else { (to, seen) };
            prop_assert!(from.position() <= until.position(), "{from:?} {until:?}");
            prop_assert!(until.position() - from.position() <= RING, "{from:?} {until:?}");
            prop_assert!(to.position() <= position);
        }
    }
}
