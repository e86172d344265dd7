//! Messages that the host has prepared, beside messages that a kernel sends by the socket's handle.

use crate::Results;
use gpunet_device::copy::copy_into_ring;
use gpunet_device::trigger::{GateExt, LockedDirection, PreparedExt, TriggerExt};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Net, Prepared, RecvHalf, SendHalf, Timeout, kernel_entry, now_ns,
};

/// Block 0 sends messages over one socket, block 1 receives them from the other one. If `answers`,
/// block 1 sends each back, and block 0 waits for it. `results`: words 0 and 1 the outcomes of the
/// blocks. Then, if `answers`, one word per message: the nanoseconds of its round trip. Else one
/// word per `batch` messages: the nanoseconds that block 1 took for them; and as many words again,
/// for block 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Triggered {
    /// The launch's sockets.
    pub net: Net,
    /// The first message, in a sending direction that the host has taken; all others follow it.
    /// Used if `prepared`.
    pub message: Prepared,
    /// Bytes of that direction's ring.
    pub ring: u64,
    /// One message per block.
    pub buffer: Buffer,
    /// Bytes per message.
    pub size: u64,
    /// Messages.
    pub count: u64,
    /// Messages between two stamps; divides `count`.
    pub batch: u64,
    /// [`Handle::raw`] of the socket of block 0.
    pub near: i32,
    /// [`Handle::raw`] of the socket of block 1.
    pub far: i32,
    /// How block 0 sends: [`Triggered::BY_HANDLE`], [`Triggered::PREPARED`] or
    /// [`Triggered::LOCKED`].
    pub prepared: u32,
    /// 1: each message is sent back.
    pub answers: u32,
    /// Outcomes and samples.
    pub results: Results,
}

impl Kernel for Triggered {
    const ENTRY: &'static str = "gpunet_triggered";

    fn run<G: Group>(self, g: &G) {
        let block = g.index() as usize;
        let buffer = self.buffer.slice(block * self.size as usize, self.size as usize);
        match block {
            0 => self.results.set_result(g, 0, self.send(g, buffer)),
            1 => self.results.set_result(g, 1, self.receive(g, buffer)),
            _ => {}
        }
    }
}
kernel_entry!(triggered, "gpunet_triggered", Triggered);

impl Triggered {
    /// By the socket's handle.
    pub const BY_HANDLE: u32 = 0;
    /// It fills prepared messages and releases them, each found by its value.
    pub const PREPARED: u32 = 1;
    /// The same with the direction locked.
    pub const LOCKED: u32 = 2;

    fn send<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        let handle = Handle::from_raw(self.near).ok_or(Error::BadHandle)?;
        if self.prepared == Self::PREPARED {
            return self.each(g, handle, buffer, |i| self.release(g, i, buffer));
        }
        if self.prepared == Self::LOCKED {
            let mut direction = LockedDirection::of(g, self.net, self.message)?;
            let sent = self.each(g, handle, buffer, |i| self.release_locked(g, &mut direction, i, buffer));
            direction.unlock(g);
            return sent;
        }
        let mut out = SendHalf::from_handle(g, self.net, handle)?;
        self.each(g, handle, buffer, |_| out.send_all(g, buffer))
    }

    /// Copies a message into its place and releases its trigger.
    #[inline(always)]
    fn release<G: Group>(&self, g: &G, i: u64, buffer: Buffer) -> Result<(), Error> {
        let message = self.message.nth(i).ok_or(Error::NoBuffers)?;
        message.room(self.ring).wait(g, self.net, Timeout::NEVER)?;
        let span = message.span(g, self.net)?;
        // SAFETY: the ring has room for the message, which is this block's; the buffer is as long.
        unsafe { copy_into_ring(g, span, buffer.as_ptr()) };
        message.trigger().release(g, self.net)
    }

    /// The same in a direction that the block has locked.
    #[inline(always)]
    fn release_locked<G: Group>(
        &self,
        g: &G,
        direction: &mut LockedDirection,
        i: u64,
        buffer: Buffer,
    ) -> Result<(), Error> {
        let message = self.message.nth(i).ok_or(Error::NoBuffers)?;
        direction.wait(g, message.room(self.ring), Timeout::NEVER)?;
        let span = direction.span(message)?;
        // SAFETY: as in `release`.
        unsafe { copy_into_ring(g, span, buffer.as_ptr()) };
        direction.release(g, message.trigger())
    }

    /// Sends all messages by `one`, and waits for the answers.
    #[inline(always)]
    fn each<G: Group>(
        &self,
        g: &G,
        handle: Handle,
        buffer: Buffer,
        mut one: impl FnMut(u64) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        if self.answers != 0 {
            let mut back = RecvHalf::from_handle(g, self.net, handle)?;
            let mut i = 0;
            while i < self.count {
                let start = now_ns();
                one(i)?;
                whole(back.recv_exact(g, buffer)?, buffer)?;
                self.results.set(g, 2 + i as usize, now_ns() - start);
                i += 1;
            }
            return Ok(i);
        }
        let (mut i, mut start) = (0, now_ns());
        while i < self.count {
            one(i)?;
            i += 1;
            if i.is_multiple_of(self.batch) {
                let now = now_ns();
                let at = 2 + (self.count / self.batch + i / self.batch - 1) as usize;
                self.results.set(g, at, now - start);
                start = now;
            }
        }
        Ok(i)
    }

    fn receive<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        let handle = Handle::from_raw(self.far).ok_or(Error::BadHandle)?;
        let mut from = RecvHalf::from_handle(g, self.net, handle)?;
        if self.answers != 0 {
            let mut back = SendHalf::from_handle(g, self.net, handle)?;
            let mut i = 0;
            while i < self.count {
                whole(from.recv_exact(g, buffer)?, buffer)?;
                back.send_all(g, buffer)?;
                i += 1;
            }
            return Ok(i);
        }
        let (mut i, mut start) = (0, now_ns());
        while i < self.count {
            whole(from.recv_exact(g, buffer)?, buffer)?;
            i += 1;
            if i.is_multiple_of(self.batch) {
                let now = now_ns();
                self.results.set(g, 1 + (i / self.batch) as usize, now - start);
                start = now;
            }
        }
        Ok(i)
    }
}

#[inline(always)]
fn whole(received: usize, buffer: Buffer) -> Result<(), Error> {
    if received == buffer.len() { Ok(()) } else { Err(Error::ConnectionReset) }
}
