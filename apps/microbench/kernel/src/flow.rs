//! Pairs of blocks at full speed.

use crate::Results;
use crate::ends::End;
use crate::group::cooperate;
use crate::ping_pong::connect;
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, RingSpan, SockAddr, Stream, kernel_entry,
    now_ns,
};

/// Streams that a block keeps open at a time, at most.
pub const MOST_CONNECTIONS: usize = 64;

/// One end of each pair sends `bytes`, the other receives until the end; with several connections a
/// pair uses them in turn, one message each. `results`: four words per block, the bytes moved, the
/// times at which its streams were open and closed, in nanoseconds of the device, and how many
/// calls moved them.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flow {
    /// The launch's sockets.
    pub net: Net,
    /// The peer; pair k uses port + k.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// `message` bytes per block.
    pub buffer: Buffer,
    /// Bytes per call.
    pub message: u64,
    /// Bytes of each pair, a multiple of `message`.
    pub bytes: u64,
    /// Streams of each pair, 1 to [`MOST_CONNECTIONS`].
    pub connections: u32,
    /// 1: connecting blocks send; 0: they receive; 2: those of even pairs send.
    pub way: u32,
    /// An [`crate::Ends`] as a number.
    pub ends: u32,
    /// A [`crate::GroupKind`] as a number.
    pub group: u32,
    /// 1: messages, multiples of 8 bytes, are made and read in the rings, which only two such
    /// blocks do. 2: messages are sent as ones that more follow.
    pub how: u64,
    /// Outcomes.
    pub results: Results,
}

impl Kernel for Flow {
    const ENTRY: &'static str = "gpunet_flow";

    fn run<G: Group>(self, g: &G) {
        cooperate!(self, g, self.group);
    }
}
kernel_entry!(flow, "gpunet_flow", Flow);

/// Bytes; when the first and the last of them were in flight, and the calls that moved them.
type Moved = (u64, [u64; 3]);

impl Flow {
    fn play<G: Group>(&self, g: &G, index: u32) {
        let block = index as usize;
        let buffer = self.buffer.slice(block * self.message as usize, self.message as usize);
        let end = End::of(self.ends, index);
        let mut addr = self.addr;
        addr.port += end.pair as u16;
        let clients_send = match self.way {
            0 => false,
            1 => true,
            _ => end.pair.is_multiple_of(2),
        };
        let sends = clients_send != end.listens;
        let result = match (self.connections > 1, end.listens) {
            (false, true) => self.listen(g, addr, buffer, sends),
            (false, false) => self.connect(g, addr, buffer, sends),
            (true, listens) => self.several(g, addr, buffer, sends, listens),
        };
        let (bytes, about) = match result {
            Ok((bytes, about)) => (Ok(bytes), about),
            Err(error) => (Err(error), [0; 3]),
        };
        self.results.set_result(g, 4 * block, bytes);
        for (word, value) in about.into_iter().enumerate() {
            self.results.set(g, 4 * block + 1 + word, value);
        }
    }

