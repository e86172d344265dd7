//! Many open sockets, few of them busy.

use crate::Results;
use crate::ends::End;
use crate::ping_pong::{connect, serve};
use gpunet_device::{Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, kernel_entry, now_ns};

/// The pairs together open `connections` connections, which stay silent, and leave them open: they
/// outlive the launch. `results`: one word per block, how many sockets it has opened.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Hold {
    /// The launch's sockets.
    pub net: Net,
    /// The first address; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// Connections of all pairs.
    pub connections: u64,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Hold {
    const ENTRY: &'static str = "gpunet_hold";

    fn run<G: Group>(self, g: &G) {
        let result = self.play(g);
        self.results.set_result(g, g.index() as usize, result);
    }
}
kernel_entry!(hold, "gpunet_hold", Hold);

impl Hold {
    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let end = End::of(crate::Ends::Both as u32, g.index());
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        let (pairs, pair) = (u64::from(g.count() / 2), u64::from(end.pair));
        let mine = self.connections / pairs + u64::from(pair < self.connections % pairs);
        let mut opened = 0;
        if end.listens {
            let listener = Listener::bind_with(g, self.net, addr, self.options, 64)?;
            while opened < mine {
                listener.accept(g)?;
                opened += 1;
            }
            listener.close(g)?;
        } else {
            while opened < mine {
                connect(g, self.net, addr, self.options)?;
                opened += 1;
            }
        }
        Ok(opened)
    }
}

/// Each pair opens a connection, and its client has messages of `size` bytes echoed for a time, and
/// measures. `results`: [`Busy::words`] per block, which are its round trips, and of a client the
/// nanoseconds of the first `samples` of them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Busy {
    /// The launch's sockets.
    pub net: Net,
    /// The first address; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// `size` bytes per block.
    pub buffer: Buffer,
    /// Bytes of a message.
    pub size: u64,
    /// How long a client continues.
    pub duration_ns: u64,
    /// Round trips of a client that are recorded.
    pub samples: u64,
    /// Outcomes, and nanoseconds.
    pub results: Results,
}

impl Kernel for Busy {
    const ENTRY: &'static str = "gpunet_busy";

    fn run<G: Group>(self, g: &G) {
        let base = g.index() as usize * Self::words(self.samples);
        let result = self.play(g, base);
        self.results.set_result(g, base, result);
    }
}
kernel_entry!(busy, "gpunet_busy", Busy);

impl Busy {
    /// Result words of a block.
    #[must_use]
    pub const fn words(samples: u64) -> usize {
        1 + samples as usize
    }

    fn play<G: Group>(&self, g: &G, base: usize) -> Result<u64, Error> {
        let end = End::of(crate::Ends::Both as u32, g.index());
        let buffer = self.buffer.slice(g.index() as usize * self.size as usize, self.size as usize);
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        if end.listens {
            serve(g, self.net, addr, self.options, buffer)
        } else {
            self.measure(g, addr, buffer, base)
        }
    }

    fn measure<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer, base: usize) -> Result<u64, Error> {
        let mut stream = connect(g, self.net, addr, self.options)?;
        let until = now_ns() + self.duration_ns;
        let mut round = 0;
        loop {
            let start = now_ns();
            stream.send_all(g, buffer)?;
            if stream.recv_exact(g, buffer)? != buffer.len() {
                return Err(Error::ConnectionReset);
            }
            let now = now_ns();
            if round < self.samples {
                self.results.set(g, base + 1 + round as usize, now - start);
            }
            round += 1;
            // One lane's clock decides for all lanes.
            if g.broadcast(u64::from(now > until)) != 0 {
                break;
            }
        }
        stream.close(g)?;
        Ok(round)
    }
}
