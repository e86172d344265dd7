//! The copy routine: many lanes, sixteen bytes an access, several in flight, any alignment.
//!
//! One lane's loads in flight times the number of lanes is what hides a bus round trip, so each
//! lane loads several chunks before it stores the first: [`IN_FLIGHT`] (or [`IN_FLIGHT_OF_FEW`])
//! while there is that much, then fewer, so that the rest of a copy costs few round trips too.
//! Where source and destination are not aligned alike, the lanes load aligned chunks of the source
//! and shift them. Only the few bytes before the first and after the last whole chunk go one by
//! one, and their loads are under way while the chunks are copied.
//!
//! | file | holds |
//! |---|---|
//! | `chunks` | the aligned chunks of the destination |
//! | `edges` | the bytes before and after them |

mod chunks;
mod edges;

use crate::{Group, platform};
use chunks::{Aligned, CHUNK, Shifted, WARP, copy_rows, copy_tiles};
use gpunet_abi::RingSpan;

/// Loads a lane has under way before it stores. On an H200 eight fill PCIe from one block in the
/// write direction, and the read direction gains up to sixteen (measured: docs/performance.md).
pub const IN_FLIGHT: usize = 8;
/// The same in groups of at most [`FEW_LANES`]. From pinned memory to an H200, 256 lanes move 39
/// GB/s with sixteen and 21 with eight; 512 lanes move 31 with sixteen (too much in flight) and 44
/// with eight; and a thread of a still larger block has no registers for sixteen.
pub const IN_FLIGHT_OF_FEW: usize = 16;
/// Lanes up to which [`IN_FLIGHT_OF_FEW`] applies. A shifted chunk takes two loads. The
/// second one mostly finds what the first has fetched, so twice as many lanes are few there.
pub const FEW_LANES: usize = 256;

/// Copies `len` bytes from `src` to `dst` by lane `lane` of `lanes`; all lanes together copy all.
///
/// It has no barrier: the group sees the bytes after its next one. All groups call one function,
/// which is kept out of line so that kernels stay small.
///
/// # Safety
/// `src` is readable and `dst` writable for `len` bytes, they do not overlap, and nobody else
/// writes either meanwhile.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, copy::copy};
/// # fn example<G: Group>(g: &G, net: Net, from: Buffer, to: Buffer) -> Result<()> {
/// // SAFETY: the caller's buffers; they do not overlap, and only this group uses them.
/// unsafe { copy(g.rank(), g.size(), to.as_ptr(), from.as_ptr(), from.len()) };
/// g.sync(); // every lane sees the copy
/// # Ok(())
/// # }
/// ```
#[inline(never)]
pub unsafe fn copy(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    if lanes == 1 && unsafe { platform::copy_alone(dst, src, len) } {
        return;
    }
    if len <= lanes as usize * CHUNK {
        // SAFETY: the caller's contract.
        unsafe { copy_part(lane, lanes, dst, src, len, copy_small) };
    } else {
        // SAFETY: the caller's contract.
        unsafe { copy_large(lane, lanes, dst, src, len) };
    }
}

/// As [`copy`], of more than a few chunks of each lane, for which it takes many registers.
///
/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_large(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    unsafe { copy_part(lane, lanes, dst, src, len, copy_chunks) };
}

/// Makes [`copy_large`] a function that anybody might call, so that the assembler holds it to the
/// calling convention, by which it saves what it uses of its caller's registers. The assembler
/// would else have every kernel keep what it needs after a call of [`copy`] in those few registers
/// that this function leaves alone, or in local memory: in blocks of 512 lanes that was most of a
/// stream's state, in calls that copy in line, too (a message of 64 KiB took 7.0 us between two
/// blocks of an H200 and takes 5.5).
#[used]
static BY_CONVENTION: unsafe fn(u32, u32, *mut u8, *const u8, usize) = copy_large;

