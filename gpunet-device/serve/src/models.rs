//! Every interleaving of what blocks of a server do together, by loom ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-serve --lib --release models`. Each model names a change of the code by which it
//! fails.

use crate::memory::{for_test, no_net};
use crate::{Carve, Lock, Memory, Topics};
use gpunet_device::abi::atomic::model;
use gpunet_device::group::Solo;
use loom::thread;

/// Every execution begins with zeros.
fn clear(memory: Memory) {
    (0..memory.len()).for_each(|at| memory.set_byte(at, 0));
}

/// Two blocks count under a lock, by loads and stores that order nothing: none misses what the other has counted.
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

/// A block notifies a topic while another looks: who sees a notification sees what was stored before it, and the topic's count.
///
/// Fails without the fences of `notify`, without that of `has_news`, or if `notify` counts all before the topic.
#[test]
fn who_hears_of_a_topic_finds_what_there_is_to_say() {
    let memory = for_test(192);
    model(3, move || {
        clear(memory);
        let (topics, said) = (Topics::carve(&mut Carve::new(memory, 1), 1), memory.u64(128));
        let other = thread::spawn(move || {
            said.set(1);
            topics.notify(&Solo::new(1, 2), 0);
        });
        let (g, mut seen) = (Solo::new(0, 2), 0);
        if topics.has_news(&g, &mut seen) {
            assert_eq!((topics.count(0), said.get()), (1, 1), "notified, and not there");
        }
        other.join().unwrap();
        assert_eq!((topics.all(), topics.count(0)), (1, 1));
    });
}
