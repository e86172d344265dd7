//! The contents of transfers: the byte at position `p` of a direction is `p` modulo 256.
//!
//! That is what rstream's buffers hold under `-T v`. The bytes from any position on are in a buffer
//! that starts at position 0 and is one period longer, so a sender writes its buffer once and sends
//! from different offsets in it.

use gpunet_device::{Buffer, Group};

/// The bytes repeat after this many.
pub(crate) const PERIOD: usize = 256;

/// Bytes of one step.
const WORD: usize = 8;

/// Loads that a lane has in flight before it uses the first: 256 lanes then have 16 KiB in flight,
/// about what hides the latency of a GPU's memory.
const IN_FLIGHT: usize = 8;

/// The eight bytes from `position` on, in memory order.
#[inline(always)]
const fn word(position: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    const STEPS: u64 = 0x0706_0504_0302_0100;
    let first = (position & 0xff) * 0x0101_0101_0101_0101;
    // Adds byte by byte: the top bit of each apart, so that no carry reaches the next.
    (((first & LOW) + STEPS) ^ (first & !LOW)).to_le()
}

/// Fills a 16-aligned buffer with the bytes from position 0 on. All lanes share the work; a barrier
/// follows before anyone reads it.
#[inline(never)]
#[allow(unsafe_code)]
pub(crate) fn fill<G: Group>(g: &G, buffer: Buffer) {
    let (ptr, words) = (buffer.as_ptr(), buffer.len() / WORD);
    let lanes = g.size() as usize;
    let mut at = g.rank() as usize;
    while at < words {
        // SAFETY: an aligned word inside the buffer, which is this group's.
        unsafe { ptr.wrapping_add(at * WORD).cast::<u64>().write(word((at * WORD) as u64)) };
        at += lanes;
    }
    let mut at = words * WORD + g.rank() as usize;
    while at < buffer.len() {
        // SAFETY: byte `at` lies inside the buffer.
        unsafe { ptr.wrapping_add(at).write(at as u8) };
        at += lanes;
    }
}

/// Returns whether a buffer holds the bytes from `position` on. All lanes share the work and get
/// the same answer; also a barrier.
///
/// Kept out of line: its loads in flight need registers, and the transfers have none to spare.
#[inline(never)]
#[allow(unsafe_code)]
pub(crate) fn is_right<G: Group>(g: &G, buffer: Buffer, position: u64) -> bool {
    let (ptr, len) = (buffer.as_ptr(), buffer.len());
    let to_aligned = ptr.addr().wrapping_neg() % WORD;
    let head = if to_aligned < len { to_aligned } else { len };
    let words = (len - head) / WORD;
    let (lane, lanes) = (g.rank() as usize, g.size() as usize);
    let load = |at: usize| {
        // SAFETY: `at` is less than `words`, so this is an aligned word inside the buffer; the
        // barrier at the end of the receive made it visible.
        unsafe { ptr.wrapping_add(head + at * WORD).cast::<u64>().read() }
    };
    let expected = |at: usize| word(position + (head + at * WORD) as u64);
    let mut wrong = 0;
    let mut at = lane;
    while at + (IN_FLIGHT - 1) * lanes < words {
        let mut found = [0; IN_FLIGHT];
        let mut step = 0;
        while step < IN_FLIGHT {
            found[step] = load(at + step * lanes);
            step += 1;
        }
        step = 0;
        while step < IN_FLIGHT {
            wrong |= found[step] ^ expected(at + step * lanes);
            step += 1;
        }
        at += IN_FLIGHT * lanes;
    }
    while at < words {
        wrong |= load(at) ^ expected(at);
        at += lanes;
    }
    // The bytes before the first word and after the last, by the first lanes.
    let rest = head + words * WORD;
    let edges = head + (len - rest);
    let mut edge = lane;
    while edge < edges {
        let at = if edge < head { edge } else { rest + (edge - head) };
        wrong |= u64::from(byte(buffer, at) ^ (position + at as u64) as u8);
        edge += lanes;
    }
    g.sum(u32::from(wrong != 0)) == 0
}

/// The offset of the first byte that differs from the bytes from `position` on, or the length. Byte
/// by byte, each lane for itself: only for the error message.
#[cold]
#[inline(never)]
pub(crate) fn first_wrong(buffer: Buffer, position: u64) -> usize {
    let mut at = 0;
    while at < buffer.len() && byte(buffer, at) == (position + at as u64) as u8 {
        at += 1;
    }
    at
}

