//! Verified streams in both directions at the same time, opened and closed again and again.

use crate::Results;
use crate::ends::End;
use crate::ping_pong::connect;
use gpunet_device::{
    Buffer, Error, Group, Kernel, Listener, Net, Options, Shutdown, SockAddr, Stream, Timeout, kernel_entry,
};

/// Both ends of each pair send `bytes` bytes in each of `rounds` connections, and check what they
/// receive; a byte depends on pair, round, direction and position. Messages have changing sizes and
/// alignments. `results`: three words per block, the bytes it has verified or why not, and of a
/// received piece that was wrong how many bytes were, and its first position.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Duplex {
    /// The launch's sockets.
    pub net: Net,
    /// The first address; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// Twice [`Duplex::room`] bytes per block.
    pub buffer: Buffer,
    /// Bytes each way through each connection.
    pub bytes: u64,
    /// Largest message.
    pub message: u64,
    /// Connections of each pair, one after another.
    pub rounds: u64,
    /// An [`crate::Ends`] as a number.
    pub ends: u64,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Duplex {
    const ENTRY: &'static str = "gpunet_duplex";

    fn run<G: Group>(self, g: &G) {
        let result = self.play(g);
        self.results.set_result(g, 3 * g.index() as usize, result);
    }
}
kernel_entry!(duplex, "gpunet_duplex", Duplex);

/// One step of a generator of pseudo-random numbers.
#[inline(always)]
fn step(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *seed >> 33
}

/// A byte of the stream with this `key`.
#[inline(always)]
fn byte(key: u64, position: u64) -> u8 {
    let x = (position / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key;
    let x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x ^ (x >> 32)) >> ((position % 8) * 8)) as u8
}

impl Duplex {
    /// Buffer bytes for messages of at most `message` bytes, at any alignment.
    #[must_use]
    pub const fn room(message: u64) -> u64 {
        (message + 32).next_multiple_of(64)
    }

    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let end = End::of(self.ends as u32, g.index());
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        let listener =
            if end.listens { Some(Listener::bind_with(g, self.net, addr, self.options, 8)?) } else { None };
        let (mut round, mut verified) = (0, 0);
        while round < self.rounds {
            let stream = match &listener {
                Some(listener) => listener.accept(g)?,
                None => connect(g, self.net, addr, self.options)?,
            };
            verified += self.exchange(g, stream, end, round)?;
            round += 1;
        }
        if let Some(listener) = listener {
            listener.close(g)?;
        }
        Ok(verified)
    }

    fn exchange<G: Group>(&self, g: &G, mut stream: Stream, end: End, round: u64) -> Result<u64, Error> {
        let room = Self::room(self.message) as usize;
        let mine = self.buffer.slice(g.index() as usize * 2 * room, 2 * room);
        let (out, back) = (mine.first(room), mine.skip(room));
        let key = (u64::from(end.pair) << 32 | round << 1).wrapping_mul(0xd1b5_4a32_d192_ed03);
        let (to, from) = if end.listens { (key ^ 0x5555_5555, key) } else { (key, key ^ 0x5555_5555) };
        let mut seed = to;
        let (mut sent, mut got) = (0u64, 0u64);
        // What of the current message is not sent yet.
        let mut part = out.first(0);
        while sent < self.bytes || got < self.bytes {
            let mut moved = false;
            if sent < self.bytes {
                if part.is_empty() {
                    part = self.next_message(g, out, &mut seed, to, sent);
                }
                match stream.try_send(g, part) {
                    Ok(n) => {
                        part = part.skip(n);
                        sent += n as u64;
                        moved = true;
                    }
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
            }
            if got < self.bytes {
                let into = self.place(back, &mut seed, self.bytes - got);
                let received = if moved {
                    stream.try_recv(g, into)
                } else {
                    // Neither way goes on: what comes next is not hurried by a millisecond's sleep.
                    stream.receiver().recv_timeout(g, into, Timeout::ms(1))
                };
                match received {
                    Ok(0) => return Err(Error::ConnectionReset),
                    Ok(n) => {
                        self.check(g, into.first(n), from, got)?;
                        got += n as u64;
                    }
                    Err(Error::WouldBlock | Error::TimedOut) => {}
                    Err(error) => return Err(error),
                }
            } else if !moved {
                let n = stream.send(g, part)?;
                part = part.skip(n);
                sent += n as u64;
            }
        }
        stream.shutdown(g, Shutdown::Write);
        if stream.recv(g, back)? != 0 {
            return Err(Error::Protocol);
        }
        stream.close(g)?;
        Ok(got)
    }

    /// A part of `room` with a length up to the largest message and `rest`, and some alignment.
    /// Small lengths are as likely as large ones.
    #[inline(always)]
    fn place(&self, room: Buffer, seed: &mut u64, rest: u64) -> Buffer {
        let largest = if self.message < rest { self.message } else { rest };
        let bits = 64 - largest.leading_zeros() as u64;
        let limit = 1u64 << (step(seed) % (bits + 1));
        let limit = if limit < largest { limit } else { largest };
        let len = 1 + step(seed) % limit;
        room.skip((step(seed) % 32) as usize).first(len as usize)
    }

    #[inline(always)]
    fn next_message<G: Group>(&self, g: &G, room: Buffer, seed: &mut u64, key: u64, at: u64) -> Buffer {
        let part = self.place(room, seed, self.bytes - at);
        // Lanes may still read what was here before.
        g.sync();
        let mut i = g.rank() as usize;
        while i < part.len() {
            // SAFETY: inside this block's part of the buffer.
            unsafe { part.as_ptr().wrapping_add(i).write(byte(key, at + i as u64)) };
            i += g.size() as usize;
        }
        part
    }

    #[inline(always)]
    fn check<G: Group>(&self, g: &G, part: Buffer, key: u64, at: u64) -> Result<(), Error> {
        let mut wrong = 0;
        let mut i = g.rank() as usize;
        while i < part.len() {
            // SAFETY: inside this block's part of the buffer.
            let found = unsafe { part.as_ptr().wrapping_add(i).read() };
            wrong += u32::from(found != byte(key, at + i as u64));
            i += g.size() as usize;
        }
        let wrong = g.sum(wrong);
        if wrong == 0 {
            return Ok(());
        }
        self.results.set(g, 3 * g.index() as usize + 1, u64::from(wrong));
        self.results.set(g, 3 * g.index() as usize + 2, at);
        Err(Error::Protocol)
    }
}
