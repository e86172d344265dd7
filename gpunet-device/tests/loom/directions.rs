//! Directions that the host takes, and that groups use afterwards by triggers and gates.

use crate::world::held;
use crate::{G, check, world};
use gpunet_device::abi::atomic::{Ordering, fence};
use gpunet_device::abi::entry::lock;
use gpunet_device::trigger::{GateExt, TriggerExt};
use gpunet_device::{Direction, Error, Gate, SendHalf, Trigger};
use loom::thread;

/// A group takes up a half by the socket's handle while the host takes the direction: one of the
/// two gives way.
///
/// Fails without the fence of `slots::note_user`, or if `use_stream` asks whether the half is taken
/// before it is known as a user.
#[test]
fn a_direction_is_the_hosts_or_a_groups() {
    let world = world();
    world.open_driven(1);
    check(3, world, |world| {
        let handle = gpunet_device::Handle::new(1, crate::world::GENERATION);
        let net = world.net();
        let group = thread::spawn(move || SendHalf::from_handle(&G, net, handle).map(|_| ()));
        // As `Hold::lock` of the proxy's host side; loom's accesses by SeqCst alone are no fences.
        let is_unknown = || {
            fence(Ordering::SeqCst);
            world.users(1).load(Ordering::SeqCst) == 0
        };
        let mut has_taken = false;
        if is_unknown() {
            world.take(1, Direction::Send);
            has_taken = is_unknown();
            if !has_taken {
                world.direction_lock(1, Direction::Send).store(held(lock::FREE), Ordering::SeqCst);
            }
        }
        let used = group.join().unwrap();
        assert!(!has_taken || used == Err(Error::Busy), "two use the half: {used:?}");
    });
}

/// Two groups release the triggers of their messages while the proxy answers what it sees: the word
/// never goes back, and a gate that finds the answer believes it.
///
/// Fails if `release::announce` stores the position after the publish, or publishes by a relaxed
/// store; and if `publish` does not lock.
#[test]
fn a_gate_believes_the_answer_to_a_trigger() {
    let world = world();
    let handle = world.open_driven(1);
    world.take(1, Direction::Send);
    check(2, world, move |world| {
        let net = world.net();
        let proxy = thread::spawn(move || {
            let first = world.published(1).observe();
            world.released(1).publish(first);
            let second = world.published(1).observe();
            assert!(second >= first, "{first} and then {second}");
        });
        let group = thread::spawn(move || Trigger::new(handle, Direction::Send, 2).release(&G, net));
        assert_eq!(Trigger::new(handle, Direction::Send, 1).release(&G, net), Ok(()));
        let passed = Gate::new(handle, Direction::Send, 1).test(&G, net);
        assert!(passed.is_ok(), "{passed:?}");
        assert_eq!(group.join().unwrap(), Ok(()));
        proxy.join().unwrap();
        assert_eq!(world.published(1).observe(), 2);
        assert_eq!(world.direction_lock(1, Direction::Send).load(Ordering::SeqCst), held(lock::TAKEN));
    });
}
