//! The copy routine: many lanes, sixteen bytes an access, several in flight, any alignment.
//!
//! One lane's loads in flight times the number of lanes is what hides a bus round trip, so each lane
//! loads [`IN_FLIGHT`] chunks before it stores the first. Where source and destination are not
//! aligned alike, the lanes load aligned chunks of the source and shift them; only the few bytes
//! before the first and after the last aligned chunk go one by one.

use crate::Group;
use crate::platform::{self, Chunk};
use gpunet_abi::RingSpan;

/// Chunks a lane loads before it stores. On an H200 eight fill PCIe from one block in the write
/// direction, and the read direction gains up to sixteen (measured: docs/performance.md).
pub const IN_FLIGHT: usize = 8;
/// Bytes of a chunk.
const CHUNK: usize = 16;

/// Copies `len` bytes from `src` to `dst` by lane `lane` of `lanes`; all lanes together copy all.
///
/// No barrier inside: the bytes are there for the group after its next one.
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
    let (lane, lanes) = (lane as usize, lanes as usize);
    let to_aligned = (dst as usize).wrapping_neg() % CHUNK;
    let head = if to_aligned < len { to_aligned } else { len };
    let shift = (src as usize).wrapping_add(head) % CHUNK;
    let body_src = src.wrapping_add(head);
    let body_dst = dst.wrapping_add(head);
    // SAFETY: the parts lie inside the two ranges; see each function.
    let done = unsafe {
        if shift == 0 {
            copy_aligned(lane, lanes, body_dst, body_src, len - head)
        } else {
            copy_shifted(lane, lanes, body_dst, body_src, len - head, shift)
        }
    };
    // SAFETY: the head's bytes, before the first aligned one.
    unsafe { copy_bytes(lane, lanes, dst, src, head) };
    // SAFETY: the tail's bytes, after the last whole chunk.
    unsafe {
        copy_bytes(lane, lanes, body_dst.wrapping_add(done), body_src.wrapping_add(done), len - head - done);
    }
}

/// Both sides aligned to a chunk; returns how many bytes the whole group copies.
///
/// # Safety
/// As [`copy`], both pointers 16-byte aligned.
#[inline(always)]
unsafe fn copy_aligned(lane: usize, lanes: usize, dst: *mut u8, src: *const u8, len: usize) -> usize {
    let chunks = len / CHUNK;
    let mut at = lane;
    while at + (IN_FLIGHT - 1) * lanes < chunks {
        let mut loaded = [[0; 2]; IN_FLIGHT];
        let mut i = 0;
        while i < IN_FLIGHT {
            // SAFETY: chunk `at + i * lanes` is below `chunks`, and aligned.
            loaded[i] = unsafe { platform::load_chunk(src.wrapping_add((at + i * lanes) * CHUNK)) };
            i += 1;
        }
        let mut i = 0;
        while i < IN_FLIGHT {
            // SAFETY: as above, on the destination's side.
            unsafe { platform::store_chunk(dst.wrapping_add((at + i * lanes) * CHUNK), loaded[i]) };
            i += 1;
        }
        at += IN_FLIGHT * lanes;
    }
    while at < chunks {
        // SAFETY: chunk `at` is below `chunks`, and aligned.
        let chunk = unsafe { platform::load_chunk(src.wrapping_add(at * CHUNK)) };
        // SAFETY: as above.
        unsafe { platform::store_chunk(dst.wrapping_add(at * CHUNK), chunk) };
        at += lanes;
    }
    chunks * CHUNK
}

