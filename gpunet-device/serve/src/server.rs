//! The kernel: each block accepts connections and gives them turns.
//!
//! | file | holds |
//! |---|---|
//! | `accept` | accepting, and the balance between blocks |
//! | `connection` | what a connection is between its turns |
//! | `turn`, `round` | the turn of one connection; one round of it |
//! | `limits` | connections that take too long, and the end of the server |
#![allow(unsafe_code)]

mod accept;
mod connection;
mod limits;
mod round;
mod turn;

use crate::arena::Arena;
use crate::backlog::Backlogs;
use crate::bells::{Bells, Doorbell, HostBells, HostRelay, LastAsked};
use crate::board::{Board, Connections, Counters, Log};
use crate::memory::{Carve, Memory};
use crate::readiness::{Readiness, nothing};
use crate::{Bytes, Context, Roll, Service, Worker};
use accept::Accepting;
use connection::Connection;
use gpunet_device::{
    Error, Group, Handle, Kernel, Listener, Net, Options, Result, SockAddr, Timeout, now_ns, poll,
};

/// How often a block checks limits and whether to stop.
const CHECK_NS: u64 = 50_000_000;
const IS_GPU: bool = cfg!(target_arch = "nvptx64");
/// How long after it has helped a block is ready for it at once, also beside its only connection.
const HELPS_FOR_NS: u64 = if IS_GPU { 60_000_000_000 } else { 100_000_000 };
/// How long an accepted stream's calls wait at most: a block waits so for its only connection.
/// Otherwise they are made when they need not wait, and a peer that lies must not hold the block.
const RECV_TIMEOUT: Timeout = Timeout::ms(1);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ServerSettings {
    /// Connections of each block at a time. Those beyond it wait in the backlog.
    pub room: u32,
    /// Bytes of answers that are kept for each connection: [`crate::Writer::capacity`].
    pub out_bytes: u32,
    /// After so much silence between requests a connection is closed, in nanoseconds; 0: never.
    pub idle_ns: u64,
    /// A request that is not complete so long after its first byte closes its connection, in
    /// nanoseconds; 0: never.
    pub request_ns: u64,
    /// A peer that takes nothing of its answers for so long loses its connection, in nanoseconds;
    /// 0: never.
    pub stall_ns: u64,
    /// How long connections that are not idle are served after the host has asked the server to
    /// end, in nanoseconds.
    pub grace_ns: u64,
    /// Bytes of memory for answers that do not fit into their connections' buffers, of all
    /// connections; 0: none, and who does not read is not served.
    pub backlog_bytes: u64,
    /// Of these, bytes of one connection at most.
    pub backlog_bytes_each: u64,
    /// Connections that may wait to be accepted.
    pub backlog: u32,
    /// 0.
    pub reserved: u32,
}

impl ServerSettings {
    /// 256 connections of each block, answers of up to 16 KiB, no limit of silence, 30 s for a
    /// request and for an answer, 2 s to end.
    pub const DEFAULT: Self = Self {
        room: 256,
        out_bytes: 16 << 10,
        idle_ns: 0,
        request_ns: 30_000_000_000,
        stall_ns: 30_000_000_000,
        grace_ns: 2_000_000_000,
        backlog_bytes: 0,
        backlog_bytes_each: 64 << 20,
        backlog: 1024,
        reserved: 0,
    };
}

/// The kernel of a service. `gpunet-serve-host` launches it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Server<S> {
    /// The launch's sockets.
    pub net: Net,
    /// Memory of the host's that the device writes: [`Board::bytes`] for the blocks.
    pub board: Memory,
    /// Memory of the device: [`Server::bytes`].
    pub memory: Memory,
    /// Memory of the host's that the device reads and the host writes: [`HostBells::bytes`].
    pub bells: Memory,
    /// Memory of the device that the host has filled, and nobody writes: [`crate::Turn::data`].
    pub data: Memory,
    /// Where to listen.
    pub addr: SockAddr,
    /// Options; accepted streams inherit them.
    pub options: Options,
    /// A secret by which maps hash their keys.
    pub seed: [u64; 2],
    /// Nanoseconds from 1970 to the launch.
    pub unix_ns: u64,
    /// What [`now_ns`] of the blocks returned then. 0 if the host cannot call it, as on a GPU: each
    /// block then takes its own start for the launch.
    pub clock_ns: u64,
    /// Limits.
    pub settings: ServerSettings,
    /// What is done.
    pub service: S,
}

/// The parts of a server's memory.
struct Parts<S: Service> {
    loads: Connections,
    bells: Bells,
    relay: HostRelay,
    readiness: (Memory, Memory),
    connections: Memory,
    states: Memory,
    out: Memory,
    input: Memory,
    backlogs: Backlogs,
    roll: Roll,
    shared: S::Shared,
}

