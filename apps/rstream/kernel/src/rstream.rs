//! One end of one connection of the rstream test.

use crate::counting::{self, PERIOD};
use crate::record::{Ended, Outcome, Test};
use gpunet_app_kernel::{NUMBER, put};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, Result, SockAddr, Stream, Timeout, now_ns,
};

/// Bytes exchanged before the transfers of every test: sixteen there and sixteen back, so that both
/// ends are ready before the clock starts.
pub const SYNC: Test = Test { size: 16, count: 1, iterations: 1 };

/// Alignment of rings, and so of a position in one.
const ALIGN: usize = 16;

/// Runs tests over one connection, as rstream does. One block.
///
/// Both directions count bytes, and the byte at position `p` is `p` modulo 256: sync bytes are
/// counted too, a test continues where the one before ended, and so does a connection.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rstream {
    /// The launch's sockets.
    pub net: Net,
    /// [`Rstream::work_bytes`] of the largest test, 16-aligned.
    pub work: Buffer,
    /// A row for each [`Test`].
    pub tests: Buffer,
    /// Where the [`Ended`] record goes.
    pub record: Buffer,
    /// A number for each test: the nanoseconds it took.
    pub times: Buffer,
    /// The server, for a client.
    pub addr: SockAddr,
    /// Options of a client's connection.
    pub options: Options,
    /// Bytes of the largest transfer.
    pub size: u64,
    /// Position of the sending direction at the start.
    pub sent: u64,
    /// Position of the receiving direction at the start.
    pub received: u64,
    /// A server's listener, to accept from; 0 makes this end the client.
    pub listener: i32,
    /// 1: received bytes are checked.
    pub verify: u32,
}

impl Rstream {
    /// Memory that tests of up to `size` bytes a transfer need.
    #[must_use]
    pub const fn work_bytes(size: u64) -> usize {
        Self::out_bytes(size) + Self::back_bytes(size)
    }

    const fn transfer(size: u64) -> usize {
        (if size > SYNC.size { size } else { SYNC.size }) as usize
    }

    const fn out_bytes(size: u64) -> usize {
        (Self::transfer(size) + PERIOD).next_multiple_of(ALIGN)
    }

    const fn back_bytes(size: u64) -> usize {
        (Self::transfer(size) + ALIGN).next_multiple_of(ALIGN)
    }
}

impl Kernel for Rstream {
    const ENTRY: &'static str = "gpunet_rstream";

    fn run<G: Group>(self, g: &G) {
        if g.index() != 0 {
            return;
        }
        let mut ended = Ended { sent: self.sent, received: self.received, ..Ended::default() };
        let failure = match self.open(g) {
            Ok(stream) => End::new(&self, g, stream, &mut ended).run(g).err(),
            Err(failure) => Some(failure),
        };
        (ended.outcome, ended.detail) = match failure {
            None => (Outcome::Good, 0),
            Some(failure) => (failure.outcome, failure.detail),
        };
        if g.is_leader() {
            ended.store(self.record);
        }
    }
}

/// Why a connection ended early.
struct Failure {
    outcome: Outcome,
    detail: u64,
}

impl Failure {
    fn call(outcome: Outcome, error: Error) -> Self {
        Self { outcome, detail: error.errno() as u64 }
    }
}

impl Rstream {
    fn open<G: Group>(&self, g: &G) -> core::result::Result<Stream, Failure> {
        if self.is_server() {
            self.accept(g).map_err(|error| Failure::call(Outcome::Accept, error))
        } else {
            Stream::connect_with(g, self.net, self.addr, self.options)
                .map_err(|error| Failure::call(Outcome::Connect, error))
        }
    }

    /// Waits for a client as long as it takes.
    fn accept<G: Group>(&self, g: &G) -> Result<Stream> {
        let Some(handle) = Handle::from_raw(self.listener) else { return Err(Error::BadHandle) };
        Listener::from_handle(g, self.net, handle)?.accept_timeout(g, Timeout::NEVER)
    }

    const fn is_server(&self) -> bool {
        self.listener != 0
    }
}

