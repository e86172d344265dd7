//! Where the time of one hand-off goes: time stamps at each step.

use crate::Results;
use crate::ping_pong::connect;
use gpunet_device::abi::Word;
use gpunet_device::{Buffer, Error, Group, Kernel, Net, Options, SockAddr, kernel_entry, now_ns};

/// One block exchanges messages with an echo outside. `results`: word 0 the outcome, then three
/// words per round: the time before the send, after it, and when the answer was there; in
/// nanoseconds of the device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Handoff {
    /// The launch's sockets.
    pub net: Net,
    /// The echo.
    pub addr: SockAddr,
    /// Options of the socket.
    pub options: Options,
    /// The message.
    pub buffer: Buffer,
    /// Round trips.
    pub rounds: u64,
    /// Between two of them, nanoseconds.
    pub pause_ns: u64,
    /// Outcome and stamps.
    pub results: Results,
}

impl Kernel for Handoff {
    const ENTRY: &'static str = "gpunet_handoff";

    fn run<G: Group>(self, g: &G) {
        if g.index() == 0 {
            self.results.set_result(g, 0, self.play(g));
        }
    }
}
kernel_entry!(handoff, "gpunet_handoff", Handoff);

impl Handoff {
    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let mut stream = connect(g, self.net, self.addr, self.options)?;
        let mut round = 0;
        while round < self.rounds {
            crate::ping_pong::pause(self.pause_ns);
            g.sync();
            let begins = now_ns();
            stream.send_all(g, self.buffer)?;
            let sent = now_ns();
            if stream.recv_exact(g, self.buffer)? != self.buffer.len() {
                return Err(Error::ConnectionReset);
            }
            let at = 1 + 3 * round as usize;
            for (word, stamp) in [begins, sent, now_ns()].into_iter().enumerate() {
                self.results.set(g, at + word, stamp);
            }
            round += 1;
        }
        stream.close(g)?;
        Ok(round)
    }
}

/// Reports the device's clock: waits for `pong` = round, and publishes the time in `ping`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Clock {
    /// The word the device writes.
    pub ping: *mut u64,
    /// The word the CPU writes.
    pub pong: *mut u64,
    /// How often it is asked.
    pub rounds: u64,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Clock {}

impl Kernel for Clock {
    const ENTRY: &'static str = "gpunet_clock";

    fn run<G: Group>(self, g: &G) {
        if g.index() > 0 || !g.is_leader() {
            return;
        }
        // SAFETY: the launcher gave two aligned words of pinned memory.
        let (ping, pong) = unsafe { (Word::from_ptr(self.ping), Word::from_ptr(self.pong)) };
        let mut round = 1;
        while round <= self.rounds {
            while pong.observe() < round {}
            ping.publish(now_ns());
            round += 1;
        }
    }
}
kernel_entry!(clock, "gpunet_clock", Clock);
