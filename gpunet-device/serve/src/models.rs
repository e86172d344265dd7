//! Every interleaving of what blocks of a server do together, by loom
//! ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-serve --lib --release models`. Each model
//! names a change of the code by which it fails.

use crate::memory::{for_test, no_net};
use crate::{Lock, Memory};
use gpunet_device::abi::atomic::model;
use gpunet_device::group::Solo;
use loom::thread;

/// Every execution begins with zeros.
fn clear(memory: Memory) {
    (0..memory.len()).for_each(|at| memory.set_byte(at, 0));
}

/// Two blocks count under a lock, by loads and stores that order nothing: none misses what the
/// other has counted.
///
/// Fails if `try_lock` does not acquire, or `unlock` does not release.
#[test]
fn who_holds_a_lock_sees_what_its_last_holder_wrote() {
    let memory = for_test(64);
    model(3, move || {
        clear(memory);
        let block = move |index| {
            let (g, lock, count) = (Solo::new(index, 2), Lock::at(memory, 0), memory.u64(8));
            lock.acquire(&g, no_net()).unwrap();
            count.set(count.get() + 1);
            lock.release(&g);
        };
        let other = thread::spawn(move || block(1));
        block(0);
        other.join().unwrap();
        assert_eq!(memory.u64(8).get(), 2);
    });
}
