//! Many senders, one receiver.

use crate::Results;
use crate::ping_pong::connect;
use gpunet_device::poll::POLLIN;
use gpunet_device::{
    Buffer, Error, Group, Handle, Kernel, Listener, Net, Options, PollFd, PollSet, RecvHalf, SockAddr,
    Stream, Timeout, kernel_entry, now_ns, poll,
};

/// Senders of one receiver, at most.
pub const MOST_SENDERS: usize = 64;

/// Longer than any sender is silent.
const SILENCE: Timeout = Timeout::secs(20);

/// Block 0 accepts `senders` connections and receives from whichever is ready, until each has
/// ended. The other blocks, if there are any, are senders: each sends for a time, and closes.
/// `results`: the bytes that block 0 has received; how long no sender had ended, in nanoseconds;
/// the bytes that it received of each sender in that time, in the order of their connections; then
/// the bytes that each block from 1 on has sent.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Incast {
    /// The launch's sockets.
    pub net: Net,
    /// Where to meet.
    pub addr: SockAddr,
    /// Options of all sockets.
    pub options: Options,
    /// [`Incast::room`] bytes, aligned as an allocation.
    pub buffer: Buffer,
    /// Bytes of a call.
    pub message: u64,
    /// How many senders there are, here and elsewhere, 1 to [`MOST_SENDERS`].
    pub senders: u64,
    /// How long a sender continues.
    pub duration_ns: u64,
    /// Outcomes, and bytes.
    pub results: Results,
}

impl Kernel for Incast {
    const ENTRY: &'static str = "gpunet_incast";

    fn run<G: Group>(self, g: &G) {
        let block = g.index() as usize;
        if block == 0 {
            let result = self.receive(g);
            self.results.set_result(g, 0, result);
        } else {
            let result = self.send(g);
            self.results.set_result(g, 2 + self.senders as usize + block - 1, result);
        }
    }
}
kernel_entry!(incast, "gpunet_incast", Incast);

/// Bytes of the entries that block 0 polls.
const SET: usize = MOST_SENDERS * size_of::<PollFd>();

impl Incast {
    /// Bytes of the buffer for `blocks` blocks.
    #[must_use]
    pub const fn room(message: u64, blocks: u32) -> usize {
        SET + message as usize * blocks as usize
    }

    /// Result words.
    #[must_use]
    pub const fn words(senders: u32, blocks: u32) -> usize {
        2 + senders as usize + blocks as usize - 1
    }

    fn message<G: Group>(&self, g: &G) -> Buffer {
        self.buffer.slice(SET + g.index() as usize * self.message as usize, self.message as usize)
    }

    fn send<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let mut stream = connect(g, self.net, self.addr, self.options)?;
        let message = self.message(g);
        let until = now_ns() + self.duration_ns;
        let mut sent = 0;
        loop {
            stream.send_all(g, message)?;
            sent += message.len() as u64;
            // One lane's clock decides for all.
            if g.broadcast(u64::from(now_ns() > until)) != 0 {
                break;
            }
        }
        stream.close(g)?;
        Ok(sent)
    }

    fn receive<G: Group>(&self, g: &G) -> Result<u64, Error> {
        let count = self.senders as usize;
        if count > MOST_SENDERS {
            return Err(Error::InvalidArgument);
        }
        let at = self.buffer.first(SET).as_ptr().cast();
        // SAFETY: the beginning of the buffer, an allocation, which block 0 alone uses.
        let set = unsafe { PollSet::from_raw_parts(at, count) };
        let listener = Listener::bind_with(g, self.net, self.addr, self.options, MOST_SENDERS as u32)?;
        let mut index = 0;
        while index < count {
            let handle = listener.accept(g)?.handle().raw();
            if g.is_leader() {
                set.set(index, PollFd { handle, events: POLLIN, revents: 0 });
            }
            index += 1;
        }
        listener.close(g)?;
        self.drain(g, set)
    }

    /// Receives until each stream has ended: in turn one message from each that is ready.
    fn drain<G: Group>(&self, g: &G, set: PollSet) -> Result<u64, Error> {
        let message = self.message(g);
        let mut each = [0u64; MOST_SENDERS];
        let (began, mut all_send) = (now_ns(), true);
        let (mut total, mut open) = (0, set.len());
        while open > 0 {
            if poll(g, self.net, set, SILENCE)? == 0 {
                return Err(Error::TimedOut);
            }
            for (index, bytes) in each.iter_mut().enumerate().take(set.len()) {
                let fd = set.get(index);
                // All lanes have read the entry when one of them knows; after that it may change.
                let found = if fd.handle < 0 { 0 } else { fd.revents };
                if g.broadcast(found as u16 as u64) == 0 {
                    continue;
                }
                let handle = Handle::from_raw(fd.handle).ok_or(Error::BadHandle)?;
                match RecvHalf::from_handle(g, self.net, handle)?.try_recv(g, message) {
                    Ok(0) => {
                        if all_send {
                            self.results.set(g, 1, now_ns() - began);
                        }
                        all_send = false;
                        Stream::from_handle(g, self.net, handle)?.close(g)?;
                        if g.is_leader() {
                            set.set(index, PollFd { handle: -1, events: 0, revents: 0 });
                        }
                        open -= 1;
                    }
                    Ok(n) => {
                        total += n as u64;
                        *bytes += if all_send { n as u64 } else { 0 };
                    }
                    Err(Error::WouldBlock) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        for (index, bytes) in each.into_iter().enumerate().take(set.len()) {
            self.results.set(g, 2 + index, bytes);
        }
        Ok(total)
    }
}
