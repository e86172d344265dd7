//! Receiving what comes in units: [`gpunet_abi::units`] has the format, and who knows what comes
//! next.

use super::{Found, RecvHalf};
use crate::group::{Front, Lane};
use crate::memory::units as slots;
use crate::socket::awaiting::{GO_ON, NOTHING_YET, UNITS, await_line, await_rest, differs, taken, taken_len};
use crate::socket::next_units::NextUnits;
use crate::socket::unpublished::publish_deferred;
use crate::{Buffer, Group, platform};
use gpunet_abi::line::{self, CHUNK_BYTES};
use gpunet_abi::position::StreamWord;
use gpunet_abi::{Result, Timeout, units};

/// In place of the first slot of a message: it is not there. No message is so long.
const NO_HEADER: u64 = u64::MAX;

impl RecvHalf {
    /// Waits for the next message in units, and takes it into `buffer`, or into the ring if there
    /// is no buffer; or waits for bytes in the ring. All lanes.
    ///
    /// Returns what [`awaited`] unpacks where it has taken nothing.
    ///
    /// # Errors
    /// Protocol.
    #[inline(always)]
    pub(super) fn await_units<G: Group>(
        &mut self,
        g: &G,
        lane: Lane,
        timeout: Timeout,
        buffer: Option<Buffer>,
    ) -> Result<core::result::Result<Found, u64>> {
        let mut unfinished = None;
        loop {
            // Lanes may still read what an earlier call put into the buffer.
            g.sync();
            let found = match buffer {
                Some(buffer) if g.has_front(lane) => {
                    let found = match g.front(lane) {
                        Some(front) => self.await_units_by(&front, timeout, buffer),
                        None => 0,
                    };
                    g.broadcast_once::<2>(lane, found)
                }
                _ => {
                    let word = if lane.is_leader() { self.await_landed(timeout) } else { 0 };
                    g.broadcast_once::<0>(lane, word)
                }
            };
            if let Some(len) = taken_len(found)
                && len > 0
            {
                self.consumer.take_units(len as u64);
                self.pass_units(lane, units::slots_of(len as u32));
                return Ok(Ok(Found::Taken(len)));
            }
            if found != UNITS {
                return Ok(Err(found));
            }
            let taken = self.take_message(g, lane, buffer)?;
            if taken > 0 {
                return Ok(Ok(if buffer.is_some() { Found::Taken(taken) } else { Found::Landed }));
            }
            let found = if lane.is_leader() {
                await_rest(self.wait(), self.entry, timeout, &mut unfinished)
            } else {
                0
            };
            let found = g.broadcast(found);
            if found != NOTHING_YET {
                return Ok(Err(found));
            }
        }
    }

    /// As [`RecvHalf::await_units`], by the front, which leaves in `buffer` a message that it takes
    /// whole: one of at most a chunk for each lane of a warp.
    #[inline(always)]
    fn await_units_by<F: Front>(&mut self, front: &F, timeout: Timeout, buffer: Buffer) -> u64 {
        if self.deferred && front.is_first() {
            publish_deferred(self.net, self.handle);
        }
        let (wait, position) = (self.wait(), self.consumer.position());
        let (end, seen, next) = (wait.end, wait.seen, self.next_units());
        let (ring, first) = (end.unit_ring(), self.units);
        let most = if F::IS_WARP { line::MAX } else { 0 };
        let room = if buffer.len() < most { buffer.len() } else { most } as u32;
        let at = front.rank() * CHUNK_BYTES;
        let look = || {
            let header = slots::header(ring, first);
            let piece = if F::IS_WARP {
                slots::load_slot(ring, first.wrapping_add(1 + front.rank() as u32))
            } else {
                None
            };
            // A hint only: the loads of the next look would wait for an acquire.
            let word = end.peek();
            let len = header.map_or(0, |header| if header.distance(position) == 0 { header.len } else { 0 });
            let fits = len.wrapping_sub(1) < room;
            if F::IS_WARP {
                // One vote decides.
                if front.all(fits & (at >= len as usize || piece.is_some())) {
                    if at < len as usize
                        && let Some(piece) = piece
                    {
                        let left = len - at as u32;
                        let count = if left < CHUNK_BYTES as u32 { left } else { CHUNK_BYTES as u32 };
                        // SAFETY: the buffer has room for the message.
                        unsafe { slots::store_piece(buffer.as_ptr().wrapping_add(at), piece, count) };
                    }
                    return taken(len as usize);
                }
            }
            // Lanes may see different things: the first one's counts.
            front.first_of(match header {
                Some(header) if header.distance(position) <= 0 => {
                    if fits {
                        NOTHING_YET
                    } else {
                        UNITS
                    }
                }
                _ if !word.end() && word.position() <= seen.position() => NOTHING_YET,
                _ => {
                    let word = next.before(end.observe(), seen);
                    if !differs(word, seen, 0) {
                        NOTHING_YET
                    } else if word.end() {
                        GO_ON
                    } else {
                        word.0
                    }
                }
            })
        };
        await_line(front, self.entry, wait, timeout, look, || self.announce_late())
    }

