//! Faults: sockets that are left, or closed by others; kernels that panic; a proxy that is stopped.

use crate::Results;
use crate::ping_pong::connect;
use gpunet_device::abi::Word;
use gpunet_device::poll::{POLLIN, POLLNVAL, PollFd, PollSet, poll};
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, SockAddr, Stream, Timeout, kernel_entry,
    now_ns,
};
use gpunet_posix::close::close;
use gpunet_posix::socket::{SOCK_STREAM, socket};

/// Every fourth socket that is left is a listener, and every fourth block waits there.
const WAYS: u64 = Stale::WAYS as u64;
const LISTENS: u64 = WAYS - 1;

/// Waits until the host writes 1, or cancels the launch.
fn await_word<G: Group>(g: &G, net: Net, word: *mut u64) -> Result<(), Error> {
    // SAFETY: no entries.
    let nothing = unsafe { PollSet::from_raw_parts(core::ptr::dangling_mut(), 0) };
    loop {
        // SAFETY: the launcher gave an aligned word of pinned memory.
        let said = if g.is_leader() { unsafe { Word::from_ptr(word) }.observe() } else { 0 };
        if g.broadcast(said) == 1 {
            return Ok(());
        }
        poll(g, net, nothing, Timeout::ms(1))?;
    }
}

/// Writes a word for the host.
fn tell<G: Group>(g: &G, word: *mut u64, value: u64) {
    g.sync();
    if g.is_leader() {
        // SAFETY: the launcher gave an aligned word of pinned memory.
        unsafe { Word::from_ptr(word) }.publish(value);
    }
}

/// Opens `sockets` sockets and reports their handles. When the host asks for it, leaves them or
/// closes them. `results`: the outcome.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Leave {
    /// The launch's sockets.
    pub net: Net,
    /// The address of the end that accepts the streams.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// How many: every fourth is a listener.
    pub sockets: u64,
    /// Not 0: sockets as `gsocket` makes them, which are not even bound.
    pub unopened: u32,
    /// Not 0: closes them.
    pub closes: u32,
    /// One byte to send on each stream.
    pub buffer: Buffer,
    /// `sockets` words for the handles.
    pub handles: *mut u64,
    /// Set to 1 once they are there.
    pub told: *mut u64,
    /// The word by which the host asks for the end.
    pub go: *mut u64,
    /// Outcome.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Leave {}

impl Kernel for Leave {
    const ENTRY: &'static str = "gpunet_leave";

    fn run<G: Group>(self, g: &G) {
        let result = self.play(g);
        self.results.set_result(g, 0, result);
    }
}
kernel_entry!(leave, "gpunet_leave", Leave);

impl Leave {
    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let mut index = 0;
        while index < self.sockets {
            let handle = self.open(g, index)?;
            tell(g, self.handles.wrapping_add(index as usize), handle.raw() as u64);
            index += 1;
        }
        tell(g, self.told, 1);
        await_word(g, self.net, self.go)?;
        while index > 0 && self.closes != 0 {
            index -= 1;
            // SAFETY: the word was written above.
            let raw = unsafe { Word::from_ptr(self.handles.wrapping_add(index as usize)) }.observe();
            close(g, self.net, raw as i32)?;
        }
        Ok(self.sockets)
    }

    fn open<G: Group>(&self, g: &G, index: u64) -> Result<Handle, Error> {
        if self.unopened != 0 {
            let raw = socket(g, self.net, i32::from(self.addr.family), SOCK_STREAM, 0)?;
            return Handle::from_raw(raw as i32).ok_or(Error::BadHandle);
        }
        if index % WAYS == LISTENS {
            let mut any = self.addr;
            any.port = 0;
            return Ok(Listener::bind_with(g, self.net, any, self.options, 8)?.handle());
        }
        let mut stream = connect(g, self.net, self.addr, self.options)?;
        stream.send_all(g, self.buffer)?;
        Ok(stream.handle())
    }
}

/// Each block waits on a socket that another launch has opened, until that launch ends it; then it
/// uses a stream of its own, and tries the dead handles meanwhile. `results`: four words per block:
/// the errno that ended its wait; how often a dead handle was taken for an open one; bytes that
/// came back intact on its own stream; the outcome.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stale {
    /// The launch's sockets.
    pub net: Net,
    /// The address of the end that accepts the streams, and echoes.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// Handles: each block waits on one of the first; the rest are dead already.
    pub handles: *mut u64,
    /// How many there are.
    pub count: u64,
    /// 64 KiB per block, all of the byte that the streams of the handles carry.
    pub buffer: Buffer,
    /// What own streams send: 4 KiB per block.
    pub message: Buffer,
    /// Messages.
    pub rounds: u64,
    /// A word per block: 1 when it is about to wait, 2 when the wait has ended.
    pub waits: *mut u64,
    /// The word by which the host asks to use the own stream.
    pub go: *mut u64,
    /// Outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Stale {}