    fn connect<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer, sends: bool) -> Result<Moved, Error> {
        let stream = connect(g, self.net, addr, self.options)?;
        self.pump(g, stream, buffer, sends)
    }

    fn listen<G: Group>(&self, g: &G, addr: SockAddr, buffer: Buffer, sends: bool) -> Result<Moved, Error> {
        let listener = Listener::bind_with(g, self.net, addr, self.options, 8)?;
        let stream = listener.accept(g)?;
        let moved = self.pump(g, stream, buffer, sends);
        listener.close(g)?;
        moved
    }

    fn pump<G: Group>(&self, g: &G, mut stream: Stream, buffer: Buffer, sends: bool) -> Result<Moved, Error> {
        let began = now_ns();
        let (mut moved, mut calls) = (0, 0);
        match (sends, self.how == 1) {
            (true, false) => {
                while moved < self.bytes {
                    if self.how == 2 {
                        send_all_more(g, &mut stream, buffer)?;
                    } else {
                        stream.send_all(g, buffer)?;
                    }
                    moved += buffer.len() as u64;
                    calls += 1;
                }
            }
            (false, false) => loop {
                let n = stream.recv(g, buffer)?;
                if n == 0 {
                    break;
                }
                moved += n as u64;
                calls += 1;
            },
            (true, true) => {
                while moved < self.bytes {
                    let rest = self.bytes - moved;
                    let want = if rest < self.message { rest } else { self.message };
                    let span = stream.reserve(g, want as usize)?;
                    fill(g, span, calls);
                    stream.commit(g, span.len());
                    moved += span.len() as u64;
                    calls += 1;
                }
            }
            (false, true) => {
                let mut sum = 0;
                loop {
                    let span = stream.peek(g, self.message as usize)?;
                    if span.is_empty() {
                        break;
                    }
                    sum ^= read(g, span);
                    stream.release(g, span.len());
                    moved += span.len() as u64;
                    calls += 1;
                }
                // The data is used, or the compiler could drop the reads.
                if sum == u64::MAX {
                    calls += 1;
                }
            }
        }
        let ended = now_ns();
        stream.close(g)?;
        Ok((moved, [began, ended, calls]))
    }

    /// Several streams in turn, found by their handles.
    #[inline(never)]
    fn several<G: Group>(
        &self,
        g: &G,
        addr: SockAddr,
        buffer: Buffer,
        sends: bool,
        listens: bool,
    ) -> Result<Moved, Error> {
        let count = self.connections as usize;
        if count > MOST_CONNECTIONS {
            return Err(Error::InvalidArgument);
        }
        let mut handles = [0; MOST_CONNECTIONS];
        if listens {
            let listener = Listener::bind_with(g, self.net, addr, self.options, 64)?;
            for handle in handles.iter_mut().take(count) {
                *handle = listener.accept(g)?.handle().raw();
            }
            listener.close(g)?;
        } else {
            for handle in handles.iter_mut().take(count) {
                *handle = connect(g, self.net, addr, self.options)?.handle().raw();
            }
        }
        let began = now_ns();
        let (mut moved, mut calls) = (0, 0);
        while moved < self.bytes {
            let mut stream = self.stream(g, handles[calls as usize % count])?;
            if sends {
                stream.send_all(g, buffer)?;
            } else if stream.recv_exact(g, buffer)? != buffer.len() {
                return Err(Error::ConnectionReset);
            }
            moved += buffer.len() as u64;
            calls += 1;
        }
        let ended = now_ns();
        for handle in handles.into_iter().take(count) {
            self.stream(g, handle)?.close(g)?;
        }
        Ok((moved, [began, ended, calls]))
    }
}

/// Sends a whole message that more follow.
#[inline(always)]
fn send_all_more<G: Group>(g: &G, stream: &mut Stream, message: Buffer) -> Result<(), Error> {
    let mut sent = 0;
    while sent < message.len() {
        sent += stream.sender().send_more(g, message.skip(sent))?;
    }
    Ok(())
}

impl Flow {
    #[inline(always)]
    fn stream<G: Group>(&self, g: &G, handle: i32) -> Result<Stream, Error> {
        Stream::from_handle(g, self.net, Handle::from_raw(handle).ok_or(Error::BadHandle)?)
    }
}

/// Words that a lane has in flight.
const IN_FLIGHT: usize = 16;

/// The words of a piece. Between two blocks all positions are multiples of the message.
fn words(piece: gpunet_device::abi::Piece) -> (*mut u64, usize) {
    (piece.ptr.cast(), piece.len / 8)
}

/// Makes a message in the ring.
#[inline(always)]
fn fill<G: Group>(g: &G, span: RingSpan, value: u64) {
    let (lane, lanes) = (g.rank() as usize, g.size() as usize);
    for piece in [span.first, span.second] {
        let (at, len) = words(piece);
        let mut i = lane;
        while i < len {
            // SAFETY: inside the reserved span, which this group alone writes.
            unsafe { at.wrapping_add(i).write(value) };
            i += lanes;
        }
    }
}

/// Reads a message in the ring, with several words in flight, as any kernel does that needs the
/// memory's bandwidth.
#[inline(always)]
fn read<G: Group>(g: &G, span: RingSpan) -> u64 {
    let (lane, lanes) = (g.rank() as usize, g.size() as usize);
    let mut sum = 0;
    for piece in [span.first, span.second] {
        let (at, len) = words(piece);
        let mut i = lane;
        while i + (IN_FLIGHT - 1) * lanes < len {
            let mut loaded = [0; IN_FLIGHT];
            let mut k = 0;
            while k < IN_FLIGHT {
                // SAFETY: inside the peeked span, which nobody writes until it is released.
                loaded[k] = unsafe { at.wrapping_add(i + k * lanes).read() };
                k += 1;
            }
            for word in loaded {
                sum ^= word;
            }
            i += IN_FLIGHT * lanes;
        }
        while i < len {
            // SAFETY: as above.
            sum ^= unsafe { at.wrapping_add(i).read() };
            i += lanes;
        }
    }
    sum
}
