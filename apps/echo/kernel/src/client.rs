//! The echo client: sends messages, waits for each to come back, and checks it with all lanes.

use crate::pattern::Pattern;
use crate::record::{Driven, Outcome};
use gpunet_app_kernel::{NUMBER, put};
use gpunet_device::poll::{POLLIN, POLLOUT, poll};
use gpunet_device::{
    Buffer, Error, Group, Kernel, Net, Options, PollFd, PollSet, Shutdown, SockAddr, Stream, Timeout, now_ns,
};

/// Bytes in front of a block's two message buffers: its poll entry.
const HEAD: usize = 16;

/// How often a block reports its progress, for the host's progress bar.
const TICK_NS: u64 = 20_000_000;

/// How long a server may take to end its stream after the client ended its own. A server that does
/// not is no error, only not an exact echo.
const GOODBYE: Timeout = Timeout::ms(500);

/// Drives echo connections: block `b` takes connections `b`, `b + blocks`, and so on.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EchoClient {
    /// The launch's sockets.
    pub net: Net,
    /// [`EchoClient::work_bytes`] for each block, 16-aligned.
    pub work: Buffer,
    /// A [`Driven`] record for each connection.
    pub records: Buffer,
    /// `samples_each` round-trip times in nanoseconds for each connection; 0 where there is none.
    pub samples: Buffer,
    /// A number for each block, in memory that the host may watch: messages done so far.
    pub ticks: Buffer,
    /// The server.
    pub addr: SockAddr,
    /// Options of the connections. The timeouts bound every wait.
    pub options: Options,
    /// Bytes of a message, at least one.
    pub size: u64,
    /// Messages of a connection.
    pub count: u64,
    /// Room for samples of a connection. With more messages than that, only every n-th is sampled.
    pub samples_each: u64,
    /// Connections.
    pub connections: u32,
    /// 0.
    pub reserved: u32,
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

impl EchoClient {
    /// Memory that each block needs for messages of `size` bytes.
    #[must_use]
    pub const fn work_bytes(size: u64) -> usize {
        HEAD + 2 * Self::room(size)
    }

    const fn room(size: u64) -> usize {
        (size as usize).next_multiple_of(16)
    }
}

impl Kernel for EchoClient {
    const ENTRY: &'static str = "gpunet_echo_client";

    fn run<G: Group>(self, g: &G) {
        let mut done = 0;
        let mut connection = g.index();
        while connection < self.connections {
            let driven = Drive::new(&self, g, connection).run(g, &mut done);
            if g.is_leader() {
                driven.store(self.records.skip(connection as usize * Driven::NUMBERS * NUMBER));
                put(self.ticks, g.index() as usize, done);
            }
            connection += g.count();
        }
    }
}

/// One connection at work. Equal on all lanes but for the clock, which is the leader's.
struct Drive<'a> {
    job: &'a EchoClient,
    connection: u32,
    head: Buffer,
    out: Buffer,
    back: Buffer,
    /// Every n-th message's time is kept, where n is this.
    stride: u64,
    until_sample: u64,
    next_sample: usize,
    last_tick: u64,
    driven: Driven,
}

impl<'a> Drive<'a> {
    fn new<G: Group>(job: &'a EchoClient, g: &G, connection: u32) -> Self {
        let (size, room) = (job.size as usize, EchoClient::room(job.size));
        let bytes = EchoClient::work_bytes(job.size);
        let work = job.work.slice(g.index() as usize * bytes, bytes);
        // At least 1 each, so no division by zero.
        let places = if job.samples_each == 0 { 1 } else { job.samples_each };
        Self {
            job,
            connection,
            head: work.first(HEAD),
            out: work.slice(HEAD, size),
            back: work.slice(HEAD + room, size),
            stride: job.count.div_ceil(places),
            until_sample: 0,
            next_sample: connection as usize * job.samples_each as usize,
            last_tick: 0,
            driven: Driven::default(),
        }
    }

    fn run<G: Group>(mut self, g: &G, done: &mut u64) -> Driven {
        let mut stream = match Stream::connect_with(g, self.job.net, self.job.addr, self.job.options) {
            Ok(stream) => stream,
            Err(error) => return self.failed(Failure::call(Outcome::Connect, error)),
        };
        self.driven.started_ns = now_ns();
        let result = self.converse(g, &mut stream, done);
        let result = match result {
            Ok(()) => self.goodbye(g, &mut stream),
            failed => failed,
        };
        // Everything that matters was received; the close of a failed connection adds nothing.
        let _ = stream.close(g);
        match result {
            Ok(()) => Driven { outcome: Outcome::Good, ..self.driven },
            Err(failure) => self.failed(failure),
        }
    }

    fn failed(self, failure: Failure) -> Driven {
        Driven { outcome: failure.outcome, detail: failure.detail, ..self.driven }
    }

