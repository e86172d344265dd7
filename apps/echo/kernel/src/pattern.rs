//! The contents of messages: bytes that depend on connection, message and offset.

use gpunet_device::{Buffer, Group};

/// Bytes of one step of the pattern.
const WORD: usize = 8;

/// The bytes of one message. Each byte that is lost, doubled, moved, or of another message or
/// connection differs from the expected one with probability 255/256, independently of the others.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    key: u64,
}

impl Pattern {
    /// The pattern of a message.
    #[must_use]
    #[inline(always)]
    pub const fn new(connection: u32, message: u64) -> Self {
        Self { key: mix(mix(connection as u64 + 1) ^ message) }
    }

    /// Bytes `8 * index` to `8 * index + 7`, in memory order.
    #[must_use]
    #[inline(always)]
    pub const fn word(self, index: u64) -> u64 {
        mix(self.key ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le()
    }

    /// Byte `offset`.
    #[must_use]
    #[inline(always)]
    pub const fn byte(self, offset: usize) -> u8 {
        (u64::from_le(self.word((offset / WORD) as u64)) >> (offset % WORD * 8)) as u8
    }

    /// Writes the message. All lanes share the work; a barrier follows before anyone reads it.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) fn fill<G: Group>(self, g: &G, buffer: Buffer) {
        let (ptr, words) = (buffer.as_ptr(), buffer.len() / WORD);
        let mut at = g.rank() as usize;
        while at < words {
            // SAFETY: word `at` lies inside the buffer, which is this group's; the client's buffers
            // are 16-aligned.
            unsafe { ptr.wrapping_add(at * WORD).cast::<u64>().write(self.word(at as u64)) };
            at += g.size() as usize;
        }
        let mut at = words * WORD + g.rank() as usize;
        while at < buffer.len() {
            // SAFETY: byte `at` lies inside the buffer.
            unsafe { ptr.wrapping_add(at).write(self.byte(at)) };
            at += g.size() as usize;
        }
    }

    /// Counts the bytes that differ. All lanes share the work and get the same number; also a
    /// barrier.
    #[inline(always)]
    #[allow(unsafe_code)]
    pub(crate) fn check<G: Group>(self, g: &G, buffer: Buffer) -> u32 {
        let (ptr, words) = (buffer.as_ptr(), buffer.len() / WORD);
        let mut wrong = 0;
        let mut at = g.rank() as usize;
        while at < words {
            // SAFETY: as in `fill`; the barrier of the receive before made the bytes visible.
            let found = unsafe { ptr.wrapping_add(at * WORD).cast::<u64>().read() };
            wrong += differing_bytes(found ^ self.word(at as u64));
            at += g.size() as usize;
        }
        let mut at = words * WORD + g.rank() as usize;
        while at < buffer.len() {
            // SAFETY: as in `fill`.
            let found = unsafe { ptr.wrapping_add(at).read() };
            wrong += u32::from(found != self.byte(at));
            at += g.size() as usize;
        }
        g.sum(wrong)
    }

    /// The offset of the first byte that differs, or the length. By one lane: only for the error
    /// message.
    #[allow(unsafe_code)]
    pub(crate) fn first_difference(self, buffer: Buffer) -> usize {
        let mut at = 0;
        // SAFETY: as in `fill`.
        while at < buffer.len() && unsafe { buffer.as_ptr().wrapping_add(at).read() } == self.byte(at) {
            at += 1;
        }
        at
    }
}

#[inline(always)]
const fn differing_bytes(difference: u64) -> u32 {
    // Almost always 0, and then this is one comparison.
    if difference == 0 {
        return 0;
    }
    let mut count = 0;
    let mut at = 0;
    while at < WORD {
        count += ((difference >> (at * 8)) & 0xff != 0) as u32;
        at += 1;
    }
    count
}

/// The finaliser of splitmix64 (public domain, Steele, Lea and Flood 2014): every input bit reaches
/// every output bit.
#[inline(always)]
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpunet_device::group::{Lanes, Solo};
    use std::vec;

    #[allow(unsafe_code)]
    fn buffer(words: &mut [u64], len: usize) -> Buffer {
        assert!(len <= words.len() * WORD);
        // SAFETY: inside the slice, which the tests keep alive and lend to nobody else meanwhile.
        unsafe { Buffer::from_raw_parts(words.as_mut_ptr().cast(), len) }
    }

    #[test]
    fn any_number_of_lanes_writes_the_same_and_finds_it_right() {
        for (lanes, len) in [(1, 1), (3, 7), (2, 8), (5, 4099), (33, 777), (64, 64)] {
            let (mut alone, mut together) = (vec![0; 600], vec![0; 600]);
            Pattern::new(3, 9).fill(&Solo::new(0, 1), buffer(&mut alone, len));
            let shared = buffer(&mut together, len);
            std::thread::scope(|scope| {
                for lane in Lanes::group(0, 1, lanes) {
                    scope.spawn(move || {
                        Pattern::new(3, 9).fill(&lane, shared);
                        lane.sync();
                        assert_eq!(Pattern::new(3, 9).check(&lane, shared), 0);
                    });
                }
            });
            assert_eq!(alone, together, "{lanes} lanes, {len} bytes");
        }
    }

    #[test]
    fn every_changed_byte_is_found_and_the_first_is_named() {
        let solo = Solo::new(0, 1);
        let pattern = Pattern::new(0, 0);
        for len in [1, 8, 13, 100] {
            for bad in 0..len {
                let mut words = vec![0; 20];
                let bytes = buffer(&mut words, len);
                pattern.fill(&solo, bytes);
                assert_eq!(pattern.first_difference(bytes), len);
                words[bad / 8] ^= 0x40 << (bad % 8 * 8);
                let bytes = buffer(&mut words, len);
                assert_eq!((pattern.check(&solo, bytes), pattern.first_difference(bytes)), (1, bad));
            }
        }
    }

    #[test]
    fn connections_and_messages_differ() {
        let mut words = vec![0; 128];
        let solo = Solo::new(0, 1);
        let bytes = buffer(&mut words, 1024);
        Pattern::new(1, 5).fill(&solo, bytes);
        for other in [Pattern::new(1, 6), Pattern::new(2, 5), Pattern::new(0, 5), Pattern::new(5, 1)] {
            assert!(other.check(&solo, bytes) > 1000);
        }
    }
}
