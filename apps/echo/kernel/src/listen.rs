//! Binding the listener, in a launch of its own.

use crate::record::Listening;
use gpunet_device::{Buffer, Group, Kernel, Listener, Net, Options, SockAddr};

/// Binds a listener and leaves it open for later launches (the host finishes this one with `Keep`).
///
/// So the host knows the port before it starts anything that runs for long.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct EchoListen {
    /// The launch's sockets.
    pub net: Net,
    /// Where the [`Listening`] record goes.
    pub record: Buffer,
    /// Where to listen.
    pub addr: SockAddr,
    /// Options; accepted streams inherit them.
    pub options: Options,
    /// Connections that may wait.
    pub backlog: u32,
    /// 0.
    pub reserved: u32,
}

impl Kernel for EchoListen {
    const ENTRY: &'static str = "gpunet_echo_listen";

    fn run<G: Group>(self, g: &G) {
        if g.index() != 0 {
            return;
        }
        let bound = Listener::bind_with(g, self.net, self.addr, self.options, self.backlog);
        let record = match bound {
            Ok(listener) => {
                Listening { errno: 0, handle: listener.handle().raw(), addr: listener.local_addr() }
            }
            Err(error) => Listening { errno: error.errno(), handle: 0, addr: SockAddr::NONE },
        };
        if g.is_leader() {
            record.store(self.record);
        }
    }
}
