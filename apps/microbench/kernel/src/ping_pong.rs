//! Round trips between two blocks, of one device or of two.

use crate::Results;
use crate::ends::End;
use crate::group::cooperate;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, Stream, kernel_entry, now_ns,
};

/// The server of a pair listens and echoes, the client connects and measures. There is one pair.
/// `results`: word 0 the server's outcome, word 1 the client's, then one word per round: its
/// nanoseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PingPong {
    /// The launch's sockets.
    pub net: Net,
    /// Where to meet.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// One message per block.
    pub buffer: Buffer,
    /// Bytes per message.
    pub size: u64,
    /// Round trips, the first tenth of them to warm up.
    pub rounds: u64,
    /// An [`crate::Ends`] as a number.
    pub ends: u32,
    /// A [`crate::GroupKind`] as a number.
    pub group: u32,
    /// Outcomes and samples.
    pub results: Results,
}

impl Kernel for PingPong {
    const ENTRY: &'static str = "gpunet_ping_pong";

    fn run<G: Group>(self, g: &G) {
        cooperate!(self, g, self.group);
    }
}
kernel_entry!(ping_pong, "gpunet_ping_pong", PingPong);

impl PingPong {
    fn play<G: Group>(&self, g: &G, block: u32) {
        let buffer = self.buffer.slice(block as usize * self.size as usize, self.size as usize);
        match End::of(self.ends, block) {
            End { pair: 0, listens: true } => {
                self.results.set_result(g, 0, serve(g, self.net, self.addr, self.options, buffer))
            }
            End { pair: 0, listens: false } => self.results.set_result(g, 1, self.measure(g, buffer)),
            _ => {}
        }
    }

    fn measure<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        let mut stream = connect(g, self.net, self.addr, self.options)?;
        let mut round = 0;
        while round < self.rounds {
            let start = now_ns();
            stream.send_all(g, buffer)?;
            if stream.recv_exact(g, buffer)? != buffer.len() {
                return Err(Error::ConnectionReset);
            }
            self.results.set(g, 2 + round as usize, now_ns() - start);
            round += 1;
        }
        stream.close(g)?;
        Ok(round)
    }
}

/// How long the other end may take to bind.
const UNTIL_BOUND_NS: u64 = 10_000_000_000;
/// The pause between two attempts.
const PAUSE_NS: u64 = 200_000;

/// Connects, retrying while the other end has not bound yet.
pub(crate) fn connect<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<Stream, Error> {
    let limit = now_ns() + UNTIL_BOUND_NS;
    loop {
        match Stream::connect_with(g, net, addr, options) {
            Err(Error::ConnectionRefused) => {
                // One lane's clock decides for all.
                let late = g.broadcast(u64::from(now_ns() > limit));
                if late != 0 {
                    return Err(Error::ConnectionRefused);
                }
                pause(PAUSE_NS);
            }
            result => return result,
        }
    }
}

/// Lets time go by.
pub(crate) fn pause(ns: u64) {
    let until = now_ns() + ns;
    while now_ns() < until {
        core::hint::spin_loop();
    }
}

/// Echoes messages as long as `buffer` for one client, until it ends its stream; returns how many.
#[inline(always)]
pub(crate) fn serve<G: Group>(
    g: &G,
    net: Net,
    addr: SockAddr,
    options: Options,
    buffer: Buffer,
) -> Result<u64, Error> {
    let listener = Listener::bind_with(g, net, addr, options, 8)?;
    let mut stream = listener.accept(g)?;
    let mut served = 0;
    while stream.recv_exact(g, buffer)? == buffer.len() {
        stream.send_all(g, buffer)?;
        served += 1;
    }
    stream.close(g)?;
    listener.close(g)?;
    Ok(served)
}
