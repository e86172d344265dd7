//! The body of a copy: aligned chunks of the destination.

use crate::platform::{self, Chunk};

/// Bytes of a chunk.
pub(super) const CHUNK: usize = 16;
/// Lanes of a warp.
pub(super) const WARP: usize = 32;

/// How a lane copies chunks.
pub(super) trait Pass: Copy {
    /// Copies `N` chunks that lie `step` bytes apart: all loads, then all stores.
    ///
    /// # Safety
    /// `dst` is writable for those chunks and aligned; `src` is readable as the implementation
    /// requires.
    unsafe fn pass<const N: usize>(self, dst: *mut u8, src: *const u8, step: u32);
}

/// Both sides are aligned.
#[derive(Clone, Copy)]
pub(super) struct Aligned;

impl Pass for Aligned {
    #[inline(always)]
    unsafe fn pass<const N: usize>(self, dst: *mut u8, src: *const u8, step: u32) {
        let mut loaded: [Chunk; N] = [[0; 2]; N];
        let mut i = 0;
        while i < N {
            // SAFETY: the caller's contract: an aligned chunk of the source.
            loaded[i] = unsafe { platform::load_chunk_once(src.wrapping_add(i * step as usize)) };
            i += 1;
        }
        let mut i = 0;
        while i < N {
            // SAFETY: the caller's contract.
            unsafe { platform::store_chunk(dst.wrapping_add(i * step as usize), loaded[i]) };
            i += 1;
        }
    }
}

/// The source's chunks begin this many bytes (1 to 15) past an aligned chunk, to which `src`
/// points. Each takes two loads, so one more aligned chunk is read than is written.
#[derive(Clone, Copy)]
pub(super) struct Shifted(pub(super) usize);

impl Pass for Shifted {
    #[inline(always)]
    unsafe fn pass<const N: usize>(self, dst: *mut u8, src: *const u8, step: u32) {
        let mut low: [Chunk; N] = [[0; 2]; N];
        let mut high: [Chunk; N] = [[0; 2]; N];
        let mut i = 0;
        while i < N {
            let from = src.wrapping_add(i * step as usize);
            // SAFETY: the caller's contract.
            low[i] = unsafe { platform::load_chunk(from) };
            // SAFETY: the caller's contract: one chunk more than is written.
            high[i] = unsafe { platform::load_chunk(from.wrapping_add(CHUNK)) };
            i += 1;
        }
        let mut i = 0;
        while i < N {
            let chunk = join(low[i], high[i], self.0);
            // SAFETY: the caller's contract.
            unsafe { platform::store_chunk(dst.wrapping_add(i * step as usize), chunk) };
            i += 1;
        }
    }
}

/// Copies `chunks` chunks by tiles of `N` chunks of each lane, then by rows.
///
/// A warp's part of a tile is contiguous. So a lane's chunks lie at fixed distances from one
/// address; with an address for each of them a lane of a large block runs out of registers, and its
/// stores wait for each other. What is less than a tile any number of lanes may copy.
///
/// # Safety
/// `dst` is writable for `chunks` chunks and `src` readable as the pass requires; `lanes` is a
/// multiple of [`WARP`], or there are fewer chunks than a tile has.
#[inline(always)]
pub(super) unsafe fn copy_tiles<P: Pass, const N: usize>(
    pass: P,
    lane: u32,
    lanes: u32,
    dst: *mut u8,
    src: *const u8,
    chunks: usize,
) {
    let (lane, tile) = (lane as usize, lanes as usize * N);
    // Where this lane's warp begins in a row. In a tile of `N` rows it begins `N` times as far.
    let (warp, place) = (lane / WARP * WARP * CHUNK, lane % WARP * CHUNK);
    let first = warp * N + place;
    let (mut to, mut from, mut left) = (dst.wrapping_add(first), src.wrapping_add(first), chunks);
    while left >= tile {
        // SAFETY: this warp's part of the tile, which lies inside both ranges.
        unsafe { pass.pass::<N>(to, from, (WARP * CHUNK) as u32) };
        to = to.wrapping_add(tile * CHUNK);
        from = from.wrapping_add(tile * CHUNK);
        left -= tile;
    }
    let back = first - warp - place;
    // SAFETY: the caller's contract, for what is left: this lane's own chunk of the next row comes
    // first.
    unsafe {
        copy_rows_from::<P, 4>(pass, lane, lanes, to.wrapping_sub(back), from.wrapping_sub(back), left, true);
    }
}

/// Copies `chunks` chunks by rows, a chunk of each lane: `ROWS` (a power of two, at most 16) at a
/// time, or half as many unless there are few lanes, then fewer.
///
/// # Safety
/// `dst` is writable for `chunks` chunks and `src` readable as the pass requires.
#[inline(always)]
pub(super) unsafe fn copy_rows<P: Pass, const ROWS: usize>(
    pass: P,
    lane: u32,
    lanes: u32,
    dst: *mut u8,
    src: *const u8,
    chunks: usize,
    few: bool,
) {
    let at = lane as usize * CHUNK;
    let (to, from) = (dst.wrapping_add(at), src.wrapping_add(at));
    // SAFETY: the caller's contract.
    unsafe { copy_rows_from::<P, ROWS>(pass, lane as usize, lanes, to, from, chunks, few) };
}

/// As [`copy_rows`], from this lane's own chunk of the first row.
///
/// # Safety
/// As [`copy_rows`].
#[inline(always)]
unsafe fn copy_rows_from<P: Pass, const ROWS: usize>(
    pass: P,
    lane: usize,
    lanes: u32,
    mut to: *mut u8,
    mut from: *const u8,
    chunks: usize,
    few: bool,
) {
    let (lanes, step) = (lanes as usize, lanes * CHUNK as u32);
    let mut at = lane;
    macro_rules! rows {
        ($n:literal) => {
            while ROWS >= $n && (ROWS > $n || few) && at + ($n - 1) * lanes < chunks {
                // SAFETY: the last of them is below `chunks`; the rest is the caller's contract.
                unsafe { pass.pass::<$n>(to, from, step) };
                to = to.wrapping_add($n * step as usize);
                from = from.wrapping_add($n * step as usize);
                at += $n * lanes;
            }
        };
    }
    rows!(16);
    rows!(8);
    rows!(4);
    rows!(2);
    rows!(1);
}

/// The sixteen bytes that begin `shift` (1 to 15) bytes into `low` and continue in `high`.
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
