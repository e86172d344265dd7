//! The copy against `copy_from_slice`, with guard bytes round the destination. Lanes run one after
//! the other: they share nothing, so their order does not matter.

use super::*;
use proptest::prelude::*;

const GUARD: usize = 32;

/// Copies with `lanes` lanes between places so far past a 16-byte boundary, out of line and in
/// line, and checks every byte.
fn check(lanes: u32, dst_off: usize, src_off: usize, len: usize) {
    // SAFETY: `check_by` gives ranges inside their vectors.
    check_by(lanes, dst_off, src_off, len, |lane, dst, src| unsafe {
        copy_part(lane, lanes, dst, src, len, copy_chunks);
    });
    // SAFETY: as above.
    check_by(lanes, dst_off, src_off, len, |lane, dst, src| unsafe {
        copy_part(lane, lanes, dst, src, len, copy_small);
    });
    // SAFETY: as above.
    check_by(lanes, dst_off, src_off, len, |lane, dst, src| unsafe {
        copy_piece(lane, lanes, dst, src, len)
    });
    // SAFETY: as above.
    check_by(lanes, dst_off, src_off, len, |lane, dst, src| unsafe {
        copy_words(lane, lanes, dst, src, len)
    });
}

fn check_by(lanes: u32, dst_off: usize, src_off: usize, len: usize, copy: impl Fn(u32, *mut u8, *const u8)) {
    // u128 for the alignment. Exact allocations: an access outside is one outside the source.
    let mut dst = vec![0x5au8; len + 2 * GUARD + 32];
    let mut src = vec![0u8; len + 32];
    let d = dst.as_ptr().align_offset(16) + 16 + dst_off;
    let s = src.as_ptr().align_offset(16) + src_off;
    for (i, byte) in src[s..s + len].iter_mut().enumerate() {
        *byte = (i * 7 + i / 251 + 1) as u8;
    }
    for lane in 0..lanes {
        copy(lane, dst.as_mut_ptr().wrapping_add(d), src.as_ptr().wrapping_add(s));
    }
    let what = (lanes, dst_off, src_off, len);
    assert!(dst[d..d + len] == src[s..s + len], "wrong bytes: {what:?}");
    assert!(dst[..d].iter().chain(&dst[d + len..]).all(|&b| b == 0x5a), "wrote outside: {what:?}");
}

#[test]
fn small_copies_are_right_at_every_alignment() {
    for lanes in [1, 3, 32, 33] {
        for dst_off in 0..16 {
            for src_off in 0..16 {
                for len in 0..130 {
                    check(lanes, dst_off, src_off, len);
                }
            }
        }
    }
}

#[test]
fn every_number_of_passes_is_taken() {
    // Up to 16 + 8 + 4 + 2 + 1 chunks a lane, and more; whole warps, and others.
    for lanes in [1, 32, 96, 512, 513] {
        for chunks in 0..50 {
            for (dst_off, src_off) in [(0, 0), (5, 5), (0, 1), (3, 14), (15, 0)] {
                for extra in [0, 1, 15] {
                    check(lanes, dst_off, src_off, chunks * 16 * lanes as usize + extra);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn copies_are_right(
        lanes in prop::sample::select(vec![1u32, 2, 31, 32, 33, 64, 256, 1024]),
        dst_off in 0usize..16,
        src_off in 0usize..16,
        len in 0usize..8192,
    ) {
        check(lanes, dst_off, src_off, len);
    }

    #[test]
    fn the_plan_stays_inside(dst in 0usize..64, src in 0usize..64, len in 0usize..4096) {
        let (dst, src) = (dst + 4096, src + 4096);
        let plan = Plan::new(dst, src, len);
        let body = plan.chunks * CHUNK;
        prop_assert!(plan.head + body <= len);
        prop_assert!(len - body <= 61, "{} bytes one by one", len - body);
        if plan.chunks > 0 {
            prop_assert_eq!((dst + plan.head) % CHUNK, 0);
            let base = src + plan.head - plan.shift;
            prop_assert_eq!(base % CHUNK, 0);
            prop_assert!(base >= src);
            let read = if plan.shift == 0 { body } else { body + CHUNK };
            prop_assert!(base + read <= src + len);
        }
    }
}