/// One lane's part of a copy, whose chunks `copy_chunks` copies.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_part(
    lane: u32,
    lanes: u32,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    copy_chunks: unsafe fn(u32, u32, *mut u8, *const u8, Plan),
) {
    let plan = Plan::new(dst as usize, src as usize, len);
    let edges = edges::Edges { dst, src, head: plan.head, rest: plan.head + plan.chunks * CHUNK, len };
    // SAFETY: the caller's contract; the edges lie inside both ranges.
    let first = unsafe { edges.load(lane as usize) };
    let (to, from) = (dst.wrapping_add(plan.head), src.wrapping_add(plan.head));
    // SAFETY: the plan's chunks lie inside both ranges.
    unsafe { copy_chunks(lane, lanes, to, from.wrapping_sub(plan.shift), plan) };
    // SAFETY: as for the load.
    unsafe { edges.store(lane as usize, lanes as usize, first) };
}

/// Copies the chunks of a plan, with few registers.
///
/// # Safety
/// `dst` is writable for the plan's chunks, and `src` readable for them, and for one more where
/// there is a shift; both are aligned.
#[inline(always)]
unsafe fn copy_small(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, plan: Plan) {
    // SAFETY: the caller's contract.
    unsafe {
        if plan.shift == 0 {
            copy_rows::<_, 1>(Aligned, lane, lanes, dst, src, plan.chunks, true);
        } else {
            copy_rows::<_, 1>(Shifted(plan.shift), lane, lanes, dst, src, plan.chunks, true);
        }
    }
}

/// As [`copy_small`], with as much under way as a group of that size needs: more in smaller ones.
///
/// # Safety
/// As [`copy_small`].
#[inline(always)]
unsafe fn copy_chunks(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, plan: Plan) {
    let size = lanes as usize;
    // SAFETY: the caller's contract.
    unsafe {
        if plan.shift == 0 {
            copy_rows::<_, IN_FLIGHT_OF_FEW>(Aligned, lane, lanes, dst, src, plan.chunks, size <= FEW_LANES);
        } else {
            let few = size <= 2 * FEW_LANES;
            copy_rows::<_, { IN_FLIGHT_OF_FEW / 2 }>(
                Shifted(plan.shift),
                lane,
                lanes,
                dst,
                src,
                plan.chunks,
                few,
            );
        }
    }
}

/// The part of a copy that goes by chunks.
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

