//! The copy routine: many lanes, sixteen bytes an access, several in flight, any alignment.
//!
//! One lane's loads in flight times the number of lanes is what hides a bus round trip, so each lane
//! loads several chunks before it stores the first: [`IN_FLIGHT`] (or [`IN_FLIGHT_OF_FEW`]) while
//! there is that much, then fewer, so that the rest of a copy costs few round trips too. Where source and
//! destination are not aligned alike, the lanes load aligned chunks of the source and shift them.
//! Only the few bytes before the first and after the last whole chunk go one by one, and their loads
//! are under way while the chunks are copied.

mod chunks;
mod edges;

use crate::Group;
use crate::platform;
use gpunet_abi::RingSpan;

/// Loads a lane has under way before it stores. On an H200 eight fill PCIe from one block in the
/// write direction, and the read direction gains up to sixteen (measured: docs/performance.md).
pub const IN_FLIGHT: usize = 8;
/// The same in groups of at most [`FEW_LANES`]. From pinned memory to an H200, 256 lanes move 39 GB/s
/// with sixteen and 21 with eight; 512 lanes move 31 with sixteen (too much on its way at a time) and
/// 44 with eight; and a thread of a still larger block has no registers for sixteen.
pub const IN_FLIGHT_OF_FEW: usize = 16;
/// Lanes up to which [`IN_FLIGHT_OF_FEW`] counts. A shifted chunk takes two loads, of which the
/// second mostly finds what the first has fetched: there twice as many lanes are few.
pub const FEW_LANES: usize = 256;
/// Bytes of a chunk.
const CHUNK: usize = 16;
/// Lanes of a warp.
const WARP: usize = 32;

/// Copies `len` bytes from `src` to `dst` by lane `lane` of `lanes`; all lanes together copy all.
///
/// No barrier inside: the bytes are there for the group after its next one. One function for all
/// groups, kept out of line: a call costs nothing beside a copy, and kernels stay small.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they do not overlap, and nobody else writes
/// either meanwhile.
#[inline(never)]
pub unsafe fn copy(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    if lanes == 1 && unsafe { platform::copy_alone(dst, src, len) } {
        return;
    }
    // SAFETY: the caller's contract.
    unsafe { copy_part(lane as usize, lanes as usize, dst, src, len) };
}

/// One lane's part of a copy.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_part(lane: usize, lanes: usize, dst: *mut u8, src: *const u8, len: usize) {
    let plan = Plan::new(dst as usize, src as usize, len);
    let edges = edges::Edges { dst, src, head: plan.head, rest: plan.head + plan.chunks * CHUNK, len };
    // SAFETY: the caller's contract; the edges lie inside both ranges.
    let first = unsafe { edges.load(lane) };
    let (to, from) = (dst.wrapping_add(plan.head), src.wrapping_add(plan.head));
    // SAFETY: the plan's chunks lie inside both ranges, `to` is aligned, and so is `from` unless
    // there is a shift.
    unsafe {
        if plan.shift == 0 {
            chunks::copy_aligned(lane, lanes, to, from, plan.chunks);
        } else {
            chunks::copy_shifted(lane, lanes, to, from.wrapping_sub(plan.shift), plan.chunks, plan.shift);
        }
    }
    // SAFETY: as for the load.
    unsafe { edges.store(lane, lanes, first) };
}

/// What of a copy goes by chunks.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Bytes before the first chunk; then the destination is aligned.
    head: usize,
    /// Whole chunks.
    chunks: usize,
    /// How far the source is past a chunk's start there.
    shift: usize,
}

impl Plan {
    #[inline(always)]
    fn new(dst: usize, src: usize, len: usize) -> Self {
        let to_aligned = dst.wrapping_neg() % CHUNK;
        let shift = src.wrapping_add(to_aligned) % CHUNK;
        // A shifted chunk needs the source's two aligned chunks that it lies in, whole: the first
        // must not begin before the source, and the second not end after it.
        let head = if to_aligned < shift { to_aligned + CHUNK } else { to_aligned };
        if len < head {
            return Self { head: 0, chunks: 0, shift: 0 };
        }
        let whole = (len - head + shift) / CHUNK;
        let chunks = if shift == 0 { whole } else { whole.saturating_sub(1) };
        Self { head, chunks, shift }
    }
}

/// Copies one piece. Where both sides are aligned it needs no plan and no call, around which each lane
/// would save and load what it holds: in blocks of 512 lanes that takes as long as a copy of 64 KiB, and
/// in larger ones twice as long.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_piece(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    let aligned = (dst as usize | src as usize | len).is_multiple_of(CHUNK);
    if aligned && lanes > 1 {
        if len <= lanes as usize * CHUNK {
            // Most messages of a request-response protocol are such.
            let at = lane as usize * CHUNK;
            if at < len {
                // SAFETY: an aligned chunk inside both ranges.
                let chunk = unsafe { platform::load_chunk(src.wrapping_add(at)) };
                // SAFETY: as above.
                unsafe { platform::store_chunk(dst.wrapping_add(at), chunk) };
            }
            return;
        }
        // Few lanes want more on its way at a time than fits beside a kernel's own registers.
        let many = lanes as usize > FEW_LANES || len < lanes as usize * CHUNK * IN_FLIGHT_OF_FEW;
        if many && (lanes as usize).is_multiple_of(WARP) {
            // SAFETY: the caller's contract; both are aligned, and `len` is a number of chunks.
            unsafe { chunks::copy_plain(lane as usize, lanes as usize, dst, src, len / CHUNK) };
            return;
        }
    }
    // SAFETY: the caller's contract.
    unsafe { copy(lane, lanes, dst, src, len) };
}

/// Copies the group's bytes at `src` into ring memory, as many as the span has.
///
/// # Safety
/// `src` is readable for `span.len()` bytes, and the span is the caller's to write (reserved).
#[inline(always)]
pub unsafe fn copy_into_ring<G: Group>(g: &G, span: RingSpan, src: *const u8) {
    // SAFETY: the caller's contract.
    unsafe { copy_into_ring_by(g.rank(), g.size(), span, src) };
}

/// As [`copy_into_ring`], by lane `lane` of `lanes`; others than those do nothing.
///
/// # Safety
/// As [`copy_into_ring`].
#[inline(always)]
pub(crate) unsafe fn copy_into_ring_by(lane: u32, lanes: u32, span: RingSpan, src: *const u8) {
    if lane >= lanes {
        return;
    }
    // SAFETY: the caller's contract; the pieces of a span do not overlap.
    unsafe { copy_piece(lane, lanes, span.first.ptr, src, span.first.len) };
    if span.second.len > 0 {
        // SAFETY: as above.
        unsafe { copy(lane, lanes, span.second.ptr, src.wrapping_add(span.first.len), span.second.len) };
    }
}

/// Copies ring memory to `dst`, as many bytes as the span has.
///
/// # Safety
/// `dst` is writable for `span.len()` bytes, and the span is the caller's to read (peeked).
#[inline(always)]
pub unsafe fn copy_out_of_ring<G: Group>(g: &G, dst: *mut u8, span: RingSpan) {
    let (lane, lanes) = (g.rank(), g.size());
    // SAFETY: the caller's contract.
    unsafe { copy_piece(lane, lanes, dst, span.first.ptr, span.first.len) };
    if span.second.len > 0 {
        // SAFETY: as above.
        unsafe { copy(lane, lanes, dst.wrapping_add(span.first.len), span.second.ptr, span.second.len) };
    }
}

#[cfg(test)]
mod tests;
