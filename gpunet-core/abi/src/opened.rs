//! What a descriptor of the proxy gives a device's table.

use crate::arena::PartHeader;
use crate::control::Descriptor;
use crate::entry::HalfEntry;
use crate::layout::SocketLine;
use crate::options::{MAX_RING_LOG2, MIN_RING_LOG2};
use crate::region::RegionOffset;
use crate::{Error, Result};

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
    /// Checks a descriptor, and that its rings and words lie inside the regions. `slots` and `shards` are the attachment's;
    /// `resolve` gives the address of so many bytes at a position, `None` unless they lie inside its region.
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
        let send = half(&resolve, d.send_ring, d.send_log2, d.published, d.released)?;
        let recv = half(&resolve, d.recv_ring, d.recv_log2, d.consumed, d.landed)?;
        if d.link.partner().is_some_and(|slot| slot >= slots)
            || d.link.data_thread().is_some_and(|thread| thread >= shards)
        {
            return Err(Error::Protocol);
        }
        // A publisher finds whom to wake beside the words, and at the start of the other device's part.
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
    mine: RegionOffset,
    theirs: RegionOffset,
) -> Result<HalfEntry> {
    if log2 < MIN_RING_LOG2 as u32 || log2 > MAX_RING_LOG2 as u32 {
        return Err(Error::Protocol);
    }
    let capacity = 1u64 << log2;
    match (resolve(ring, capacity), resolve(mine, 8), resolve(theirs, 8)) {
        (Some(base), Some(mine), Some(theirs)) if mine % 8 == 0 && theirs % 8 == 0 => {
            Ok(HalfEntry { base, capacity, mine, theirs, position: 0, seen: 0 })
        }
        _ => Err(Error::Protocol),
    }
}
