//! The echo server: any number of connections per block, none of which delays another.
//!
//! A block polls the listener and its connections. It sends received data back straight from the
//! receive ring (peek, send, release), so data that cannot be sent yet simply stays in that ring:
//! there is no buffer per connection, and the ring itself slows down a peer that reads slowly.

use crate::loads::Loads;
use crate::record::Served;
use crate::table::Table;
use gpunet_device::poll::{POLLERR, POLLIN, POLLOUT, poll};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, PollFd, PollSet, Result, Stream, now_ns,
};

/// How long a block with one connection waits for that one alone before it polls everything.
///
/// Polling reads the proxy's epoch (on a GPU a bus round trip, 1.2 us); waiting for one stream of the
/// same GPU does not. It is the accepted streams' receive timeout (see `OPTIONS`), and the longest
/// time that a second connection is kept waiting.
pub const ATTENTION_NS: u64 = 2_000_000;

/// Bytes echoed on one connection before the next one has its turn.
const TURN: usize = 256 * 1024;

/// Bytes sent back before they are released: the data thread receives into them while the next piece is copied.
const PIECE: usize = 64 * 1024;

/// How long a block leaves a new connection to blocks that have fewer: such a block may be busy
/// with its only connection.
const COURTESY_NS: u64 = ATTENTION_NS + 500_000;

/// Pause before the next accept when there is no memory or no slot for it.
const EXHAUSTED_NS: u64 = 10_000_000;

/// How often a block that is never idle checks whether to stop.
const STOP_CHECK_NS: u64 = 10_000_000;

/// Serves echo connections until it is cancelled.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EchoServer {
    /// The launch's sockets.
    pub net: Net,
    /// [`EchoServer::table_bytes`] for each block, 16-aligned.
    pub tables: Buffer,
    /// A [`Served`] record for each block.
    pub records: Buffer,
    /// A number for each block, 0 at the start: its connections.
    pub loads: Buffer,
    /// The listener's handle.
    pub listener: i32,
    /// Connections per block.
    pub room: u32,
}

impl EchoServer {
    /// Memory that each block needs.
    #[must_use]
    pub const fn table_bytes(room: u32) -> usize {
        Table::bytes(room as usize)
    }
}

impl Kernel for EchoServer {
    const ENTRY: &'static str = "gpunet_echo_server";

    fn run<G: Group>(self, g: &G) {
        let block = g.index() as usize;
        let bytes = Self::table_bytes(self.room);
        let table = Table::new(g, self.tables.slice(block * bytes, bytes), self.room as usize);
        let mut server = Block {
            net: self.net,
            table,
            loads: Loads::new(self.loads),
            listener: None,
            hold_until: 0,
            served: Served::default(),
        };
        if let Err(error) = server.run(g, self.listener) {
            server.served.stopped = error.errno();
        }
        if g.is_leader() {
            server.served.store(self.records.skip(block * Served::NUMBERS * crate::record::NUMBER));
        }
    }
}

/// One block of the server. Equal on all lanes.
struct Block {
    net: Net,
    table: Table,
    loads: Loads,
    /// The listener while it is watched.
    listener: Option<Handle>,
    /// Not 0: when to accept what waits, unless another block has taken it.
    hold_until: u64,
    served: Served,
}

/// How a turn of one connection ended.
#[derive(PartialEq)]
enum Turn {
    /// Everything that had come was sent back.
    Dry,
    /// There is more to send back than fits now.
    Full,
    /// The others have their turn: there is more, or nothing came for a while.
    Over,
    /// The peer ended its stream, and it has everything.
    Ended,
}

impl Block {
    /// Serves until a call fails because it is over: Canceled, NetworkDown, or the listener was closed.
    fn run<G: Group>(&mut self, g: &G, listener: i32) -> Result<()> {
        let Some(handle) = Handle::from_raw(listener) else { return Err(Error::BadHandle) };
        let listener = Listener::from_handle(g, self.net, handle)?;
        let mut now = g.broadcast(now_ns());
        let mut checked = now;
        loop {
            let timeout = self.choose(g, handle, now);
            let mut ready = poll(g, self.net, self.table.all(), timeout)?;
            now = g.broadcast(now_ns());
            if ready == 0 {
                checked = now;
            } else if now - checked > STOP_CHECK_NS {
                self.check_stop(g)?;
                checked = now;
            }
            if self.listener.is_some() {
                if self.table.listener_ready() {
                    ready -= 1;
                    self.accept(g, &listener, now)?;
                } else {
                    // Another block took it.
                    self.hold_until = 0;
                }
            }
            self.serve(g, ready, now);
        }
    }

    /// Decides whether to watch the listener, and how long to wait.
    fn choose<G: Group>(&mut self, g: &G, listener: Handle, now: u64) -> i64 {
        if !self.table.has_room() {
            self.hold_until = 0;
        }
        let held = self.hold_until > now;
        let watch = if self.table.has_room() && !held { Some(listener) } else { None };
        if watch != self.listener {
            self.listener = watch;
            self.table.watch_listener(g, watch);
        }
        match self.hold_until {
            0 => -1,
            // The courtesy is over: whoever still waits is accepted now, and nobody else later by the same right.
            _ if !held => 0,
            until => (until - now) as i64,
        }
    }

