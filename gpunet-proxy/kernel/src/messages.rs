//! Messages whose place is found when they are sent or received.

use crate::Record;
use gpunet_abi::{Direction, Error, Handle, Result};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::LockedDirection;
use gpunet_device::{Buffer, Group, Kernel, Net, Timeout};

/// Sends a buffer as the next bytes of a taken direction.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueSend {
    /// The sockets of the host program.
    pub net: Net,
    /// The socket's handle.
    pub socket: i32,
    /// 0.
    pub reserved: u32,
    /// Bytes in the ring.
    pub capacity: u64,
    /// What is sent.
    pub from: Buffer,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueSend {
    const ENTRY: &'static str = "gpunet_queue_send";

    fn run<G: Group>(self, g: &G) {
        let mut sent = 0;
        let result = lock(g, self.net, self.socket, Direction::Send).and_then(|mut direction| {
            let result = self.send(g, &mut direction, &mut sent);
            direction.unlock(g);
            result
        });
        self.record.tell(g, result, sent as u64);
    }
}

impl QueueSend {
    #[allow(unsafe_code)]
    fn send<G: Group>(&self, g: &G, direction: &mut LockedDirection, sent: &mut usize) -> Result<()> {
        while *sent < self.from.len() {
            let from = self.from.skip(*sent).first(piece(self.capacity));
            let message = direction.next(from.len() as u64)?;
            direction.wait(g, message.room(self.capacity), Timeout::NEVER)?;
            let span = direction.span(message)?;
            // SAFETY: the ring has room for the message, and a stream's operations are alone in a
            // direction; the buffer is readable by its contract.
            unsafe { copy_into_ring(g, span, from.as_ptr()) };
            direction.release(g, message.trigger())?;
            *sent += from.len();
        }
        Ok(())
    }
}

/// Receives the next bytes of a taken direction, as many as the buffer has.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct QueueRecv {
    /// The sockets of the host program.
    pub net: Net,
    /// The socket's handle.
    pub socket: i32,
    /// 0.
    pub reserved: u32,
    /// Bytes in the ring.
    pub capacity: u64,
    /// Where they go.
    pub to: Buffer,
    /// How it ended.
    pub record: Record,
}

impl Kernel for QueueRecv {
    const ENTRY: &'static str = "gpunet_queue_recv";

    fn run<G: Group>(self, g: &G) {
        let mut received = 0;
        let result = lock(g, self.net, self.socket, Direction::Recv).and_then(|mut direction| {
            let result = self.recv(g, &mut direction, &mut received);
            direction.unlock(g);
            result
        });
        self.record.tell(g, result, received as u64);
    }
}

impl QueueRecv {
    #[allow(unsafe_code)]
    fn recv<G: Group>(&self, g: &G, direction: &mut LockedDirection, received: &mut usize) -> Result<()> {
        while *received < self.to.len() {
            let to = self.to.skip(*received).first(piece(self.capacity));
            let message = direction.next(to.len() as u64)?;
            let arrived = direction.wait(g, message.arrived(), Timeout::NEVER);
            // Of a message that ends early, what came.
            let have = direction.seen().saturating_sub(direction.released()).min(message.len);
            let message = direction.next(have)?;
            let span = direction.span(message)?;
            // SAFETY: the bytes have landed and are not given back yet; the buffer is writable by
            // its contract.
            unsafe { copy_out_of_ring(g, to.as_ptr(), span) };
            *received += have as usize;
            let released = direction.release(g, message.trigger());
            arrived.and(released)?;
        }
        Ok(())
    }
}

/// Locks a direction of the socket that a handle names.
fn lock<G: Group>(g: &G, net: Net, socket: i32, direction: Direction) -> Result<LockedDirection> {
    LockedDirection::lock(g, net, Handle::from_raw(socket).ok_or(Error::BadHandle)?, direction)
}

/// The most bytes that are copied at a time: half a ring, so that the peer takes one half while the
/// other is copied.
const fn piece(capacity: u64) -> usize {
    let half = (capacity / 2) as usize;
    if half == 0 { 1 } else { half }
}