    /// Takes the next message in units, or what is left of it: up to the buffer's length into
    /// `buffer`, or all of it into the ring, behind what has landed. Returns how many bytes, and 0
    /// if it is not there, or not whole. All lanes. Also a barrier.
    ///
    /// # Errors
    /// Protocol, when its first slot is impossible.
    #[inline(always)]
    fn take_message<G: Group>(&mut self, g: &G, lane: Lane, buffer: Option<Buffer>) -> Result<usize> {
        let (end, first) = (self.consumer.end(), self.units);
        let ring = end.unit_ring();
        let (from, position) = (self.consumer.landed().position(), self.consumer.position());
        let found = if lane.is_leader() { slots::load_slot(ring, first).unwrap_or(NO_HEADER) } else { 0 };
        // All lanes take what one of them has found.
        let found = g.broadcast(found);
        let header = units::UnitHeader::of(found);
        if found == NO_HEADER || self.consumer.landed().end() || header.distance(from) > 0 {
            return Ok(0);
        }
        let room = position + end.capacity - from;
        let Some(passed) =
            header.passed(from, end.capacity).filter(|&passed| (header.len - passed) as u64 <= room)
        else {
            return self.refuse(g, lane);
        };
        let rest = header.len - passed;
        let len = match buffer {
            Some(buffer) if (buffer.len() as u64) < rest as u64 => buffer.len() as u32,
            _ => rest,
        };
        let write = |at: u32, bytes: u64, count: u32| {
            let at = at - passed;
            match buffer {
                // SAFETY: the buffer has room for `len` bytes.
                Some(buffer) => unsafe {
                    slots::store_piece(buffer.as_ptr().wrapping_add(at as usize), bytes, count);
                },
                None => {
                    let mut index = 0;
                    while index < count {
                        let place = (from + (at + index) as u64) & (end.capacity - 1);
                        // SAFETY: free space of the ring, which the sender leaves to this end.
                        unsafe { end.base.wrapping_add(place as usize).write((bytes >> (8 * index)) as u8) };
                        index += 1;
                    }
                }
            }
        };
        let is_whole =
            slots::take(lane, ring, first, (passed, passed + len), platform::slow_check_every(), write);
        if g.sum(!is_whole as u32) > 0 {
            return Ok(0);
        }
        if buffer.is_some() {
            self.consumer.take_units(len as u64);
        } else {
            self.consumer.unpacked(len as u64);
        }
        if passed + len == header.len {
            self.pass_units(lane, units::slots_of(header.len));
        }
        if lane.is_last() {
            self.keep();
        }
        Ok(len as usize)
    }

    /// Copies all messages in units that have come into the ring, behind what has landed. All
    /// lanes.
    ///
    /// # Errors
    /// Protocol.
    #[inline(never)]
    pub(super) fn unpack<G: Group>(&mut self, g: &G, lane: Lane) -> Result<()> {
        while self.take_message(g, lane, None)? > 0 {}
        Ok(())
    }

    /// Goes on to the next message of the unit ring, and grants slots if that is due. All lanes,
    /// which have met since they took the message.
    #[inline(always)]
    fn pass_units(&mut self, lane: Lane, slots: u32) {
        let (end, before) = (self.consumer.end(), self.units);
        self.units = before.wrapping_add(slots);
        if lane.is_leader() && end.unit_ring().grants(before, self.units) {
            // Ordering: none is needed, `gpunet_abi::units` says why.
            end.granted().set(end.unit_ring().grant(self.units));
        }
    }

    /// Where the next message of the unit ring begins.
    #[inline(always)]
    pub(crate) fn next_units(&self) -> NextUnits {
        NextUnits::new(self.consumer.end().unit_ring(), self.units)
    }

    /// Observes what has landed in the ring, up to the next message in units. By one lane.
    #[inline(always)]
    pub(super) fn look(&self) -> StreamWord {
        let word = self.consumer.poll();
        if self.consumer.end().has_units() {
            self.next_units().before(word, self.consumer.landed())
        } else {
            word
        }
    }
}