/// Byte `at`, which lies inside the buffer.
#[inline(always)]
#[allow(unsafe_code)]
fn byte(buffer: Buffer, at: usize) -> u8 {
    debug_assert!(at < buffer.len());
    // SAFETY: inside the buffer (both callers stay below its length), which is this group's.
    unsafe { buffer.as_ptr().wrapping_add(at).read() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::{Lanes, Solo};
    use std::vec::Vec;
    use std::{thread, vec};

    /// `len` bytes from `offset` of the words on.
    #[allow(unsafe_code)]
    fn buffer(words: &mut [u128], offset: usize, len: usize) -> Buffer {
        assert!(offset + len <= words.len() * 16);
        // SAFETY: inside the slice, which the tests keep alive and lend to nobody else meanwhile.
        unsafe { Buffer::from_raw_parts(words.as_mut_ptr().cast::<u8>().wrapping_add(offset), len) }
    }

    #[allow(unsafe_code)]
    fn write(words: &mut [u128], offset: usize, bytes: impl Iterator<Item = u8>) {
        for (at, byte) in bytes.enumerate() {
            let place = buffer(words, offset + at, 1);
            // SAFETY: one byte inside the slice.
            unsafe { place.as_ptr().write(byte) };
        }
    }

    #[test]
    fn words_count_byte_by_byte_across_the_wrap() {
        for position in 0..600u64 {
            let expected: [u8; 8] = std::array::from_fn(|at| (position + at as u64) as u8);
            assert_eq!(word(position).to_ne_bytes(), expected, "{position}");
        }
        assert_eq!(word(u64::from(u32::MAX) << 8), word(0));
    }

    #[test]
    fn any_number_of_lanes_fills_and_finds_right_what_plain_counting_gives() {
        for (lanes, len) in [(1, 1), (3, 7), (2, 8), (5, 4099), (33, 777), (64, 64), (4, 3000)] {
            let mut memory = vec![0u128; 300];
            let shared = buffer(&mut memory, 0, len);
            thread::scope(|scope| {
                for lane in Lanes::group(0, 1, lanes) {
                    scope.spawn(move || {
                        fill(&lane, shared);
                        lane.sync();
                        assert!(is_right(&lane, shared, 0));
                        assert!(!is_right(&lane, shared, 1));
                        assert!(is_right(&lane, shared.skip(5), 5 + 256 * 7));
                    });
                }
            });
            let bytes: Vec<u8> = memory.iter().flat_map(|chunk| chunk.to_ne_bytes()).collect();
            assert!((0..len).all(|at| bytes[at] == at as u8), "{lanes} lanes, {len} bytes");
            assert!(bytes[len..].iter().all(|&byte| byte == 0), "nothing past the end");
        }
    }

    #[test]
    fn one_flipped_bit_anywhere_is_found_and_its_place_is_named() {
        let solo = Solo::new(0, 1);
        for (offset, len) in [(0, 1), (3, 1), (0, 64), (5, 100), (9, 7), (1, 300)] {
            for bad in 0..len {
                let position = 0xff_fff0 + bad as u64;
                let mut memory = vec![0u128; 24];
                let right = (0..len).map(|at| (position + at as u64) as u8);
                write(&mut memory, offset, right.clone());
                assert!(is_right(&solo, buffer(&mut memory, offset, len), position));
                assert_eq!(first_wrong(buffer(&mut memory, offset, len), position), len);
                let flip = |(at, byte): (usize, u8)| if at == bad { byte ^ 1 << (bad % 8) } else { byte };
                write(&mut memory, offset, right.enumerate().map(flip));
                assert!(!is_right(&solo, buffer(&mut memory, offset, len), position), "{offset} {len} {bad}");
                assert_eq!(first_wrong(buffer(&mut memory, offset, len), position), bad);
            }
        }
    }

    #[test]
    fn bytes_beside_the_buffer_do_not_matter() {
        let solo = Solo::new(0, 1);
        let mut memory = vec![u128::MAX; 8];
        write(&mut memory, 11, (0..50u8).map(|at| at + 7));
        assert!(is_right(&solo, buffer(&mut memory, 11, 50), 7));
        assert!(!is_right(&solo, buffer(&mut memory, 10, 51), 6));
        assert!(!is_right(&solo, buffer(&mut memory, 11, 51), 7));
        assert!(is_right(&solo, buffer(&mut memory, 11, 0), 99), "an empty buffer is right");
    }
}
