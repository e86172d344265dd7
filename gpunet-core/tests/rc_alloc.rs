//! In steady state the rc state machine allocates nothing.

use gpunet_core::rc::Variant;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[path = "../benches/rc/pair.rs"]
mod pair;

use pair::{Pair, RING};

thread_local! {
    /// Allocations of this thread: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|allocations| allocations.set(allocations.get() + 1));
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is a thread-local
// without destructor or lazy initialisation, so counting allocates nothing itself.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps alloc's contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from the system's allocator with this layout, by way of `alloc`.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        count();
        // SAFETY: as in `dealloc`; the caller answers for the new length.
        unsafe { System.realloc(at, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_machine_allocates_when_it_is_made_and_never_again() {
    for variant in [Variant::Immediate, Variant::Send] {
        let before = ALLOCATIONS.get();
        let mut pair = Pair::new(variant);
        assert!(ALLOCATIONS.get() > before, "the allocations are counted");
        let before = ALLOCATIONS.get();
        for round in 0..10_000u64 {
            let len = [1, 64, 5000, 65_536, u64::from(RING)][(round % 5) as usize];
            pair.transfer((round / 5 % 2) as usize, len);
        }
        pair.ends.iter_mut().for_each(|end| end.shutdown());
        pair.transfer(0, 0);
        assert!(pair.ends[1].is_peer_shut());
        assert_eq!(ALLOCATIONS.get() - before, 0);
    }
}

/// With a full send queue, too: completions come late and all at once.
#[test]
fn a_full_send_queue_fits_what_was_allocated() {
    for variant in [Variant::Immediate, Variant::Send] {
        let [mut machine, _] = Pair::new(variant).ends;
        let before = ALLOCATIONS.get();
        for round in 1..=200u64 {
            machine.offer(round * 1000);
            let mut posted = 0;
            while machine.poll(0).is_some() {
                posted += 1;
            }
            if round % 100 == 0 {
                assert_eq!(posted, 0, "the queue is full");
                let under_way = 64;
                (0..under_way).for_each(|_| machine.handle_sent(0));
            }
        }
        assert_eq!(ALLOCATIONS.get() - before, 0);
    }
}
