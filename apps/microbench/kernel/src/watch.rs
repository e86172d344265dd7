//! One block watches many connections with a poll group.

use crate::Results;
use gpunet_device::poll::POLLIN;
use gpunet_device::poll_group::{Event, Events};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, PollGroup, SockAddr, Stream, Timeout,
    kernel_entry,
};

/// Bytes of [`Watch::buffer`] for events.
const EVENTS: usize = 64 * size_of::<Event>();
/// Bytes of it for a message.
const MESSAGE: usize = 1024;

/// Listens at `addr`, accepts everybody, and echoes what comes, until `sockets` connections have
/// ended. `results` word 0: the messages.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Watch {
    /// The launch's sockets.
    pub net: Net,
    /// Where to listen.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// [`Watch::BYTES`] bytes.
    pub buffer: Buffer,
    /// How many connections there will be.
    pub sockets: u64,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Watch {
    const ENTRY: &'static str = "gpunet_watch";

    fn run<G: Group>(self, g: &G) {
        if g.index() == 0 {
            self.results.set_result(g, 0, self.serve(g));
        }
    }
}
kernel_entry!(watch, "gpunet_watch", Watch);

impl Watch {
    /// Bytes of the buffer.
    pub const BYTES: usize = EVENTS + MESSAGE;

    fn serve<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let listener = Listener::bind_with(g, self.net, self.addr, self.options, 1024)?;
        let group = PollGroup::create(g, self.net, self.sockets as u32 + 1)?;
        group.add(g, listener.handle(), POLLIN, 0)?;
        let mut events = Events::new(self.buffer.first(EVENTS));
        let (mut messages, mut ended) = (0, 0);
        while ended < self.sockets {
            group.wait(g, &mut events, Timeout::NEVER)?;
            let mut index = 0;
            while index < events.len() {
                let event = events.get(index);
                if event.token == 0 {
                    self.accept(g, &listener, group)?;
                } else if self.echo(g, event.handle)? {
                    messages += 1;
                } else {
                    ended += 1;
                }
                index += 1;
            }
        }
        group.close(g)?;
        listener.close(g)?;
        Ok(messages)
    }

    /// Accepts a connection, if it still waits.
    fn accept<G: Group>(&self, g: &G, listener: &Listener, group: PollGroup) -> Result<(), Error> {
        match listener.try_accept(g) {
            Ok(stream) => group.add(g, stream.handle(), POLLIN, 1),
            Err(Error::WouldBlock) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Echoes what has come; returns false, and closes the connection, at its end.
    fn echo<G: Group>(&self, g: &G, handle: i32) -> Result<bool, Error> {
        let handle = Handle::from_raw(handle).ok_or(Error::BadHandle)?;
        let mut stream = Stream::from_handle(g, self.net, handle)?;
        let buffer = self.buffer.slice(EVENTS, MESSAGE);
        match stream.try_recv(g, buffer) {
            Ok(0) | Err(Error::ConnectionReset) => {
                stream.close(g)?;
                Ok(false)
            }
            Ok(n) => {
                stream.send_all(g, buffer.first(n))?;
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }
}
