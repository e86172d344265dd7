//! What a connection sends: collected in a turn, sent at its end, kept as far as it does not fit:
//! in the connection's buffer, and in its backlog.
#![allow(unsafe_code)]

use crate::backlog::{Backlog, Backlogs, Full};
use crate::bytes::{copy_all, total};
use crate::items::put_each;
use crate::memory::Memory;
use crate::{Bytes, Short};
use gpunet_device::{Buffer, Error, Group, Net, Result, SendHalf};

/// The answers of a connection.
///
/// They are collected in a buffer of the connection and sent together when the turn ends. What does
/// not fit into the connection's ring stays in the buffer: until it is gone the connection gets no
/// further turn, so a peer that does not read is not served. A service that finds no
/// [`Writer::room`] for an answer returns [`crate::Next::Output`] and leaves the request where it
/// is.
///
/// With memory for answers that wait ([`crate::ServerSettings::backlog_bytes`]) the buffer is
/// emptied into that when it is full, and the connection is served on: a peer may send all its
/// requests before it reads.
///
/// # Cooperation
/// All lanes call every method with the same arguments.
#[derive(Debug)]
pub struct Writer<'t> {
    sender: &'t mut SendHalf,
    buffer: Memory,
    /// Bytes before it are sent.
    start: usize,
    end: usize,
    sent: u64,
    /// The last attempt to send has found no room for all.
    is_blocked: bool,
    /// What is sent before the buffer.
    backlog: &'t mut Backlog,
    backlogs: &'t Backlogs,
    net: Net,
    /// The limit that an answer was beyond.
    full: Option<Full>,
    /// Answers were dropped.
    is_lost: bool,
}

impl<'t> Writer<'t> {
    pub(crate) fn new(
        sender: &'t mut SendHalf,
        buffer: Memory,
        (start, end): (usize, usize),
        (backlog, backlogs, net): (&'t mut Backlog, &'t Backlogs, Net),
    ) -> Self {
        let (sent, is_blocked, full, is_lost) = (0, false, None, false);
        Self { sender, buffer, start, end, sent, is_blocked, backlog, backlogs, net, full, is_lost }
    }

    /// Bytes that can be put now.
    #[inline(always)]
    #[must_use]
    pub const fn room(&self) -> usize {
        self.buffer.len() - self.end
    }