impl<S: Service> Parts<S> {
    fn carve(service: &S, settings: &ServerSettings, host: Memory, carve: Carve) -> (Self, usize) {
        let serving = serving(service, carve.blocks());
        let (room, places) = (settings.room as usize, settings.room as usize * serving);
        let carve = &mut carve.with_places(places);
        let host = HostBells::new(host, carve.blocks(), service.workers(), settings.room);
        let bells = Bells::carve(carve, host);
        let parts = Self {
            loads: Connections::carve(carve, serving),
            bells,
            relay: HostRelay::carve(carve),
            readiness: Readiness::carve(carve, serving, room),
            connections: carve.take(places * Arena::<Connection>::STRIDE),
            states: carve.take(places * Arena::<S::State>::STRIDE),
            out: carve.take(places * settings.out_bytes as usize),
            input: carve.take(serving * S::COPIED_INPUT),
            backlogs: Backlogs::carve(carve, settings.backlog_bytes, settings.backlog_bytes_each),
            roll: Roll::carve(carve, if S::HAS_ROLL { places } else { 0 }),
            shared: service.shared(carve),
        };
        (parts, carve.used())
    }
}

/// How many blocks serve connections.
fn serving<S: Service>(service: &S, blocks: usize) -> usize {
    blocks.saturating_sub(service.workers() as usize)
}

impl<S: Service> Server<S> {
    /// Bytes of device memory that a launch of `blocks` blocks needs.
    #[must_use]
    pub fn bytes(service: &S, settings: &ServerSettings, blocks: usize) -> usize {
        Parts::carve(service, settings, Memory::EMPTY, Carve::measure_for(blocks)).1
    }
}

impl<S: Service> Kernel for Server<S> {
    const ENTRY: &'static str = S::ENTRY;

    fn run<G: Group>(self, g: &G) {
        let board = Board::new(self.board);
        let carve = Carve::new(self.memory, g.count() as usize).with_seed(self.seed);
        let (parts, _) = Parts::carve(&self.service, &self.settings, self.bells, carve);
        let (block, room) = (g.index() as usize, self.settings.room as usize);
        let out_bytes = self.settings.out_bytes as usize;
        let started = g.broadcast(now_ns());
        let doorbell = Doorbell::new(parts.bells, parts.relay, block);
        // For a service without workers the compiler removes this branch, which would keep the
        // parts in memory.
        if self.service.workers() > 0 && block >= serving(&self.service, g.count() as usize) {
            return self.work(g, &parts, doorbell, started);
        }
        let mut server = Block {
            net: self.net,
            settings: self.settings,
            service: self.service,
            shared: parts.shared,
            board,
            loads: parts.loads,
            readiness: Readiness::new(g, parts.readiness, (parts.bells, doorbell), room),
            bells: parts.bells,
            data: self.data.stable_bytes(),
            connections: Arena::of_block(parts.connections, block, room),
            states: Arena::of_block(parts.states, block, room),
            out: parts.out.part(block * room * out_bytes, room * out_bytes),
            input: parts.input.part(block * S::COPIED_INPUT, S::COPIED_INPUT),
            backlogs: parts.backlogs,
            roll: parts.roll,
            accepting: Accepting::default(),
            counters: Counters::default(),
            log: board.log(block),
            now: started,
            started,
            unix_at_start: self.unix_ns
                + if self.clock_ns == 0 { 0 } else { started.saturating_sub(self.clock_ns) },
            helps_more: false,
            helps_until: 0,
        };
        let ended = server.start(g, self.addr, self.options).and_then(|listener| server.run(g, listener));
        let before = server.counters;
        if let Err(error) = ended {
            server.counters.ended = error.errno() as u64;
        }
        board.publish(g, &before, &server.counters);
    }
}

impl<S: Service> Server<S> {
    /// A block that serves no connections.
    fn work<G: Group>(mut self, g: &G, parts: &Parts<S>, doorbell: Doorbell, now: u64) {
        let board = Board::new(self.board);
        let mut worker = Worker {
            shared: &parts.shared,
            context: Context { net: self.net, now },
            bells: parts.bells,
            data: self.data.stable_bytes(),
            counters: Counters::default(),
            log: board.log(g.index() as usize),
            number: parts.bells.worker_of(g.index()),
            doorbell,
            last_asked: LastAsked::default(),
            check_at: 0,
            connections: parts.loads,
            board,
            published: Counters::default(),
            grace_ns: self.settings.grace_ns,
            end_at: 0,
        };
        let ended = self.service.work(g, &mut worker);
        let Worker { mut counters, published, .. } = worker;
        if let Err(error) = ended {
            counters.ended = error.errno() as u64;
        }
        board.publish(g, &published, &counters);
    }
}

