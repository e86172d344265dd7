//! The copy routine against `copy_from_slice`: lanes, alignments, sizes, both directions.
//!
//! `copy` has no barrier inside, so the lanes of a group may run one after another, in any order,
//! on one thread; [`Lane`] panics where a barrier would be. On the CPU a group of one lane takes a
//! shortcut, so the chunked, shifted and edge loops are what 32, 33 and 256 lanes run.

use gpunet_device::copy::{copy, copy_into_ring, copy_out_of_ring};
use gpunet_device::group::{self, Alone};
use gpunet_device::{Group, RingSpan};
use proptest::prelude::*;

/// The lane that is alone, so few that each has many edge bytes, a warp, one more, and a block.
const LANES: [u32; 5] = [1, 2, 32, 33, 256];
/// Alignments that a 16-byte access can tell apart.
const ALIGNMENTS: usize = 16;
/// Up to here, every size at every pair of alignments.
const EVERY_SIZE: usize = 320;
/// The largest size of the sampled tests.
const LARGEST: usize = 8192;
/// Bytes around the target that must stay as they are.
const GUARD: usize = 64;
/// What the guard bytes hold. The source never does.
const UNTOUCHED: u8 = 0xa5;

/// Bytes that begin on a 16-byte boundary.
struct Arena(Vec<u128>);

impl Arena {
    fn filled(len: usize, byte: u8) -> Self {
        Self(vec![u128::from_ne_bytes([byte; 16]); len.div_ceil(16)])
    }

    fn pattern(len: usize) -> Self {
        let mut arena = Self::filled(len, 0);
        for (at, byte) in arena.bytes_mut().iter_mut().enumerate() {
            *byte = pattern(at);
        }
        arena
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: an initialised allocation of that many bytes, borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * 16) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * 16) }
    }
}

/// Differs between neighbours and between chunks, and is never [`UNTOUCHED`].
fn pattern(at: usize) -> u8 {
    let byte = (at.wrapping_mul(37) ^ (at >> 7)) as u8;
    if byte == UNTOUCHED { 0x11 } else { byte }
}

/// One lane of a group that never meets.
struct Lane {
    rank: u32,
    size: u32,
}

impl Group for Lane {
    type Warp = Self;
    type Thread = Self;
    type Front = Alone;

    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn index(&self) -> u32 {
        0
    }
    fn count(&self) -> u32 {
        1
    }
    fn sync(&self) {
        panic!("the copy routine has no barriers");
    }
    fn broadcast(&self, _: u64) -> u64 {
        panic!("the copy routine has no barriers");
    }
    fn sum(&self, _: u32) -> u32 {
        panic!("the copy routine has no barriers");
    }
    fn has_front(&self, _: group::Lane) -> bool {
        true
    }
    fn front(&self, lane: group::Lane) -> Option<Alone> {
        lane.is_leader().then_some(Alone)
    }
    fn warp(&self) -> Self {
        Self { rank: self.rank % 32, size: 32 }
    }
    fn thread(&self) -> Self {
        Self { rank: 0, size: 1 }
    }
}

/// Runs `body` as each lane of a group, the last one first: no lane may count on another.
fn each_lane(lanes: u32, body: impl Fn(&Lane)) {
    (0..lanes).rev().for_each(|rank| body(&Lane { rank, size: lanes }));
}

/// Copies `len` bytes from `from` bytes past a boundary to `to` past one, and checks every byte of
/// the target and around it.
fn check(lanes: u32, from: usize, to: usize, len: usize, source: &Arena, target: &mut Arena) {
    let span = GUARD + to..GUARD + to + len;
    let window = 0..span.end + GUARD;
    target.bytes_mut()[window.clone()].fill(UNTOUCHED);
    let src = source.bytes()[from..from + len].as_ptr();
    let dst = target.bytes_mut()[span.clone()].as_mut_ptr();
    // SAFETY: both slices have `len` bytes, in two allocations that this thread alone uses.
    each_lane(lanes, |lane| unsafe { copy(lane.rank, lane.size, dst, src, len) });
    let (got, what) = (target.bytes(), || format!("{lanes} lanes, {len} bytes from +{from} to +{to}"));
    assert!(got[span.clone()] == source.bytes()[from..from + len], "wrong bytes: {}", what());
    let around = got[..span.start].iter().chain(&got[span.end..window.end]);
    assert!(around.copied().all(|byte| byte == UNTOUCHED), "wrote outside: {}", what());
}

fn arenas(largest: usize) -> (Arena, Arena) {
    let room = largest + ALIGNMENTS;
    (Arena::pattern(room), Arena::filled(room + 2 * GUARD, UNTOUCHED))
}

#[test]
fn every_small_size_at_every_alignment() {
    let (source, mut target) = arenas(EVERY_SIZE);
    for lanes in LANES {
        for len in 0..=EVERY_SIZE {
            for from in 0..ALIGNMENTS {
                for to in 0..ALIGNMENTS {
                    check(lanes, from, to, len, &source, &mut target);
                }
            }
        }
    }
}

/// Sizes round the places where the loops change: where each lane has one chunk more, and where it
/// first has as many as it keeps in flight.
#[test]
fn sizes_round_the_edges_of_the_loops_at_every_alignment() {
    const LONGEST: usize = 70_000;
    let (source, mut target) = arenas(LONGEST);
    for lanes in LANES {
        let row = 16 * lanes as usize;
        let edges = [row, 4 * row, 8 * row, 16 * row].map(|edge| edge.min(LONGEST - 80));
        for (nth, edge) in edges.into_iter().enumerate() {
            for pair in 0..ALIGNMENTS * ALIGNMENTS {
                let (from, to) = (pair / ALIGNMENTS, pair % ALIGNMENTS);
                // One of the sizes from 40 below to 40 above the edge for each pair: all of them
                // occur.
                let len = (edge + (pair * 7 + nth) % 81).saturating_sub(40);
                check(lanes, from, to, len, &source, &mut target);
            }
        }
    }
}