    /// All messages, one after another.
    fn converse<G: Group>(&mut self, g: &G, stream: &mut Stream, done: &mut u64) -> Result<(), Failure> {
        while self.driven.messages < self.job.count {
            let pattern = Pattern::new(self.connection, self.driven.messages);
            pattern.fill(g, self.out);
            g.sync();
            let start = now_ns();
            self.exchange(g, stream)?;
            let end = now_ns();
            if pattern.check(g, self.back) > 0 {
                let offset = pattern.first_difference(self.back) as u64;
                return Err(Failure { outcome: Outcome::Differs, detail: offset });
            }
            self.driven.messages += 1;
            self.driven.ended_ns = end;
            *done += 1;
            self.note(g, end.saturating_sub(start), end, *done);
        }
        Ok(())
    }

    /// One message there and back. It sends and receives side by side, because a message may be
    /// larger than all buffers between the two ends.
    #[inline(always)]
    fn exchange<G: Group>(&mut self, g: &G, stream: &mut Stream) -> Result<(), Failure> {
        let size = self.out.len();
        let (mut sent, mut back, mut come) = (0, 0, false);
        while back < size {
            let before = sent + back;
            if sent < size {
                match stream.try_send(g, self.out.skip(sent)) {
                    Ok(n) => sent += n,
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(Failure::call(Outcome::Send, error)),
                }
            }
            // While there is more to send, it only receives what has come already; then it waits
            // here.
            if sent == size || come || self.has_input(g, stream)? {
                match stream.recv(g, self.back.skip(back)) {
                    Ok(0) => return Err(Failure { outcome: Outcome::Ended, detail: back as u64 }),
                    Ok(n) => back += n,
                    Err(error) => return Err(Failure::call(Outcome::Recv, error)),
                }
            }
            come = sent + back == before && self.wait(g, stream)?;
        }
        Ok(())
    }

    fn has_input<G: Group>(&self, g: &G, stream: &mut Stream) -> Result<bool, Failure> {
        match stream.available(g) {
            Ok(n) => Ok(n > 0),
            Err(error) => Err(Failure::call(Outcome::Recv, error)),
        }
    }

    /// Waits until there is data to receive or space to send. Returns whether a receive is due: for
    /// data, or for the stream's end or failure.
    fn wait<G: Group>(&self, g: &G, stream: &Stream) -> Result<bool, Failure> {
        let timeout = Timeout::of_option(self.job.options.recv_timeout_ns);
        match self.poll(g, stream, POLLIN | POLLOUT, timeout) {
            Ok(0) => Err(Failure::call(Outcome::Recv, Error::TimedOut)),
            Ok(found) => Ok(found & !POLLOUT != 0),
            Err(error) => Err(Failure::call(Outcome::Recv, error)),
        }
    }

    /// Waits for the stream, and returns its events.
    fn poll<G: Group>(
        &self,
        g: &G,
        stream: &Stream,
        events: i16,
        timeout: Timeout,
    ) -> gpunet_device::Result<i16> {
        let set = entry(self.head);
        if g.is_leader() {
            set.set(0, PollFd { handle: stream.handle().raw(), events, revents: 0 });
        }
        let found = poll(g, self.job.net, set, timeout).map(|_| set.get(0).revents);
        // Nobody may still be reading when the entry is written again.
        g.sync();
        found
    }

    /// Ends the stream, and expects the server to end its own without sending any more.
    fn goodbye<G: Group>(&mut self, g: &G, stream: &mut Stream) -> Result<(), Failure> {
        stream.shutdown(g, Shutdown::Write);
        let ended = self.poll(g, stream, POLLIN, GOODBYE);
        match (ended, stream.available(g)) {
            (Ok(_), Ok(n @ 1..)) => Err(Failure { outcome: Outcome::Extra, detail: n as u64 }),
            _ => Ok(()),
        }
    }

    /// Keeps a round-trip time by the leader's clock, and now and then reports this block's
    /// progress to the host.
    #[inline(always)]
    fn note<G: Group>(&mut self, g: &G, took_ns: u64, now: u64, done: u64) {
        if self.until_sample == 0 {
            if g.is_leader() {
                // 0 means "no sample".
                put(self.job.samples, self.next_sample, if took_ns == 0 { 1 } else { took_ns });
            }
            self.next_sample += 1;
            self.until_sample = self.stride;
        }
        self.until_sample -= 1;
        if g.is_leader() && now.saturating_sub(self.last_tick) > TICK_NS {
            self.last_tick = now;
            put(self.job.ticks, g.index() as usize, done);
        }
    }
}

#[inline(always)]
#[allow(unsafe_code)]
fn entry(head: Buffer) -> PollSet {
    // SAFETY: one entry at the start of this block's own working memory, which is 16-aligned.
    unsafe { PollSet::from_raw_parts(head.as_ptr().cast(), 1) }
}
