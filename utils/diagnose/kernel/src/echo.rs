//! One connection, echoed.

use crate::Results;
use crate::wait::until;
use gpunet_device::abi::Word;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Listener, Net, Options, SockAddr, Stream, Timeout, kernel_entry, now_ns,
};

/// Block 0 listens, reports its port, and echoes one connection to its end; block 1, if the launch
/// has one, connects, sends messages and compares every byte. Result 0: the bytes echoed; result 1:
/// the bytes verified.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Echo {
    /// The launch's sockets.
    pub net: Net,
    /// Where to listen; port 0 takes any.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// One message for each block.
    pub buffer: Buffer,
    /// A word of pinned memory for the port, 0 at the start.
    pub port: *mut u64,
    /// Bytes of a message.
    pub size: u64,
    /// Messages.
    pub rounds: u64,
    /// Nanoseconds that the client waits for the listener.
    pub limit_ns: u64,
    /// The outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory that the host guarantees.
unsafe impl Send for Echo {}

impl Kernel for Echo {
    const ENTRY: &'static str = "gpunet_diagnose_echo";

    fn run<G: Group>(self, g: &G) {
        let buffer = self.buffer.slice(g.index() as usize * self.size as usize, self.size as usize);
        match g.index() {
            0 => self.results.set_result(g, 0, self.serve(g, buffer)),
            1 => self.results.set_result(g, 1, self.ask(g, buffer)),
            _ => {}
        }
    }
}
kernel_entry!(echo, "gpunet_diagnose_echo", Echo);

impl Echo {
    fn serve<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        let listener = Listener::bind_with(g, self.net, self.addr, self.options, 8)?;
        if g.is_leader() {
            // SAFETY: the launcher gave an aligned word of pinned memory.
            unsafe { Word::from_ptr(self.port) }.publish(listener.local_addr().port as u64);
        }
        let mut stream = listener.accept_timeout(g, Timeout::ns(self.limit_ns))?;
        let mut echoed = 0;
        loop {
            let len = stream.recv(g, buffer)?;
            if len == 0 {
                break;
            }
            stream.send_all(g, buffer.first(len))?;
            echoed += len as u64;
        }
        stream.close(g)?;
        listener.close(g)?;
        Ok(echoed)
    }

    fn ask<G: Group>(&self, g: &G, buffer: Buffer) -> Result<u64, Error> {
        // SAFETY: as in `serve`.
        let port = unsafe { Word::from_ptr(self.port) };
        let port = until(g, || port.observe(), 1, now_ns() + self.limit_ns)?;
        let mut addr = self.addr;
        addr.port = port as u16;
        let mut stream = Stream::connect_with(g, self.net, addr, self.options)?;
        let (mut round, mut verified) = (0, 0);
        while round < self.rounds {
            each(g, buffer, |at| byte(round, at));
            g.sync();
            stream.send_all(g, buffer)?;
            each(g, buffer, |_| 0);
            g.sync();
            if stream.recv_exact(g, buffer)? != buffer.len() {
                return Err(Error::ConnectionReset);
            }
            verified += right(g, buffer, round);
            round += 1;
        }
        stream.close(g)?;
        Ok(verified)
    }
}

/// Fills the buffer, all lanes together.
#[inline(always)]
fn each<G: Group>(g: &G, buffer: Buffer, byte: impl Fn(usize) -> u8) {
    let mut at = g.rank() as usize;
    while at < buffer.len() {
        // SAFETY: inside this block's buffer.
        unsafe { buffer.as_ptr().wrapping_add(at).write_volatile(byte(at)) };
        at += g.size() as usize;
    }
}

/// Counts the bytes that are as they were sent.
#[inline(always)]
fn right<G: Group>(g: &G, buffer: Buffer, round: u64) -> u64 {
    let (mut at, mut right) = (g.rank() as usize, 0);
    while at < buffer.len() {
        // SAFETY: inside this block's buffer.
        let found = unsafe { buffer.as_ptr().wrapping_add(at).read_volatile() };
        right += u32::from(found == byte(round, at));
        at += g.size() as usize;
    }
    g.sum(right) as u64
}

/// Never 0, which is what the buffer is cleared with.
#[inline(always)]
const fn byte(round: u64, at: usize) -> u8 {
    ((round as usize * 31 + at * 7 + (at >> 8)) % 255) as u8 + 1
}
