//! One block echoes for outside programs.

use crate::Results;
use gpunet_device::{Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, kernel_entry};

/// Listens at `addr` and echoes messages of `size` bytes for one outside program. `results` word 0:
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