/// The state of the end. Equal on all lanes except the clock, which is the leader's.
struct End<'a> {
    job: &'a Rstream,
    stream: Stream,
    /// The bytes from position 0 on, a period more than the largest transfer. What is to be sent
    /// from position `p` begins at `p` modulo the period; it is aligned there as it is in the ring,
    /// so the copy need not shift.
    out: Buffer,
    /// Room for the largest transfer wherever it begins in a chunk of the ring, for the same
    /// reason.
    back: Buffer,
    ended: &'a mut Ended,
}

impl<'a> End<'a> {
    fn new<G: Group>(job: &'a Rstream, g: &G, stream: Stream, ended: &'a mut Ended) -> Self {
        let (out, back) = (Rstream::out_bytes(job.size), Rstream::back_bytes(job.size));
        let out = job.work.first(out);
        // The first send begins with a barrier.
        counting::fill(g, out);
        Self { job, stream, out, back: job.work.slice(out.len(), back), ended }
    }

    fn run<G: Group>(mut self, g: &G) -> core::result::Result<(), Failure> {
        let tests = self.job.tests.len() / (Test::NUMBERS * NUMBER);
        let mut result = Ok(());
        while result.is_ok() && (self.ended.tests as usize) < tests {
            result = self.test(g);
        }
        if result.is_ok() {
            result = self.expect_nothing(g);
        }
        // The outcome is known already; the close of a failed connection adds nothing.
        let _ = self.stream.close(g);
        result
    }

    /// The next test: the sync bytes, then the transfers by the clock.
    fn test<G: Group>(&mut self, g: &G) -> core::result::Result<(), Failure> {
        let index = self.ended.tests as usize;
        let test = Test::load(self.job.tests, index);
        let (mut synced, mut started) = (false, 0);
        // A single place that exchanges keeps the kernel small: a send or a receive is a thousand
        // lines of PTX.
        loop {
            self.exchange(g, if synced { test } else { SYNC })?;
            let now = now_ns();
            if synced {
                if g.is_leader() {
                    put(self.job.times, index, now.saturating_sub(started));
                }
                self.ended.tests += 1;
                return Ok(());
            }
            (synced, started) = (true, now);
        }
    }

    /// All transfers of a test; the client sends first.
    #[inline(always)]
    fn exchange<G: Group>(&mut self, g: &G, test: Test) -> core::result::Result<(), Failure> {
        let size = test.size as usize;
        let mut sending = !self.job.is_server();
        let (mut turns, mut transfers) = (test.iterations * 2, test.count);
        while turns > 0 {
            if transfers == 0 {
                (turns, transfers, sending) = (turns - 1, test.count, !sending);
            } else if sending {
                self.send(g, size)?;
                transfers -= 1;
            } else {
                self.receive(g, size)?;
                transfers -= 1;
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn send<G: Group>(&mut self, g: &G, size: usize) -> core::result::Result<(), Failure> {
        let bytes = self.out.slice(self.ended.sent as usize % PERIOD, size);
        match self.stream.send_all(g, bytes) {
            Ok(()) => {
                self.ended.sent += size as u64;
                Ok(())
            }
            Err(error) => Err(Failure::call(Outcome::Send, error)),
        }
    }

    #[inline(always)]
    fn receive<G: Group>(&mut self, g: &G, size: usize) -> core::result::Result<(), Failure> {
        let position = self.ended.received;
        let buffer = self.back.slice(position as usize % ALIGN, size);
        let come = match self.stream.recv_exact(g, buffer) {
            Ok(come) => come,
            Err(error) => return Err(Failure::call(Outcome::Recv, error)),
        };
        self.ended.received += come as u64;
        if self.job.verify != 0 && !counting::is_right(g, buffer.first(come), position) {
            let offset = counting::first_wrong(buffer, position) as u64;
            return Err(Failure { outcome: Outcome::Differs, detail: position + offset });
        }
        if come < size {
            return Err(Failure { outcome: Outcome::Ended, detail: self.ended.received });
        }
        Ok(())
    }

    /// Checks whether more came than was agreed, without waiting: an honest peer may not have ended
    /// yet.
    fn expect_nothing<G: Group>(&mut self, g: &G) -> core::result::Result<(), Failure> {
        match self.stream.available(g) {
            Ok(extra @ 1..) => Err(Failure { outcome: Outcome::Extra, detail: extra as u64 }),
            _ => Ok(()),
        }
    }
}
