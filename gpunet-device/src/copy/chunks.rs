//! The body of a copy: aligned chunks of the destination.

use super::{CHUNK, FEW_LANES, IN_FLIGHT, IN_FLIGHT_OF_FEW, WARP};
use crate::platform::{self, Chunk};

/// Calls `$pass` for this lane's chunks, as many at a time as there are.
macro_rules! in_flight {
    ($lane:expr, $lanes:expr, $chunks:expr, $pass:ident, $few:expr, $most_of_few:expr, $most:expr, $args:tt) => {{
        let mut at = $lane;
        while $lanes <= $few && at + ($most_of_few - 1) * $lanes < $chunks {
            in_flight!(@call $pass, $most_of_few, at, $args);
            at += $most_of_few * $lanes;
        }
        while at + ($most - 1) * $lanes < $chunks {
            in_flight!(@call $pass, $most, at, $args);
            at += $most * $lanes;
        }
        if $most > 4 && at + 3 * $lanes < $chunks {
            in_flight!(@call $pass, 4, at, $args);
            at += 4 * $lanes;
        }
        if at + $lanes < $chunks {
            in_flight!(@call $pass, 2, at, $args);
            at += 2 * $lanes;
        }
        if at < $chunks {
            in_flight!(@call $pass, 1, at, $args);
        }
    }};
    (@call $pass:ident, $n:expr, $at:ident, ($($arg:expr),*)) => {
        // SAFETY: chunk `at + (n - 1) * lanes` is below `chunks`; the rest is the caller's contract.
        unsafe { $pass::<{ $n }>($at, $($arg),*) }
    };
}

/// Copies `chunks` chunks, both sides aligned.
///
/// # Safety
/// `src` is readable and `dst` writable for so many chunks; both are 16-byte aligned.
#[inline(always)]
pub(super) unsafe fn copy_aligned(lane: usize, lanes: usize, dst: *mut u8, src: *const u8, chunks: usize) {
    in_flight!(lane, lanes, chunks, aligned, FEW_LANES, IN_FLIGHT_OF_FEW, IN_FLIGHT, (lanes, dst, src));
}

/// As [`copy_aligned`], by whole warps, with [`IN_FLIGHT`] for groups of all sizes: less code, to be inlined.
///
/// Warps take tiles in turn, [`IN_FLIGHT`] chunks of each lane, and a warp's part of a tile is contiguous. So a
/// lane's chunks lie at fixed distances from one address; with an address for each of them a lane of a large block
/// runs out of registers, and its stores wait for each other.
///
/// # Safety
/// As [`copy_aligned`]; `lanes` is a multiple of [`WARP`].
#[inline(always)]
pub(super) unsafe fn copy_plain(lane: usize, lanes: usize, dst: *mut u8, src: *const u8, chunks: usize) {
    let (tile, first) = (lanes * IN_FLIGHT, (lane / WARP) * WARP * IN_FLIGHT + lane % WARP);
    let (mut to, mut from) = (dst.wrapping_add(first * CHUNK), src.wrapping_add(first * CHUNK));
    let mut done = 0;
    while done + tile <= chunks {
        // SAFETY: this warp's part of the tile, which lies inside both ranges.
        unsafe { aligned::<IN_FLIGHT>(0, WARP, to, from) };
        to = to.wrapping_add(tile * CHUNK);
        from = from.wrapping_add(tile * CHUNK);
        done += tile;
    }
    in_flight!(done + lane, lanes, chunks, aligned, 0, 1, 4, (lanes, dst, src));
}

/// Copies `chunks` chunks to `dst` from `shift` bytes past `base`. Each takes two loads, so half as
/// many are under way.
///
/// # Safety
/// `dst` is writable for so many chunks and `base` readable for one more; both are 16-byte aligned.
/// `shift` is 1 to 15.
#[inline(always)]
pub(super) unsafe fn copy_shifted(
    lane: usize,
    lanes: usize,
    dst: *mut u8,
    base: *const u8,
    chunks: usize,
    shift: usize,
) {
    in_flight!(
        lane,
        lanes,
        chunks,
        shifted,
        2 * FEW_LANES,
        IN_FLIGHT_OF_FEW / 2,
        IN_FLIGHT / 2,
        (lanes, dst, base, shift)
    );
}

/// Copies the chunks `at`, `at + lanes` and so on, `N` of them.
///
/// # Safety
/// As [`copy_aligned`], for those chunks.
#[inline(always)]
unsafe fn aligned<const N: usize>(at: usize, lanes: usize, dst: *mut u8, src: *const u8) {
    let mut loaded: [Chunk; N] = [[0; 2]; N];
    let mut i = 0;
    while i < N {
        // SAFETY: the caller's contract.
        loaded[i] = unsafe { platform::load_chunk_once(src.wrapping_add((at + i * lanes) * CHUNK)) };
        i += 1;
    }
    let mut i = 0;
    while i < N {
        // SAFETY: the caller's contract.
        unsafe { platform::store_chunk(dst.wrapping_add((at + i * lanes) * CHUNK), loaded[i]) };
        i += 1;
    }
}

/// As [`aligned`], each chunk from two of the source.
///
/// # Safety
/// As [`copy_shifted`], for those chunks.
#[inline(always)]
unsafe fn shifted<const N: usize>(at: usize, lanes: usize, dst: *mut u8, base: *const u8, shift: usize) {
    let mut low: [Chunk; N] = [[0; 2]; N];
    let mut high: [Chunk; N] = [[0; 2]; N];
    let mut i = 0;
    while i < N {
        let from = base.wrapping_add((at + i * lanes) * CHUNK);
        // SAFETY: the caller's contract.
        low[i] = unsafe { platform::load_chunk(from) };
        // SAFETY: the caller's contract: one chunk more than is written.
        high[i] = unsafe { platform::load_chunk(from.wrapping_add(CHUNK)) };
        i += 1;
    }
    let mut i = 0;
    while i < N {
        let chunk = join(low[i], high[i], shift);
        // SAFETY: the caller's contract.
        unsafe { platform::store_chunk(dst.wrapping_add((at + i * lanes) * CHUNK), chunk) };
        i += 1;
    }
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