    /// Accepts the waiting connection, or leaves it to less busy blocks for a moment.
    fn accept<G: Group>(&mut self, g: &G, listener: &Listener, now: u64) -> Result<()> {
        let mine = self.table.len();
        if self.hold_until == 0 && mine > 0 && self.loads.someone_has_fewer(g, mine) {
            self.hold_until = now + COURTESY_NS;
            return Ok(());
        }
        self.hold_until = 0;
        match listener.try_accept(g) {
            Ok(stream) => {
                self.served.connections += 1;
                self.table.add(g, stream.handle());
                self.loads.set(g, self.table.len());
            }
            Err(Error::WouldBlock) => {}
            Err(
                error @ (Error::Canceled | Error::NetworkDown | Error::BadHandle | Error::InvalidArgument),
            ) => {
                return Err(error);
            }
            // Out of rings, slots or descriptors: the connection waits in the backlog until one is free.
            // Any other error ends only that connection.
            Err(error) => {
                if !matches!(error, Error::NoBuffers | Error::TooManySockets | Error::TooManyFiles) {
                    self.fail(error);
                }
                self.hold_until = now + EXHAUSTED_NS;
            }
        }
        Ok(())
    }

    /// Gives each of the `ready` connections its turn.
    fn serve<G: Group>(&mut self, g: &G, mut ready: usize, now: u64) {
        // From the end, because a connection that is removed is replaced by the last one.
        let mut index = self.table.len();
        while ready > 0 && index > 0 {
            index -= 1;
            let fd = self.table.get(index);
            if fd.revents == 0 {
                continue;
            }
            ready -= 1;
            let Some(handle) = Handle::from_raw(fd.handle) else { continue };
            let result = match Stream::from_handle(g, self.net, handle) {
                Ok(stream) => self.serve_one(g, stream, index, fd, now),
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                self.fail(error);
                self.remove(g, index);
            }
        }
    }

    /// The turn of one connection; an error is its end.
    fn serve_one<G: Group>(
        &mut self,
        g: &G,
        mut stream: Stream,
        index: usize,
        fd: PollFd,
        now: u64,
    ) -> Result<()> {
        let failed = fd.revents & POLLERR != 0;
        let turn = loop {
            match self.echo(g, &mut stream, failed) {
                // It is the only connection: wait for its next message here.
                Ok(Turn::Dry) if self.table.len() == 1 && g.broadcast(now_ns()) - now < ATTENTION_NS => {}
                Ok(turn) => break turn,
                Err(error) => {
                    // The first error tells more than the close's.
                    let _ = stream.close(g);
                    return Err(error);
                }
            }
        };
        if turn == Turn::Ended {
            self.remove(g, index);
            // Shuts down writing, after what was sent.
            if let Err(error) = stream.close(g) {
                self.fail(error);
            }
            return Ok(());
        }
        let wanted = if turn == Turn::Full { POLLOUT } else { POLLIN };
        if wanted != fd.events {
            self.table.set(g, index, stream.handle().raw(), wanted);
        }
        Ok(())
    }

    /// Sends back what has come. If nothing has, it waits for up to the receive timeout.
    fn echo<G: Group>(&mut self, g: &G, stream: &mut Stream, failed: bool) -> Result<Turn> {
        let mut moved = 0;
        loop {
            let span = match stream.peek(g, PIECE) {
                Ok(span) => span,
                // Nothing came within the receive timeout, unless it is the connection's own ETIMEDOUT.
                Err(Error::TimedOut) if !failed => return Ok(Turn::Over),
                // The next poll returns it too, and ends everything properly.
                Err(Error::Canceled) => return Ok(Turn::Over),
                Err(error) => return Err(error),
            };
            if span.is_empty() {
                return Ok(Turn::Ended);
            }
            // The part up to the ring's end; the rest, if any, is the first part of the next look. One
            // place that sends keeps the kernel small: a copy is a thousand lines of PTX.
            let piece = span.first;
            let sent = match stream.try_send(g, peeked(piece.ptr, piece.len)) {
                Ok(sent) => sent,
                // Canceled: the next poll returns it too.
                Err(Error::WouldBlock | Error::Canceled) => 0,
                Err(error) => return Err(error),
            };
            stream.release(g, sent);
            self.served.bytes += sent as u64;
            moved += sent;
            if sent < piece.len {
                return Ok(Turn::Full);
            }
            if moved >= TURN {
                return Ok(Turn::Over);
            }
            // There may be more: the other part, if the ring's end divided what had come, or the next piece. Whatever
            // comes later the next poll or peek finds: to look for it here costs a bus round trip.
            if piece.len == span.len() && span.len() < PIECE {
                return Ok(Turn::Dry);
            }
        }
    }

    fn remove<G: Group>(&mut self, g: &G, index: usize) {
        self.table.remove(g, index);
        // Room, memory and time for another one.
        self.hold_until = 0;
        self.loads.set(g, self.table.len());
    }

    fn fail(&mut self, error: Error) {
        self.served.errors += 1;
        self.served.last_errno = error.errno();
    }

    /// Polls nothing: that notices a cancel, unlike calls that need not wait.
    fn check_stop<G: Group>(&self, g: &G) -> Result<()> {
        poll(g, self.net, nothing(), 0).map(|_| ())
    }
}

/// Bytes of a receive ring, to be sent from where they are.
#[inline(always)]
#[allow(unsafe_code)]
fn peeked(ptr: *mut u8, len: usize) -> Buffer {
    // SAFETY: a piece of a peeked span: mapped while the stream is open, and nobody writes it until
    // it is released, which happens after the send.
    unsafe { Buffer::from_raw_parts(ptr, len) }
}

#[inline(always)]
#[allow(unsafe_code)]
fn nothing() -> PollSet {
    // SAFETY: no entries.
    unsafe { PollSet::from_raw_parts(core::ptr::without_provenance_mut(16), 0) }
}