    /// Bytes that can be put if nothing is in the buffer: a longer answer has to be divided, or
    /// sent by [`Writer::send_from`].
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.buffer.len()
    }

    /// Makes room for `len` bytes, by sending what is there if need be, or by moving it to the
    /// backlog. Returns whether there is room.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline(always)]
    pub fn make_room<G: Group>(&mut self, g: &G, len: usize) -> Result<bool> {
        if self.room() < len {
            self.flush(g)?;
            if self.room() < len && self.backlogs.is_enabled() {
                self.set_aside(g)?;
            }
        }
        Ok(self.room() >= len)
    }

    /// Makes room for `len` bytes, at most [`Writer::capacity`], whatever that takes: what nobody
    /// has room for is dropped, and the connection ends after the turn. For answers that cannot
    /// wait.
    ///
    /// # Errors
    /// The connection has failed.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn force_room<G: Group>(&mut self, g: &G, len: usize) -> Result<()> {
        if self.is_lost || !self.make_room(g, len)? {
            self.drop_buffer(g);
        }
        Ok(())
    }

    /// Puts bytes of any length, as [`Writer::force_room`] has it. They are copied.
    ///
    /// # Errors
    /// The connection has failed.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn force<G: Group>(&mut self, g: &G, bytes: Bytes<'_>) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            if self.room() == 0 {
                self.force_room(g, self.capacity())?;
            }
            let piece = bytes.slice(done, self.room());
            self.put(g, piece);
            done += piece.len();
        }
        Ok(())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn drop_buffer<G: Group>(&mut self, g: &G) {
        // All lanes have put what they had to put.
        g.sync();
        self.is_lost = true;
        (self.start, self.end) = (0, 0);
    }

    /// Moves what is in the buffer to the backlog, as far as that has room.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn set_aside<G: Group>(&mut self, g: &G) -> Result<()> {
        g.sync();
        let buffered = self.buffer.part(self.start, self.end - self.start).stable_bytes();
        self.start += self.append(g, buffered)?;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn append<G: Group>(&mut self, g: &G, bytes: Bytes<'_>) -> Result<usize> {
        let (done, full) = self.backlog.append(g, self.net, self.backlogs, bytes)?;
        self.full = full;
        Ok(done)
    }

    /// Sends what is in the backlog, as far as it fits into the ring.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn send_backlog<G: Group>(&mut self, g: &G) -> Result<()> {
        while let Some(first) = self.backlog.first(self.backlogs) {
            let sent = send_buffered(g, self.sender, first)?;
            self.is_blocked = sent < first.len();
            self.sent += sent as u64;
            // All lanes have copied it into the ring.
            g.sync();
            self.backlog.remove(g, self.net, self.backlogs, sent)?;
            if self.is_blocked {
                break;
            }
        }
        Ok(())
    }

    /// Appends bytes, all or none; returns whether there was room.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put<'a, G: Group>(&mut self, g: &G, bytes: impl Into<Bytes<'a>>) -> bool {
        self.put_all(g, [bytes.into()])
    }

    /// Appends several parts, all or none; returns whether there was room. Short parts are better
    /// put together than one by one.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put_all<G: Group, const N: usize>(&mut self, g: &G, parts: [Bytes<'_>; N]) -> bool {
        let total = total(&parts);
        if total > self.room() {
            return false;
        }
        // SAFETY: inside the buffer (checked), which is this connection's and which nothing is sent
        // from until the lanes have met.
        unsafe { copy_all(g, &parts, self.buffer.as_ptr().wrapping_add(self.end)) };
        self.end += total;
        true
    }

    /// Appends bytes between two short texts, all or none; returns whether there was room. As
    /// [`Writer::put_all`], inline, for the answers to most requests.
    #[inline(always)]
    pub fn put_between<G: Group>(&mut self, g: &G, before: Short, bytes: Bytes<'_>, after: Short) -> bool {
        let total = before.len() + bytes.len() + after.len();
        if total > self.room() {
            return false;
        }
        let (rank, size) = (g.rank() as usize, g.size() as usize);
        let to = self.buffer.as_ptr().wrapping_add(self.end);
        // SAFETY: inside the buffer (checked), which is this connection's and which nothing is sent
        // from until the lanes have met.
        let write = |at: usize, byte: u8| unsafe { to.wrapping_add(at).write(byte) };
        let put = |start: usize, text: Short| {
            let mut at = rank;
            while at < text.len() {
                write(start + at, text.get(at));
                at += size;
            }
        };
        put(0, before);
        if bytes.len() > size {
            // SAFETY: as above.
            unsafe { bytes.copy_to(g, to.wrapping_add(before.len())) };
        } else if rank < bytes.len() {
            write(before.len() + rank, bytes.get(rank));
        }
        put(before.len() + bytes.len(), after);
        self.end += total;
        true
    }

    /// Appends `count` items one behind the other, all or none; returns whether there was room: for
    /// the items, and for 4 bytes of each item or lane and 3 more behind them.
    ///
    /// Each item is made by one lane (`make`, of its number), which also finds its bytes (`parts`):
    /// ten numbers take a block no longer than one.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::Group;
    /// # use gpunet_serve::{Digits, Writer};
    /// # fn squares<G: Group>(g: &G, output: &mut Writer<'_>) -> bool {
    /// output.put_each(g, 10, |at| Digits::of((at * at) as i64), |number| [number.bytes(), b"\r\n".into()])
    /// # }
    /// ```
    #[inline(always)]
    pub fn put_each<G: Group, T, const N: usize>(
        &mut self,
        g: &G,
        count: usize,
        make: impl Fn(usize) -> T,
        parts: impl for<'p> Fn(&'p T) -> [Bytes<'p>; N],
    ) -> bool {
        match put_each(g, self.buffer.part(self.end, self.room()), count, make, parts) {
            Some(len) => {
                self.end += len;
                true
            }
            None => false,
        }
    }

    /// Appends a decimal number; returns whether there was room.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn put_number<G: Group>(&mut self, g: &G, number: i64) -> bool {
        self.put(g, Digits::of(number).bytes())
    }

    /// Sends bytes from where they lie, behind those in the buffer: without a copy beside the one
    /// into the ring. Returns how many: none while the buffer is not empty, fewer than there are
    /// only when the ring is full. What the ring has no room for is copied to the backlog, and
    /// counts as sent.
    ///
    /// # Errors
    /// The connection has failed.
    ///
    /// # Examples
    ///
    /// What has come goes back:
    ///
    /// ```
    /// # use gpunet_device::{Group, Result};
    /// # use gpunet_serve::{Next, Service, Turn};
    /// # fn serve<G: Group, S: Service>(g: &G, turn: &mut Turn<'_, S>) -> Result<Next> {
    /// let all = turn.input.rest();
    /// let sent = turn.output.send_from(g, all)?;
    /// turn.input.consume(sent);
    /// Ok(if sent < all.len() { Next::Output } else { Next::Input })
    /// # }
    /// ```
    // Inline with its send: a service that only forwards then keeps the stream in registers.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub fn send_from<G: Group>(&mut self, g: &G, bytes: Bytes<'_>) -> Result<usize> {
        self.flush(g)?;
        if self.is_pending() && self.backlogs.is_enabled() {
            self.set_aside(g)?;
            return if self.start < self.end { Ok(0) } else { self.append(g, bytes) };
        }
        if self.start < self.end {
            return Ok(0);
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let (ptr, len) = bytes.skip(sent).first_piece();
            let more = try_send(g, self.sender, ptr, len)?;
            sent += more;
            self.is_blocked = more < len;
            if self.is_blocked {
                break;
            }
        }
        self.sent += sent as u64;
        if sent < bytes.len() && self.backlogs.is_enabled() {
            sent += self.append(g, bytes.skip(sent))?;
        }
        Ok(sent)
    }

    /// Sends what is in the backlog and in the buffer, as far as it fits into the ring.
    ///
    /// # Errors
    /// The connection has failed.
    #[inline(always)]
    pub fn flush<G: Group>(&mut self, g: &G) -> Result<()> {
        if self.is_lost {
            // What comes after a hole is no answer.
            (self.start, self.end) = (0, 0);
            return Ok(());
        }
        if !self.backlog.is_empty() {
            self.send_backlog(g)?;
        }
        if self.start < self.end && self.backlog.is_empty() {
            let from = self.buffer.part(self.start, self.end - self.start);
            // SAFETY: the value is written back below, changed; until then nobody uses the old one.
            let mut sender = unsafe { core::ptr::read(self.sender) };
            let sent = send_buffered(g, &mut sender, from);
            // SAFETY: a reference, so valid; nothing is dropped, because a half has no destructor.
            unsafe { core::ptr::write(self.sender, sender) };
            let sent = sent?;
            self.is_blocked = sent < from.len();
            self.sent += sent as u64;
            self.start += sent;
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
        }
        Ok(())
    }

    /// Returns whether something is left in the buffer, or in the backlog.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        self.start < self.end || !self.backlog.is_empty()
    }

    /// Returns whether there may be room for more answers though some are left.
    pub(crate) const fn takes_more(&self) -> bool {
        self.backlogs.is_enabled() && self.full.is_none()
    }

    /// The limit that answers were beyond, and whether any was dropped.
    pub(crate) const fn full(&self) -> (Option<Full>, bool) {
        (self.full, self.is_lost)
    }

    /// What is left in the buffer.
    pub(crate) const fn pending(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Returns whether the peer has to read before more can be sent.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Bytes sent in this turn.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }
}

