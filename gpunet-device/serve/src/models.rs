//! Every interleaving of what blocks of a server do together, by loom
//! ([`gpunet_device::abi::atomic`]).
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpunet-serve --lib --release models`. Each model
//! names a change of the code by which it fails.

use crate::bells::{Bells, Doorbell, HostBells, HostLook, HostRelay};
use crate::memory::{for_test, no_net};
use crate::{Carve, Lock, Memory, Topics};
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

/// Another block and the host ring for a connection, each after it has stored something: the block
/// gives it turns until it has found both, and goes to no sleep that nobody ends.
///
/// Fails if `count_up` comes after the wake word, if a block looks for whom was rung before it
/// takes the wake words for known, without the fence of `observe_counts`, or without one of the
/// fences of `Bells::wake` and `Doorbell::look`.
#[test]
fn no_ring_is_lost_whoever_rings() {
    let (host, device, data) = (for_test(1024), for_test(1024), for_test(64));
    model(2, move || {
        [host, device, data].into_iter().for_each(clear);
        let mut carve = Carve::new(device, 1).with_places(1);
        let bells = Bells::carve(&mut carve, HostBells::new(host, 1, 0, 1));
        let doorbell = Doorbell::new(bells, HostRelay::carve(&mut carve), 0);
        bells.renew(0);
        let bell = bells.bell(0);
        let other_block = thread::spawn(move || {
            data.u64(0).set(1);
            bells.ring(&Solo::new(0, 1), bell);
        });
        let program = thread::spawn(move || {
            data.u64(8).set(1);
            HostBells::new(host, 1, 0, 1).ring(bell);
        });
        let (g, mut served, mut said) = (Solo::new(0, 1), [0, 0], 0);
        while said < 2 {
            // The wait: it ends once somebody may have rung.
            if !doorbell.words(true).have_changed() {
                thread::yield_now();
                continue;
            }
            let rung = doorbell.look(&g, HostLook::Word);
            let found = bells.counts(0, rung.by_host);
            bells.observe_counts(rung.by_host);
            let found = [0, 1].map(|agent| found[agent].unwrap_or(served[agent]));
            if found != served {
                served = found;
                // The turn.
                said = data.u64(0).get() + data.u64(8).get();
                assert!(said >= found.iter().sum(), "rung before it was said");
            }
        }
        other_block.join().unwrap();
        program.join().unwrap();
    });
}

/// One block notifies a topic while another subscribes to it: the subscriber's first turn, or the
/// one that the notification gives it, finds what was said.
///
/// Fails without one of the two full fences in `topics`.
#[test]
fn a_new_subscriber_misses_nothing() {
    let (host, device, data) = (for_test(1024), for_test(1024), for_test(64));
    model(2, move || {
        [host, device, data].into_iter().for_each(clear);
        let mut carve = Carve::new(device, 1).with_places(1);
        let bells = Bells::carve(&mut carve, HostBells::new(host, 1, 0, 1));
        let topics = Topics::new(&mut carve, 1);
        bells.renew(0);
        let speaker = thread::spawn(move || {
            data.u64(0).set(1);
            topics.notify(&Solo::new(1, 2), &bells, 0);
        });
        topics.subscribe(&Solo::new(0, 2), 0, bells.bell(0));
        let first_look = data.u64(0).get();
        speaker.join().unwrap();
        assert!(first_look == 1 || bells.counts(0, false)[0] == Some(1), "it was neither told nor rung for");
    });
}