impl Kernel for Stale {
    const ENTRY: &'static str = "gpunet_stale";

    fn run<G: Group>(self, g: &G) {
        let result = self.play(g);
        self.results.set_result(g, 4 * g.index() as usize + 3, result);
    }
}
kernel_entry!(stale, "gpunet_stale", Stale);

impl Stale {
    /// Ways of waiting, which the blocks take in turn: receive, poll, send, accept.
    pub const WAYS: usize = 4;
    /// Bytes of `buffer` per block.
    pub const BUFFER: usize = 64 << 10;
    /// Bytes of `message` per block.
    pub const MESSAGE: usize = 4 << 10;

    fn handle(&self, index: u64) -> Option<Handle> {
        // SAFETY: one of the words that the launcher gave, which nobody writes any more.
        let raw = unsafe { Word::from_ptr(self.handles.wrapping_add(index as usize)) }.observe();
        Handle::from_raw(raw as i32)
    }

    fn play<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let block = g.index() as usize;
        let buffer = self.buffer.slice(block * Self::BUFFER, Self::BUFFER);
        let waits = self.waits.wrapping_add(block);
        if g.index() as u64 % WAYS == LISTENS {
            let listener =
                Listener::from_handle(g, self.net, self.handle(block as u64).ok_or(Error::BadHandle)?)?;
            tell(g, waits, 1);
            let ended = listener.accept(g).map(|_| 0);
            self.results.set_result(g, 4 * block, ended);
            tell(g, waits, 2);
        } else {
            let handle = self.handle(block as u64).ok_or(Error::BadHandle)?;
            let mut stream = Stream::from_handle(g, self.net, handle)?;
            tell(g, waits, 1);
            let ended = self.wait(g, &mut stream, buffer);
            self.results.set_result(g, 4 * block, ended);
            tell(g, waits, 2);
        }
        await_word(g, self.net, self.go)?;
        let mut taken = 0;
        let bytes = self.use_own(g, block, &mut taken);
        self.results.set(g, 4 * block + 1, taken);
        self.results.set_result(g, 4 * block + 2, bytes);
        bytes
    }

    /// Waits until the stream is dead, in the way that the block's number selects.
    fn wait<G: Group>(&self, g: &G, stream: &mut Stream, buffer: Buffer) -> Result<u64, Error> {
        match g.index() as u64 % WAYS {
            0 => Ok(stream.recv(g, buffer)? as u64),
            1 => {
                let handle = stream.handle().raw();
                // SAFETY: the buffer is the block's own, aligned, and larger than an entry.
                let set = unsafe { PollSet::from_raw_parts(buffer.as_ptr().cast(), 1) };
                if g.is_leader() {
                    set.set(0, PollFd { handle, events: POLLIN, revents: 0 });
                }
                g.sync();
                poll(g, self.net, set, Timeout::NEVER)?;
                let found = set.get(0).revents;
                g.sync();
                if found == POLLNVAL { Err(Error::BadHandle) } else { Ok(found as u64) }
            }
            _ => loop {
                stream.send_all(g, buffer)?;
            },
        }
    }

    /// Has messages echoed on a stream of its own, and tries all dead handles in between.
    fn use_own<G: Group>(&self, g: &G, block: usize, taken: &mut u64) -> Result<u64, Error> {
        let mine = self.message.slice(block * Self::MESSAGE, Self::MESSAGE);
        let mut stream = connect(g, self.net, self.addr, self.options)?;
        let (mut round, mut done) = (0, 0);
        while round < self.rounds {
            let mut index = 0;
            while index < self.count {
                if let Some(handle) = self.handle(index) {
                    *taken += u64::from(Stream::from_handle(g, self.net, handle).is_ok());
                    *taken += u64::from(Listener::from_handle(g, self.net, handle).is_ok());
                }
                index += 1;
            }
            // Another byte each round; never that of the dead streams.
            let byte = 1 + (round % 64) as u8;
            let mut at = g.rank() as usize;
            while at < mine.len() {
                // SAFETY: inside this block's part of the buffer.
                unsafe { mine.as_ptr().wrapping_add(at).write(byte) };
                at += g.size() as usize;
            }
            g.sync();
            stream.send_all(g, mine)?;
            if stream.recv_exact(g, mine)? != mine.len() {
                return Err(Error::ConnectionReset);
            }
            let (mut at, mut wrong) = (g.rank() as usize, 0);
            while at < mine.len() {
                // SAFETY: as above.
                wrong += u32::from(unsafe { mine.as_ptr().wrapping_add(at).read() } != byte);
                at += g.size() as usize;
            }
            if g.sum(wrong) != 0 {
                return Err(Error::Protocol);
            }
            done += mine.len() as u64;
            round += 1;
        }
        stream.close(g)?;
        Ok(done)
    }
}

