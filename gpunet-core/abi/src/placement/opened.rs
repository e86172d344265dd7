//! The part of a descriptor of the proxy that goes into a device's table.

use crate::placement::arena::PartHeader;
use crate::request::control::Descriptor;
use crate::stream::socket_line::SocketLine;
use crate::stream::{line, units};
use crate::table::entry::{HalfEntry, LINE_STEP};
use crate::types::errno::Error;
use crate::types::errno::Result;
use crate::types::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use crate::types::region::RegionOffset;

/// Where the rings and words of an open stream lie in the address space of one device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Opened {
    /// The sending half.
    pub send: HalfEntry,
    /// The receiving half.
    pub recv: HalfEntry,
    /// A stream in an arena: address of the other device's part; else 0.
    pub remote_part: u64,
}

impl Opened {
    /// Checks a descriptor, and that its rings and words lie inside the regions. `slots` and
    /// `shards` are the attachment's; `resolve` returns the address of a number of bytes at a
    /// position, or `None` if they do not lie inside its region.
    ///
    /// # Errors
    /// Protocol, when the descriptor is invalid.
    #[inline(always)]
    pub fn of(
        d: &Descriptor,
        slots: u32,
        shards: u32,
        resolve: impl Fn(RegionOffset, u64) -> Option<u64>,
    ) -> Result<Self> {
        let has_units = d.send_log2 & Descriptor::UNITS != 0;
        let (sends, receives) = ((d.send_line, has_units), (d.recv_line, has_units));
        let send =
            half(&resolve, d.send_ring, d.send_log2 & !Descriptor::UNITS, sends, (d.published, d.released))?;
        let recv = half(&resolve, d.recv_ring, d.recv_log2, receives, (d.consumed, d.landed))?;
        if d.link.partner().is_some_and(|slot| slot >= slots)
            || d.link.data_thread().is_some_and(|thread| thread >= shards)
        {
            return Err(Error::Protocol);
        }
        // A publisher finds whom to wake beside the words, and at the start of the other device's
        // part.
        let remote_part = if d.link.is_remote() {
            let words = [d.published, d.consumed, d.landed, d.released];
            let whole_lines = words.iter().all(|word| is_in_line(&resolve, *word));
            let part = RegionOffset::new(d.published.region(), 0);
            match resolve(part, size_of::<PartHeader>() as u64) {
                Some(part) if whole_lines => part,
                _ => return Err(Error::Protocol),
            }
        } else {
            0
        };
        Ok(Self { send, recv, remote_part })
    }

    /// The same stream for an end that does without [units](crate::units): it never grants slots,
    /// so the other end sends it none.
    #[must_use]
    pub const fn without_units(mut self) -> Self {
        if self.send.has_units() {
            (self.send.line, self.recv.line) = (0, 0);
        }
        self
    }
}

/// Returns whether the whole line that a word lies in is inside its region.
#[inline(always)]
fn is_in_line(resolve: &impl Fn(RegionOffset, u64) -> Option<u64>, word: RegionOffset) -> bool {
    let line = size_of::<SocketLine>() as u64;
    resolve(RegionOffset::new(word.region(), word.offset() / line * line), line).is_some()
}

#[inline(always)]
fn half(
    resolve: &impl Fn(RegionOffset, u64) -> Option<u64>,
    ring: RegionOffset,
    log2: u32,
    (line, has_units): (RegionOffset, bool),
    (mine, theirs): (RegionOffset, RegionOffset),
) -> Result<HalfEntry> {
    if log2 < MIN_RING_LOG2 as u32 || log2 > MAX_RING_LOG2 as u32 {
        return Err(Error::Protocol);
    }
    let capacity = 1u64 << log2;
    match (resolve(ring, capacity), resolve(mine, 8), resolve(theirs, 8)) {
        (Some(base), Some(mine), Some(theirs)) if mine % 8 == 0 && theirs % 8 == 0 => {
            let line = line_beside(resolve, base, capacity, line, has_units)?;
            Ok(HalfEntry { base, capacity: capacity as u32, line, mine, theirs, position: 0, seen: 0 })
        }
        _ => Err(Error::Protocol),
    }
}

/// Where a ring's line lies, as [`HalfEntry::line`] has it.
///
/// # Errors
/// Protocol, when it lies outside its region, or the ring is too small to have one.
#[inline(always)]
fn line_beside(
    resolve: &impl Fn(RegionOffset, u64) -> Option<u64>,
    base: u64,
    capacity: u64,
    line: RegionOffset,
    has_units: bool,
) -> Result<i32> {
    if line.0 == 0 {
        return Ok(0);
    }
    let len = if has_units { units::len(capacity) } else { line::LEN as u64 };
    let at = resolve(line, len).ok_or(Error::Protocol)?;
    let distance = at.wrapping_sub(base).cast_signed();
    let steps = distance / LINE_STEP;
    if !line::fits(capacity) || distance % LINE_STEP != 0 {
        return Err(Error::Protocol);
    }
    // In a region of more than 64 GiB it may be too far from its ring: then this end has none.
    let (least, most) = (i32::MIN as i64 / 2, i32::MAX as i64 / 2);
    Ok(if steps >= least && steps <= most { steps as i32 * 2 + has_units as i32 } else { 0 })
}
