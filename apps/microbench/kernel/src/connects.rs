//! Connections that carry a byte each way, one after another.

use crate::Results;
use crate::ends::End;
use crate::ping_pong::connect;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, Stream, kernel_entry, now_ns,
};

/// Each pair opens `rounds` connections one after another: the client connects, sends a byte, waits
/// for the answer, and closes. `results`: [`Connects::words`] per block, which are its outcome, the
/// times at which its second round began and its last one ended, and then the nanoseconds of each
/// round: of a client those of its connect, of a server those from accept's return until the first
/// byte was there.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Connects {
    /// The launch's sockets.
    pub net: Net,
    /// The first address; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// [`Connects::ROOM`] bytes per block.
    pub buffer: Buffer,
    /// Connections of each pair.
    pub rounds: u64,
    /// Outcomes, and nanoseconds.
    pub results: Results,
}

impl Kernel for Connects {
    const ENTRY: &'static str = "gpunet_connects";

    fn run<G: Group>(self, g: &G) {
        let result = self.play(g);
        self.results.set_result(g, self.base(g), result);
    }
}
kernel_entry!(connects, "gpunet_connects", Connects);

impl Connects {
    /// Bytes of the buffer that each block has.
    pub const ROOM: usize = 64;

    /// Result words of a block.
    #[must_use]
    pub const fn words(rounds: u64) -> usize {
        3 + rounds as usize
    }

    fn base<G: Group>(&self, g: &G) -> usize {
        g.index() as usize * Self::words(self.rounds)
    }

    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let end = End::of(crate::Ends::Both as u32, g.index());
        let byte = self.buffer.slice(g.index() as usize * Self::ROOM, 1);
        let base = self.base(g);
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        let listener =
            if end.listens { Some(Listener::bind_with(g, self.net, addr, self.options, 64)?) } else { None };
        let mut round = 0;
        while round < self.rounds {
            if round == 1 {
                self.results.set(g, base + 1, now_ns());
            }
            let ns = match &listener {
                Some(listener) => Self::answer(g, listener.accept(g)?, byte)?,
                None => {
                    let start = now_ns();
                    let stream = connect(g, self.net, addr, self.options)?;
                    let ns = now_ns() - start;
                    Self::ask(g, stream, byte)?;
                    ns
                }
            };
            self.results.set(g, base + 3 + round as usize, ns);
            round += 1;
        }
        self.results.set(g, base + 2, now_ns());
        if let Some(listener) = listener {
            listener.close(g)?;
        }
        Ok(round)
    }

    /// The server's part of a round; returns how long the first byte took.
    fn answer<G: Group>(g: &G, mut stream: Stream, byte: Buffer) -> Result<u64, Error> {
        let accepted = now_ns();
        if stream.recv_exact(g, byte)? != 1 {
            return Err(Error::ConnectionReset);
        }
        let ns = now_ns() - accepted;
        stream.send_all(g, byte)?;
        stream.close(g)?;
        Ok(ns)
    }

    fn ask<G: Group>(g: &G, mut stream: Stream, byte: Buffer) -> Result<(), Error> {
        stream.send_all(g, byte)?;
        if stream.recv_exact(g, byte)? != 1 {
            return Err(Error::ConnectionReset);
        }
        stream.close(g)
    }
}
