//! One block against one peer: as fast as it goes, or an echo.

use crate::Results;
use crate::ends::End;
use crate::ping_pong::connect;
use gpunet_device::{Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, kernel_entry, now_ns};

/// The client of a pair connects to `addr` and sends `bytes` (`send` 1) or receives until the end
/// (`send` 0); the server listens there and does the opposite. `results`: four words per block, the
/// bytes moved, the times at which its stream was open and closed, in nanoseconds of the device, and how
/// many calls moved them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    /// The launch's sockets.
    pub net: Net,
    /// The peer; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// `message` bytes per block.
    pub buffer: Buffer,
    /// Bytes per call.
    pub message: u64,
    /// Bytes in all.
    pub bytes: u64,
    /// 1: the connecting block sends; 0: it receives.
    pub send: u32,
    /// An [`crate::Ends`] as a number.
    pub ends: u32,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Flow {
    const ENTRY: &'static str = "gpunet_flow";

    fn run<G: Group>(self, g: &G) {
        let block = g.index() as usize;
        let buffer = self.buffer.slice(block * self.message as usize, self.message as usize);
        let end = End::of(self.ends, g.index());
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        let result = if end.listens { self.listen(g, addr, buffer) } else { self.connect(g, addr, buffer) };
        let (bytes, about) = match result {
            Ok((bytes, about)) => (Ok(bytes), about),
            Err(error) => (Err(error), [0; 3]),
        };
        self.results.set_result(g, 4 * block, bytes);
        for (word, value) in about.into_iter().enumerate() {
            self.results.set(g, 4 * block + 1 + word, value);
        }
    }
}
kernel_entry!(flow, "gpunet_flow", Flow);

/// Bytes; when the first and the last of them were on their way, and the calls that moved them.
type Moved = (u64, [u64; 3]);

impl Flow {
    fn connect<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer) -> Result<Moved, Error> {
        let stream = connect(g, self.net, addr, self.options)?;
        self.pump(g, stream, buffer, self.send == 1)
    }

    fn listen<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer) -> Result<Moved, Error> {
        let listener = Listener::bind_with(g, self.net, addr, self.options, 8)?;
        let stream = listener.accept(g)?;
        let moved = self.pump(g, stream, buffer, self.send == 0);
        listener.close(g)?;
        moved
    }

    fn pump<G: Group>(
        &self,
        g: &G,
        mut stream: gpunet_device::Stream,
        buffer: Buffer,
        send: bool,
    ) -> Result<Moved, Error> {
        let began = now_ns();
        let (mut moved, mut calls) = (0, 0);
        if send {
            while moved < self.bytes {
                stream.send_all(g, buffer)?;
                moved += buffer.len() as u64;
                calls += 1;
            }
        } else {
            loop {
                let n = stream.recv(g, buffer)?;
                if n == 0 {
                    break;
                }
                moved += n as u64;
                calls += 1;
            }
        }
        let ended = now_ns();
        stream.close(g)?;
        Ok((moved, [began, ended, calls]))
    }
}

/// Listens at `addr` and echoes messages of `size` bytes for one peer outside. `results` word 0:
/// the port, as soon as it is known is told through the listener's address; word 1: messages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Serve {
    /// The launch's sockets.
    pub net: Net,
    /// Where to listen.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// The message.
    pub buffer: Buffer,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Serve {
    const ENTRY: &'static str = "gpunet_serve";

    fn run<G: Group>(self, g: &G) {
        self.results.set_result(g, 1, self.serve(g));
    }
}
kernel_entry!(serve, "gpunet_serve", Serve);

impl Serve {
    fn serve<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let listener = Listener::bind_with(g, self.net, self.addr, self.options, 8)?;
        let mut stream = listener.accept(g)?;
        let mut messages = 0;
        loop {
            let n = stream.recv(g, self.buffer)?;
            if n == 0 {
                break;
            }
            stream.send_all(g, self.buffer.first(n))?;
            messages += 1;
        }
        stream.close(g)?;
        listener.close(g)?;
        Ok(messages)
    }
}