/// Copies one piece. Where both sides are aligned it needs no plan and no call, around which each
/// lane would save and load what it holds: in blocks of 512 lanes that takes as long as a copy of
/// 64 KiB, and in larger ones twice as long.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_piece(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    // SAFETY: the caller's contract.
    if lanes == 1 && unsafe { platform::copy_alone(dst, src, len) } {
        return;
    }
    if (dst as usize | src as usize | len).is_multiple_of(CHUNK) {
        let row = lanes as usize * CHUNK;
        let (at, next) = (lane as usize * CHUNK, lane as usize * CHUNK + row);
        if len <= 2 * row {
            // Most messages of a request-response protocol are such, and are still in the
            // first-level cache where a kernel has just written them.
            let (to, from) = (dst.wrapping_add(at), src.wrapping_add(at));
            // SAFETY: aligned chunks inside both ranges.
            unsafe {
                if next < len {
                    let (one, other) =
                        (platform::load_chunk(from), platform::load_chunk(from.wrapping_add(row)));
                    platform::store_chunk(to, one);
                    platform::store_chunk(to.wrapping_add(row), other);
                } else if at < len {
                    platform::store_chunk(to, platform::load_chunk(from));
                }
            }
            return;
        }
        // Few lanes want more in flight than fits beside a kernel's own registers.
        let many = lanes as usize > FEW_LANES || len < row * IN_FLIGHT_OF_FEW;
        if len < row * IN_FLIGHT || many && (lanes as usize).is_multiple_of(WARP) {
            // SAFETY: the caller's contract; both are aligned, `len` is a number of chunks, and
            // what is less than a tile is copied by rows, whatever the lanes.
            unsafe { copy_tiles::<_, IN_FLIGHT>(Aligned, lane, lanes, dst, src, len / CHUNK) };
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
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Stream, copy::copy_into_ring};
/// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, record: Buffer) -> Result<()> {
/// let span = stream.reserve(g, record.len())?;
/// // SAFETY: the span is reserved, and at most as long as `record`.
/// unsafe { copy_into_ring(g, span, record.as_ptr()) };
/// stream.commit(g, span.len());
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn copy_into_ring<G: Group>(g: &G, span: RingSpan, src: *const u8) {
    // SAFETY: the caller's contract.
    unsafe { copy_into_ring_by(g.rank(), g.size(), span, src) };
}

/// As [`copy_into_ring`], by lane `lane` of `lanes`; other lanes do nothing.
///
/// # Safety
/// As [`copy_into_ring`].
#[inline(always)]
pub(crate) unsafe fn copy_into_ring_by(lane: u32, lanes: u32, span: RingSpan, src: *const u8) {
    let (lane, lanes) = (platform::opaque_u32(lane), platform::opaque_u32(lanes));
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

/// As [`copy_into_ring_by`], of a message of at most 256 bytes that somebody waits for.
///
/// # Safety
/// As [`copy_into_ring`].
#[inline(always)]
pub(crate) unsafe fn copy_small_into_ring_by(lane: u32, lanes: u32, span: RingSpan, src: *const u8) {
    if !platform::COPIES_IN_PLACE {
        // SAFETY: the caller's contract.
        return unsafe { copy_into_ring_by(lane, lanes, span, src) };
    }
    // SAFETY: the caller's contract; the pieces of a span do not overlap.
    unsafe { copy_words(lane, lanes, span.first.ptr, src, span.first.len) };
    // SAFETY: as above.
    unsafe { copy_words(lane, lanes, span.second.ptr, src.wrapping_add(span.first.len), span.second.len) };
}

/// Copies by words of eight bytes if all is aligned for them, else by bytes: few instructions, for
/// few bytes.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_words(lane: u32, lanes: u32, dst: *mut u8, src: *const u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let mut at = lane as usize;
    if (dst as usize | src as usize | len).is_multiple_of(WORD) {
        while at * WORD < len {
            let offset = at * WORD;
            // SAFETY: inside both, and aligned.
            unsafe {
                dst.wrapping_add(offset).cast::<u64>().write(src.wrapping_add(offset).cast::<u64>().read())
            };
            at += lanes as usize;
        }
        return;
    }
    while at < len {
        // SAFETY: inside both.
        unsafe { dst.wrapping_add(at).write(src.wrapping_add(at).read()) };
        at += lanes as usize;
    }
}

/// Copies ring memory to `dst`, as many bytes as the span has.
///
/// # Safety
/// `dst` is writable for `span.len()` bytes, and the span is the caller's to read (peeked).
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Stream, copy::copy_out_of_ring};
/// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, record: Buffer) -> Result<()> {
/// let span = stream.peek(g, record.len())?;
/// // SAFETY: the span was peeked, and is at most as long as `record`.
/// unsafe { copy_out_of_ring(g, record.as_ptr(), span) };
/// stream.release(g, span.len());
/// # Ok(())
/// # }
/// ```
#[inline(always)]
pub unsafe fn copy_out_of_ring<G: Group>(g: &G, dst: *mut u8, span: RingSpan) {
    // SAFETY: the caller's contract.
    unsafe { copy_out_of_ring_by(g.rank(), g.size(), dst, span) };
}

/// As [`copy_out_of_ring`], by lane `lane` of `lanes`.
///
/// # Safety
/// As [`copy_out_of_ring`].
#[inline(always)]
pub(crate) unsafe fn copy_out_of_ring_by(lane: u32, lanes: u32, dst: *mut u8, span: RingSpan) {
    let (lane, lanes) = (platform::opaque_u32(lane), platform::opaque_u32(lanes));
    // SAFETY: the caller's contract.
    unsafe { copy_piece(lane, lanes, dst, span.first.ptr, span.first.len) };
    if span.second.len > 0 {
        // SAFETY: as above.
        unsafe { copy(lane, lanes, dst.wrapping_add(span.first.len), span.second.ptr, span.second.len) };
    }
}

#[cfg(test)]
mod tests;