/// A literal, because a GPU's panic can report nothing else.
macro_rules! last_words {
    () => {
        "the client asked for it"
    };
}

/// Each block serves `clients` clients at `addr` + its number, one after another: it sends back one
/// byte. ENETDOWN does not stop it; the byte [`Attend::PANIC`] makes it panic. `results`: two words
/// per block: clients served or the errno, and how often a call failed with ENETDOWN.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Attend {
    /// The launch's sockets.
    pub net: Net,
    /// Where the first block listens.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// Clients of each block.
    pub clients: u64,
    /// A byte per block.
    pub buffer: Buffer,
    /// A word per block: set to 1 once it listens.
    pub told: *mut u64,
    /// Outcomes.
    pub results: Results,
}

// SAFETY: addresses of memory shared with the host, which guarantees them.
unsafe impl Send for Attend {}

impl Kernel for Attend {
    const ENTRY: &'static str = "gpunet_attend";

    fn run<G: Group>(self, g: &G) {
        let (block, mut downs) = (g.index() as usize, 0);
        let result = self.play(g, block, &mut downs);
        self.results.set_result(g, 2 * block, result);
        self.results.set(g, 2 * block + 1, downs);
    }
}
kernel_entry!(attend, "gpunet_attend", Attend);

impl Attend {
    /// The byte after which a block panics.
    pub const PANIC: u8 = 0xff;
    /// The message of that panic.
    pub const LAST_WORDS: &'static str = last_words!();

    fn play<G: Group>(&self, g: &G, block: usize, downs: &mut u64) -> Result<u64, Error> {
        let mut addr = self.addr;
        addr.port += block as u16;
        let byte = self.buffer.slice(block, 1);
        let listener = Listener::bind_with(g, self.net, addr, self.options, 64)?;
        tell(g, self.told.wrapping_add(block), 1);
        let mut served = 0;
        while served < self.clients {
            let mut stream = match listener.accept(g) {
                Err(Error::NetworkDown) => {
                    *downs += 1;
                    continue;
                }
                accepted => accepted?,
            };
            loop {
                match stream.recv(g, byte) {
                    Err(Error::NetworkDown) => *downs += 1,
                    Ok(0) => break,
                    got => {
                        got?;
                        // SAFETY: the block's own byte, which nobody writes now.
                        let got = unsafe { byte.as_ptr().read() };
                        if got == Self::PANIC {
                            panic!(last_words!());
                        }
                        stream.send_all(g, byte)?;
                    }
                }
            }
            stream.close(g)?;
            served += 1;
        }
        listener.close(g)?;
        Ok(served)
    }
}

/// Two values of one block's group broadcast and sum in turn. `results`: how many values were
/// wrong, in all lanes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Twice {
    /// How often.
    pub rounds: u64,
    /// Outcome.
    pub results: Results,
}

impl Kernel for Twice {
    const ENTRY: &'static str = "gpunet_twice";

    #[cfg(target_arch = "nvptx64")]
    fn run<G: Group>(self, g: &G) {
        use gpunet_device::group::ThreadBlock;
        let wrong = self.count(&ThreadBlock::current(), &ThreadBlock::current());
        self.results.set(g, g.index() as usize, wrong as u64);
    }

    /// A CPU block has one value: its barrier is made once.
    #[cfg(not(target_arch = "nvptx64"))]
    fn run<G: Group>(self, g: &G) {
        let wrong = self.count(g, g);
        self.results.set(g, g.index() as usize, wrong as u64);
    }
}
kernel_entry!(twice, "gpunet_twice", Twice);

impl Twice {
    fn count<G: Group>(&self, one: &G, other: &G) -> u32 {
        let (mut round, mut wrong) = (0, 0);
        while round < self.rounds {
            // Lanes that are late read after others have gone on.
            let late = (one.rank() as u64).wrapping_mul(31).wrapping_add(round).is_multiple_of(17);
            if late {
                let until = now_ns() + 200;
                while now_ns() < until {}
            }
            let lead = one.rank() == 0;
            wrong += u32::from(one.broadcast(if lead { round } else { 0 }) != round);
            wrong += u32::from(other.broadcast(if lead { !round } else { 0 }) != !round);
            wrong += u32::from(one.sum(1) != one.size());
            wrong += u32::from(other.sum(2) != 2 * other.size());
            round += 1;
        }
        one.sum(wrong)
    }
}