/// Copies into and out of a ring at `position`, and checks ring, target and what lies around them.
fn check_ring(lanes: u32, capacity: usize, position: usize, align: usize, len: usize) {
    let what = || format!("{lanes} lanes, {len} bytes at {position} of {capacity}, user's at +{align}");
    let source = Arena::pattern(align + len);
    let mut ring = Arena::filled(capacity + 2 * GUARD, UNTOUCHED);
    let base = ring.bytes_mut()[GUARD..].as_mut_ptr();
    let span = RingSpan::new(base, capacity as u64, position as u64, len as u64);
    assert_eq!(span.len(), len);
    let src = source.bytes()[align..].as_ptr();
    // SAFETY: the span lies in the ring, the source has `len` bytes, and this thread alone uses
    // both.
    each_lane(lanes, |lane| unsafe { copy_into_ring(lane, span, src) });
    let mut expected = vec![UNTOUCHED; ring.bytes().len()];
    for at in 0..len {
        expected[GUARD + (position + at) % capacity] = source.bytes()[align + at];
    }
    assert!(ring.bytes() == expected, "into the ring: {}", what());

    let mut target = Arena::filled(align + len + 2 * GUARD, UNTOUCHED);
    let dst = target.bytes_mut()[GUARD + align..].as_mut_ptr();
    // SAFETY: as above, with a target of `len` bytes.
    each_lane(lanes, |lane| unsafe { copy_out_of_ring(lane, dst, span) });
    let mut expected = vec![UNTOUCHED; target.bytes().len()];
    expected[GUARD + align..][..len].copy_from_slice(&source.bytes()[align..][..len]);
    assert!(target.bytes() == expected, "out of the ring: {}", what());
}

#[test]
fn a_span_that_wraps_is_copied_at_every_alignment() {
    const CAPACITY: usize = 4096;
    for lanes in LANES {
        for before_the_end in 0..ALIGNMENTS {
            for align in 0..ALIGNMENTS {
                let len = 64 + 5 * before_the_end + align;
                check_ring(lanes, CAPACITY, 3 * CAPACITY - before_the_end, align, len);
            }
        }
        check_ring(lanes, CAPACITY, 777, 3, CAPACITY);
    }
}

#[test]
fn every_number_of_whole_chunks_is_copied() {
    for lanes in LANES {
        for chunks in 0..=2 * lanes as usize + 2 {
            check_ring(lanes, 16 * 1024, 4096, 0, 16 * chunks);
            // The same across the ring's end.
            check_ring(lanes, 16 * 1024, 16 * 1024 - 16 * (chunks / 2), 0, 16 * chunks);
        }
    }
}

/// Bytes between two pages that nobody may touch: a read outside them ends the test program.
struct Fenced {
    base: *mut u8,
}

impl Fenced {
    const PAGE: usize = 4096;
    const LEN: usize = 2 * Self::PAGE;
    const MAPPED: usize = Self::LEN + 2 * Self::PAGE;

    fn new() -> Self {
        let (none, shape) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages at an address of the system's choice.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), Self::MAPPED, none, shape, -1, 0) };
        assert_ne!(map, libc::MAP_FAILED);
        let base = map.cast::<u8>().wrapping_add(Self::PAGE);
        // SAFETY: pages inside the mapping.
        let opened = unsafe { libc::mprotect(base.cast(), Self::LEN, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(opened, 0);
        for at in 0..Self::LEN {
            // SAFETY: inside the opened pages.
            unsafe { base.add(at).write(pattern(at)) };
        }
        Self { base }
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        // SAFETY: the whole mapping of `new`, used no more.
        unsafe { libc::munmap(self.base.wrapping_sub(Self::PAGE).cast(), Self::MAPPED) };
    }
}

#[test]
fn nothing_outside_the_source_is_read() {
    let source = Fenced::new();
    let mut target = Arena::filled(Fenced::LEN + ALIGNMENTS, UNTOUCHED);
    for lanes in [32, 33] {
        for to in 0..ALIGNMENTS {
            for len in (0..600).chain([4095, 4096, 8000, Fenced::LEN]) {
                // At the very beginning, and at the very end.
                for start in [0, Fenced::LEN - len] {
                    let src = source.base.wrapping_add(start);
                    let dst = target.bytes_mut()[to..to + len].as_mut_ptr();
                    // SAFETY: `len` bytes on both sides, which this thread alone uses.
                    each_lane(lanes, |lane| unsafe { copy(lane.rank, lane.size, dst, src, len) });
                    let mut copied = target.bytes()[to..to + len].iter().enumerate();
                    let right = copied.all(|(at, &byte)| byte == pattern(start + at));
                    assert!(right, "{lanes} lanes, {len} bytes from {start} to +{to}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_size_at_any_alignment(
        lanes in prop::sample::select(&LANES[..]),
        from in 0..ALIGNMENTS,
        to in 0..ALIGNMENTS,
        len in 0..=LARGEST,
    ) {
        let (source, mut target) = arenas(LARGEST);
        check(lanes, from, to, len, &source, &mut target);
    }

    #[test]
    fn any_span_of_a_ring_in_both_directions(
        lanes in prop::sample::select(&LANES[..]),
        log2 in 12..=13u32,
        position in 0..1usize << 20,
        align in 0..ALIGNMENTS,
        len in 0..=LARGEST,
    ) {
        let capacity = 1 << log2;
        check_ring(lanes, capacity, position, align, len.min(capacity));
    }
}