/// Destination aligned, source `shift` bytes past a chunk's start; returns how many bytes the whole
/// group copies.
///
/// # Safety
/// As [`copy`], `dst` 16-byte aligned.
#[inline(always)]
unsafe fn copy_shifted(
    lane: usize,
    lanes: usize,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    shift: usize,
) -> usize {
    // The first destination chunk would need the source chunk that begins `shift` bytes before
    // `src`, which may not be ours to read: start one chunk later, and leave the first to the bytes
    // loop below.
    let skip = CHUNK;
    if len < 4 * CHUNK {
        return 0;
    }
    // SAFETY: the first chunk's bytes, all inside both ranges.
    unsafe { copy_bytes(lane, lanes, dst, src, skip) };
    // Destination chunk k (from 1) takes source bytes 16k .. 16k + 16, that is the end of aligned
    // source chunk k and the start of chunk k + 1; the latter must end inside the source.
    let base = src.wrapping_sub(shift);
    let chunks = (len + shift) / CHUNK - 1;
    let mut at = 1 + lane;
    while at + (IN_FLIGHT - 1) * lanes < chunks {
        let mut low = [[0; 2]; IN_FLIGHT];
        let mut high = [[0; 2]; IN_FLIGHT];
        let mut i = 0;
        while i < IN_FLIGHT {
            let from = base.wrapping_add((at + i * lanes) * CHUNK);
            // SAFETY: source chunk `k >= 1` begins at `src - shift + 16k >= src`, is aligned, and
            // chunk `k + 1 <= chunks` ends at or before `src + len`.
            low[i] = unsafe { platform::load_chunk(from) };
            // SAFETY: as above.
            high[i] = unsafe { platform::load_chunk(from.wrapping_add(CHUNK)) };
            i += 1;
        }
        let mut i = 0;
        while i < IN_FLIGHT {
            // SAFETY: destination chunk `k < chunks` lies inside the range, and is aligned.
            unsafe {
                platform::store_chunk(
                    dst.wrapping_add((at + i * lanes) * CHUNK),
                    join(low[i], high[i], shift),
                );
            }
            i += 1;
        }
        at += IN_FLIGHT * lanes;
    }
    while at < chunks {
        let from = base.wrapping_add(at * CHUNK);
        // SAFETY: as in the loop above.
        let low = unsafe { platform::load_chunk(from) };
        // SAFETY: as in the loop above.
        let high = unsafe { platform::load_chunk(from.wrapping_add(CHUNK)) };
        // SAFETY: as in the loop above.
        unsafe { platform::store_chunk(dst.wrapping_add(at * CHUNK), join(low, high, shift)) };
        at += lanes;
    }
    chunks * CHUNK
}

/// The sixteen bytes that begin `shift` (1 to 15) bytes into `low` and go on in `high`.
/// Little-endian, as both the GPU and the CPUs are.
#[inline(always)]
fn join(low: Chunk, high: Chunk, shift: usize) -> Chunk {
    let (a, b, c, d) = (low[0], low[1], high[0], high[1]);
    let bits = (shift as u32 % 8) * 8;
    let (x, y, z) = if shift < 8 { (a, b, c) } else { (b, c, d) };
    [funnel(x, y, bits), funnel(y, z, bits)]
}

/// The 64 bits that begin `bits` (0 to 56) bits into the 128-bit pair.
#[inline(always)]
fn funnel(low: u64, high: u64, bits: u32) -> u64 {
    // Two steps for the high part: a shift by 64 would be none at all.
    (low >> bits) | ((high << 1) << (63 - bits))
}

/// Copies byte by byte: for the few at the edges.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
unsafe fn copy_bytes(lane: usize, lanes: usize, dst: *mut u8, src: *const u8, len: usize) {
    let mut at = lane;
    while at < len {
        // SAFETY: `at < len`.
        let byte = unsafe { src.wrapping_add(at).read() };
        // SAFETY: `at < len`.
        unsafe { dst.wrapping_add(at).write(byte) };
        at += lanes;
    }
}

/// Copies the group's bytes at `src` into ring memory, as many as the span has.
///
/// # Safety
/// `src` is readable for `span.len()` bytes, and the span is the caller's to write (reserved).
#[inline(always)]
pub unsafe fn copy_into_ring<G: Group>(g: &G, span: RingSpan, src: *const u8) {
    let (lane, lanes) = (g.rank(), g.size());
    // SAFETY: the caller's contract; the pieces of a span do not overlap.
    unsafe { copy(lane, lanes, span.first.ptr, src, span.first.len) };
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
    unsafe { copy(lane, lanes, dst, span.first.ptr, span.first.len) };
    if span.second.len > 0 {
        // SAFETY: as above.
        unsafe { copy(lane, lanes, dst.wrapping_add(span.first.len), span.second.ptr, span.second.len) };
    }
}
