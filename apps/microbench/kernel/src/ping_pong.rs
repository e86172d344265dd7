//! Round trips between two blocks, of one device or of two.

use crate::Results;
use crate::ends::End;
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
    pub ends: u64,
    /// Outcomes and samples.
    pub results: Results,
}

impl Kernel for PingPong {
    const ENTRY: &'static str = "gpunet_ping_pong";

    fn run<G: Group>(self, g: &G) {
        let buffer = self.buffer.slice(g.index() as usize * self.size as usize, self.size as usize);
        match End::of(self.ends as u32, g.index()) {
            End { pair: 0, listens: true } => self.results.set_result(g, 0, self.serve(g, buffer)),
            End { pair: 0, listens: false } => self.results.set_result(g, 1, self.measure(g, buffer)),
            _ => {}
        }
    }
}
kernel_entry!(ping_pong, "gpunet_ping_pong", PingPong);

impl PingPong {
    fn serve<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        let listener = Listener::bind_with(g, self.net, self.addr, self.options, 8)?;
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

/// Connects, trying again while the other block has not bound yet.
pub(crate) fn connect<G: Group>(g: &G, net: Net, addr: SockAddr, options: Options) -> Result<Stream, Error> {
    let mut tries = 0;
    loop {
        match Stream::connect_with(g, net, addr, options) {
            Err(Error::ConnectionRefused) if tries < 10_000 => tries += 1,
            result => return result,
        }
    }
}