/// One block of the server. Equal on all lanes.
struct Block<S: Service> {
    net: Net,
    settings: ServerSettings,
    service: S,
    shared: S::Shared,
    board: Board,
    loads: Connections,
    readiness: Readiness,
    bells: Bells,
    /// What the host has given: nobody writes it.
    data: Bytes<'static>,
    connections: Arena<Connection>,
    states: Arena<S::State>,
    out: Memory,
    /// For [`Service::COPIED_INPUT`].
    input: Memory,
    backlogs: Backlogs,
    roll: Roll,
    accepting: Accepting,
    counters: Counters,
    log: Log,
    now: u64,
    /// When it began, and nanoseconds from 1970 until then.
    started: u64,
    unix_at_start: u64,
    /// It has helped, and there may be more.
    helps_more: bool,
    /// Until when it is ready to help at once.
    helps_until: u64,
}

impl<S: Service> Block<S> {
    /// Block 0 binds the listener; all get it.
    fn start<G: Group>(&mut self, g: &G, addr: SockAddr, options: Options) -> Result<Listener> {
        if g.index() == 0 {
            let options = options.with_timeouts(Timeout::NEVER, RECV_TIMEOUT);
            let bound = Listener::bind_with(g, self.net, addr, options, self.settings.backlog);
            if g.is_leader() {
                match bound {
                    Ok(listener) => self.board.listens(listener.handle().raw(), listener.local_addr()),
                    Err(error) => self.board.cannot_listen(error.errno()),
                }
            }
        }
        loop {
            let found = if g.is_leader() { self.board.listener() } else { None };
            // Handles and errnos are positive and have 31 bits.
            let word = match found {
                None => 0,
                Some(Ok(handle)) => handle as u64,
                Some(Err(errno)) => errno as u64 | 1 << 32,
            };
            match g.broadcast(word) {
                // Also notices that the launch is over.
                0 => drop(poll(g, self.net, nothing(), Timeout::ms(1))?),
                word if word >> 32 != 0 => return Err(Error::from_errno(word as u32 as i32)),
                word => {
                    let handle = Handle::from_raw(word as i32).ok_or(Error::BadHandle)?;
                    return Listener::from_handle(g, self.net, handle);
                }
            }
        }
    }

    /// Serves until the host asks the server to end, or a call fails because the launch is over.
    fn run<G: Group>(&mut self, g: &G, listener: Listener) -> Result<()> {
        let mut check_at = self.now + CHECK_NS;
        let mut end_at = 0;
        loop {
            self.watch_listener(g, &listener, end_at != 0);
            let timeout = self.accepting.wait_at_most(self.now, check_at - self.now);
            let timeout = if self.helps_more { 0 } else { timeout };
            let (ready, is_rung) = self.readiness.wait(g, self.net, (self.now, timeout), S::HELPS)?;
            self.now = g.broadcast(now_ns());
            if S::HELPS && (is_rung || self.helps_more) {
                self.help(g)?;
            }
            let before = self.counters;
            if self.readiness.listener_ready() {
                self.accept(g, &listener)?;
            } else {
                self.accepting.nobody_waits();
            }
            if ready > 0 {
                self.serve(g, ready);
            }
            if self.now >= check_at {
                // A block that is never idle learns of a cancel here.
                poll(g, self.net, nothing(), Timeout::NON_BLOCKING)?;
                check_at = self.now + CHECK_NS;
                let is_stopping = g.broadcast(u64::from(g.is_leader() && self.board.is_stopping())) != 0;
                if is_stopping && end_at == 0 {
                    end_at = self.now + self.settings.grace_ns;
                }
                self.check_limits(g, is_stopping);
                if is_stopping && (self.counters.open == 0 || self.now >= end_at) {
                    self.close_all(g);
                    self.board.publish(g, &before, &self.counters);
                    return Ok(());
                }
            }
            self.board.publish(g, &before, &self.counters);
        }
    }

    /// Takes a share of what other blocks have put out.
    fn help<G: Group>(&mut self, g: &G) -> Result<()> {
        let is_more = self.service.help(g, &self.shared, &self.context())?;
        // A block of the CPU device would keep others from their cores if it looked again at once.
        self.helps_more = is_more && IS_GPU;
        self.now = g.broadcast(now_ns());
        self.helps_until = self.now + HELPS_FOR_NS;
        Ok(())
    }

    fn context(&self) -> Context {
        Context { net: self.net, now: self.now }
    }
}
