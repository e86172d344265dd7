//! One block against one peer: as fast as it goes, or an echo.

use crate::Results;
use crate::ping_pong::connect;
use gpunet_device::{Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, kernel_entry, now_ns};

/// Block 2k (`send` 1) connects to `addr` and sends `bytes`; with `send` 0 it receives until the
/// end. With `both` 1, odd blocks listen there and do the opposite. `results`: per block the bytes
/// moved and the nanoseconds they took.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    /// The launch's sockets.
    pub net: Net,
    /// The peer; with `both`, pair k uses port + k.
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
    /// 1: odd blocks are the other end.
    pub both: u32,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Flow {
    const ENTRY: &'static str = "gpunet_flow";

    fn run<G: Group>(self, g: &G) {
        let block = g.index();
        let buffer = self.buffer.slice(block as usize * self.message as usize, self.message as usize);
        let mut addr = self.addr;
        let listens = self.both == 1 && block % 2 == 1;
        if self.both == 1 {
            addr.port += (block / 2) as u16;
        }
        let start = now_ns();
        let result = if listens { self.listen(g, addr, buffer) } else { self.connect(g, addr, buffer) };
        let (bytes, began) = match result {
            Ok((bytes, began)) => (Ok(bytes), began),
            Err(error) => (Err(error), start),
        };
        self.results.set_result(g, 2 * block as usize, bytes);
        self.results.set(g, 2 * block as usize + 1, now_ns() - began);
    }
}
kernel_entry!(flow, "gpunet_flow", Flow);

impl Flow {
    fn connect<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer) -> Result<(u64, u64), Error> {
        let stream = connect(g, self.net, addr, self.options)?;
        self.pump(g, stream, buffer, self.send == 1)
    }

    fn listen<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer) -> Result<(u64, u64), Error> {
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
    ) -> Result<(u64, u64), Error> {
        let began = now_ns();
        let mut moved = 0;
        if send {
            while moved < self.bytes {
                stream.send_all(g, buffer)?;
                moved += buffer.len() as u64;
            }
        } else {
            loop {
                let n = stream.recv(g, buffer)?;
                if n == 0 {
                    break;
                }
                moved += n as u64;
            }
        }
        stream.close(g)?;
        Ok((moved, began))
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
