//! Verified streams between pairs of groups.

use crate::Results;
use crate::group::cooperate;
use crate::ping_pong::connect;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Listener, Net, Options, Shutdown, SockAddr, kernel_entry, now_ns,
};

/// Even blocks listen at `addr` + their pair's number, odd ones connect; each client sends `bytes`
/// pseudo-random bytes in messages of changing size and alignment, the server sends them back, and
/// the client checks every byte. `results`: one word per block, the bytes it has verified or
/// echoed.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Pairs {
    /// The launch's sockets.
    pub net: Net,
    /// The first address; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// Twice `message` bytes per block.
    pub buffer: Buffer,
    /// Bytes to send through each pair.
    pub bytes: u64,
    /// Largest message.
    pub message: u64,
    /// A [`crate::GroupKind`] as a number.
    pub group: u32,
    /// Not 0: lanes arrive at every call at different times and by different ways.
    pub diverge: u32,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Pairs {
    const ENTRY: &'static str = "gpunet_pairs";

    fn run<G: Group>(self, g: &G) {
        cooperate!(self, g, self.group);
    }
}
kernel_entry!(pairs, "gpunet_pairs", Pairs);

/// A byte of the stream: depends on pair and position.
#[inline(always)]
pub(crate) fn byte(pair: u64, position: u64) -> u8 {
    let x = (position / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (pair + 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
    ((x ^ (x >> 29)) >> ((position % 8) * 8)) as u8
}

impl Pairs {
    fn play<G: Group>(&self, g: &G, block: u32) {
        let message = self.message as usize;
        let mine = self.buffer.slice(block as usize * 2 * message, 2 * message);
        let mut addr = self.addr;
        addr.port += (block / 2) as u16;
        let result = if block.is_multiple_of(2) {
            self.echo(g, addr, mine)
        } else {
            self.check(g, addr, mine, block as u64)
        };
        self.results.set_result(g, block as usize, result);
    }

    /// Delays lanes by different amounts, through branches that depend on the lane.
    #[inline(always)]
    fn scatter<G: Group>(&self, g: &G, round: u64) {
        if self.diverge == 0 {
            return;
        }
        let turn = (g.rank() as u64).wrapping_mul(7) ^ round;
        if turn.is_multiple_of(3) {
            let until = now_ns() + 100 + turn % 512;
            while now_ns() < until {}
        } else if turn.is_multiple_of(5) {
            let until = now_ns() + turn % 64;
            while now_ns() < until {}
        }
    }

    fn echo<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer) -> Result<u64, Error> {
        let listener = Listener::bind_with(g, self.net, addr, self.options, 8)?;
        let mut stream = listener.accept(g)?;
        let mut total = 0;
        loop {
            self.scatter(g, total);
            // Odd offsets: ring and buffer are rarely aligned alike.
            let part = buffer.skip((total % 17) as usize).first(self.message as usize);
            let n = stream.recv(g, part)?;
            if n == 0 {
                break;
            }
            self.scatter(g, total + 1);
            stream.send_all(g, part.first(n))?;
            total += n as u64;
        }
        stream.shutdown(g, Shutdown::Write);
        stream.close(g)?;
        listener.close(g)?;
        Ok(total)
    }

    fn check<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer, pair: u64) -> Result<u64, Error> {
        let mut stream = connect(g, self.net, addr, self.options)?;
        let (mut done, mut seed) = (0u64, 12345u64.wrapping_add(pair));
        while done < self.bytes {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = 1 + (seed >> 33) % self.message;
            let len = if len < self.bytes - done { len } else { self.bytes - done };
            let part = buffer.skip((seed % 31) as usize).first(len as usize);
            let mut i = g.rank() as usize;
            while i < part.len() {
                // SAFETY: inside this block's part of the buffer.
                unsafe { part.as_ptr().wrapping_add(i).write(byte(pair, done + i as u64)) };
                i += g.size() as usize;
            }
            g.sync();
            self.scatter(g, done);
            stream.send_all(g, part)?;
            self.scatter(g, done + 1);
            let back = stream.recv_exact(g, part)?;
            if back != part.len() {
                return Err(Error::ConnectionReset);
            }
            let mut wrong = 0;
            let mut i = g.rank() as usize;
            while i < part.len() {
                // SAFETY: as above.
                let got = unsafe { part.as_ptr().wrapping_add(i).read() };
                wrong += u32::from(got != byte(pair, done + i as u64));
                i += g.size() as usize;
            }
            if g.sum(wrong) != 0 {
                return Err(Error::Protocol);
            }
            done += len;
        }
        stream.shutdown(g, Shutdown::Write);
        // The end of the stream comes back too.
        if stream.recv(g, buffer)? != 0 {
            return Err(Error::Protocol);
        }
        stream.close(g)?;
        Ok(done)
    }
}