/// Sends what is in a buffer: the one place, because each is a thousand lines of PTX. It is given a
/// copy of the half, so that the half itself has no address that a call takes, and can stay in
/// registers where nothing is collected.
#[inline(never)]
fn send_buffered<G: Group>(g: &G, sender: &mut SendHalf, from: Memory) -> Result<usize> {
    try_send(g, sender, from.as_ptr(), from.len())
}

/// Sends what fits into the ring.
#[inline(always)]
fn try_send<G: Group>(g: &G, sender: &mut SendHalf, from: *const u8, len: usize) -> Result<usize> {
    // SAFETY: bytes of a writer's buffer, or of a `Bytes`, which stay readable and unchanged
    // meanwhile.
    let source = unsafe { Buffer::from_raw_parts(from.cast_mut(), len) };
    match sender.try_send(g, source) {
        Err(Error::WouldBlock) => Ok(0),
        sent => sent,
    }
}

/// The decimal digits of a number.
///
/// # Examples
///
/// ```
/// use gpunet_serve::{Bytes, Digits};
///
/// let digits = Digits::of(-17);
/// assert!(digits.bytes() == b"-17");
/// ```
#[derive(Clone, Copy, Debug)]
// Small and aligned, so that a value with several numbers is moved by words: LLVM moves what is not
// aligned, or has 128 bytes or more, byte by byte on a GPU.
#[repr(align(8))]
pub struct Digits {
    /// The digits, at the end.
    all: [u8; 20],
    len: u8,
}

impl Digits {
    /// Spells a number.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn of(number: i64) -> Self {
        let (mut rest, mut all, mut len) = (number.unsigned_abs(), [0; 20], 0usize);
        // No more than 20 places are needed. What is there for none is dropped, not checked: a
        // check brings formatting into the kernel.
        loop {
            len += 1;
            if let Some(place) = all.get_mut(20 - len) {
                *place = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            len += 1;
            if let Some(place) = all.get_mut(20 - len) {
                *place = b'-';
            }
        }
        Self { all, len: len as u8 }
    }

    /// The digits, with the sign.
    #[must_use]
    // Out of line: inlined into a large kernel, LLVM 22 crashes in its pass of speculative
    // execution (seen with rustc 1.95).
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes::from(&self.all).skip(self.all.len() - self.len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelt_as_people_do() {
        for number in [0, 7, -1, 10, i64::MAX, i64::MIN] {
            assert!(Digits::of(number).bytes() == std::format!("{number}").as_bytes());
        }
    }
}
