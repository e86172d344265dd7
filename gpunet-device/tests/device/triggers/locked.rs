//! Directions that a group has locked.

use crate::world::{GENERATION, World, held};
use gpunet_device::abi::Status;
use gpunet_device::abi::entry::lock;
use gpunet_device::abi::position::{MASK, StreamWord};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::trigger::{GateExt, LockedDirection, TriggerExt};
use gpunet_device::{Direction, Error, Gate, Handle, Prepared, Timeout, Trigger};
use std::sync::atomic::{AtomicBool, Ordering};

const G: Solo = Solo::new(0, 1);

/// A stream in slot 1 of which a direction is taken.
fn taken(direction: Direction) -> (World, Handle) {
    let world = World::new();
    let handle = world.open_driven(1);
    world.take(1, direction);
    (world, handle)
}

fn state(world: &World, direction: Direction) -> u32 {
    world.direction_lock(1, direction).load(Ordering::SeqCst)
}

#[test]
fn it_waits_finds_places_and_releases() {
    for (direction, other, own) in [
        (Direction::Send, World::released as fn(&World, u32) -> _, World::published as fn(&World, u32) -> _),
        (Direction::Recv, World::landed, World::consumed),
    ] {
        let (world, handle) = taken(direction);
        let mut locked = LockedDirection::lock(&G, world.net(), handle, direction).unwrap();
        assert_eq!(state(&world, direction), held(lock::RELEASE));
        let message = locked.next(64).unwrap();
        assert_eq!(message, Prepared::new(handle, direction, 0, 64));
        assert_eq!(locked.span(message).unwrap().len(), 64);
        assert_eq!(locked.release(&G, message.trigger()), Ok(()));
        assert_eq!((own(&world, 1).observe(), locked.released()), (64, 64));
        assert_eq!(locked.next(64).unwrap().position, 64);
        // One that comes too late does nothing.
        assert_eq!(locked.release(&G, Trigger::new(handle, direction, 10)), Ok(()));
        assert_eq!(own(&world, 1).observe(), 64);
        let gate = Gate::new(handle, direction, 60);
        assert_eq!(locked.wait(&G, gate, Timeout::ns(1)), Err(Error::TimedOut));
        other(&world, 1).publish(60);
        assert_eq!((locked.wait(&G, gate, Timeout::NEVER), locked.seen()), (Ok(()), 60));
        locked.unlock(&G);
        assert_eq!(state(&world, direction), held(lock::TAKEN));
        // The next group goes on there, whether it locks the direction or not.
        let locked = LockedDirection::of(&G, world.net(), message).unwrap();
        assert_eq!((locked.released(), locked.seen()), (64, 60));
        locked.unlock(&G);
        assert_eq!(gate.test(&G, world.net()), Ok(true));
    }
}

#[test]
fn what_names_another_direction_is_refused() {
    let (world, handle) = taken(Direction::Send);
    world.take(1, Direction::Recv);
    let mut locked = LockedDirection::lock(&G, world.net(), handle, Direction::Send).unwrap();
    let other = Handle::new(2, handle.generation());
    for (socket, direction, position) in
        [(handle, Direction::Recv, 1), (other, Direction::Send, 1), (handle, Direction::Send, MASK + 1)]
    {
        assert_eq!(
            locked.wait(&G, Gate::new(socket, direction, position), Timeout::NEVER),
            Err(Error::InvalidArgument)
        );
        assert_eq!(
            locked.release(&G, Trigger::new(socket, direction, position)),
            Err(Error::InvalidArgument)
        );
        assert!(locked.span(Prepared::new(socket, direction, position, 1)).is_err());
    }
    let too_long = locked.capacity() + 1;
    assert_eq!(locked.next(too_long), Err(Error::InvalidArgument));
    assert!(locked.span(Prepared::new(handle, Direction::Send, 0, too_long)).is_err());
    locked.unlock(&G);
    assert_eq!((world.published(1).observe(), world.consumed(1).observe()), (0, 0));
}

#[test]
fn only_what_the_host_has_taken_is_locked() {
    let world = World::new();
    let handle = world.open_driven(1);
    let lock = |handle| LockedDirection::lock(&G, world.net(), handle, Direction::Send).err();
    assert_eq!(lock(handle), Some(Error::InvalidArgument));
    assert_eq!(lock(Handle::new(1, GENERATION + 1)), Some(Error::BadHandle));
    assert_eq!(lock(Handle::new(1 << 15, GENERATION)), Some(Error::BadHandle));
    let nonsense = Prepared { direction: 2, ..Prepared::new(handle, Direction::Send, 0, 1) };
    assert_eq!(LockedDirection::of(&G, world.net(), nonsense).err(), Some(Error::InvalidArgument));
}

#[test]
fn triggers_of_other_groups_wait_and_gates_do_not() {
    let (world, handle) = taken(Direction::Send);
    let mut locked = LockedDirection::lock(&G, world.net(), handle, Direction::Send).unwrap();
    locked.release(&G, Trigger::new(handle, Direction::Send, 10)).unwrap();
    let (passed, done) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (net, passed, done) = (world.net(), &passed, &done);
        scope.spawn(move || {
            let other = Solo::new(1, 2);
            assert_eq!(Gate::new(handle, Direction::Send, 0).wait(&other, net, Timeout::NEVER), Ok(()));
            passed.store(true, Ordering::SeqCst);
            assert_eq!(Trigger::new(handle, Direction::Send, 30).release(&other, net), Ok(()));
            done.store(true, Ordering::SeqCst);
        });
        while !passed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Time for a release that does not wait.
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert!(!done.load(Ordering::SeqCst));
        assert_eq!(world.published(1).observe(), 10);
        locked.release(&G, Trigger::new(handle, Direction::Send, 20)).unwrap();
        locked.unlock(&G);
    });
    assert_eq!(world.published(1).observe(), 30);
}

#[test]
fn groups_take_turns() {
    const GROUPS: u32 = 3;
    const ROUNDS: u64 = 200;
    let (world, handle) = taken(Direction::Send);
    std::thread::scope(|scope| {
        for group in 0..GROUPS {
            for lane in Lanes::group(group, GROUPS, 2) {
                let net = world.net();
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut locked =
                            LockedDirection::lock(&lane, net, handle, Direction::Send).expect("taken");
                        let message = locked.next(1).expect("a position");
                        locked.release(&lane, message.trigger()).expect("open");
                        locked.unlock(&lane);
                    }
                });
            }
        }
    });
    assert_eq!(world.published(1).observe(), u64::from(GROUPS) * ROUNDS);
}

/// Whatever ends a wait, what had come by then is known.
#[test]
fn a_wait_that_fails_tells_how_far_it_came() {
    let end = |position| StreamWord::at(position).with_end().0;
    let err = |position| StreamWord::at(position).with_err().0;
    for (word, status, error, came) in [
        (end(40), None, Error::NoData, 40),
        (err(40), None, Error::ConnectionReset, 40),
        // A stream is released like this, when the status says why. The mark's position is not
        // believed.
        (err(40), Some(Error::TimedOut), Error::TimedOut, 0),
    ] {
        let (world, handle) = taken(Direction::Recv);
        let mut locked = LockedDirection::lock(&G, world.net(), handle, Direction::Recv).unwrap();
        if let Some(error) = status {
            world.status(1).publish(Status::open(GENERATION).with_error(error).0);
        }
        world.landed(1).publish(word);
        assert_eq!(locked.wait(&G, Gate::new(handle, Direction::Recv, 64), Timeout::NEVER), Err(error));
        assert_eq!(locked.seen(), came);
        locked.unlock(&G);
        assert_eq!(state(&world, Direction::Recv), held(lock::TAKEN));
    }
}

/// The group that finds it marks the direction itself, although it has the lock.
#[test]
fn an_invalid_word_ends_the_direction() {
    let (world, handle) = taken(Direction::Recv);
    let mut locked = LockedDirection::lock(&G, world.net(), handle, Direction::Recv).unwrap();
    world.landed(1).publish(1 << 40);
    assert_eq!(locked.wait(&G, Gate::new(handle, Direction::Recv, 64), Timeout::NEVER), Err(Error::Protocol));
    assert_eq!(locked.release(&G, Trigger::new(handle, Direction::Recv, 1)), Err(Error::Protocol));
    locked.unlock(&G);
    assert!(StreamWord(world.consumed(1).observe()).err());
    let mut locked = LockedDirection::lock(&G, world.net(), handle, Direction::Recv).unwrap();
    assert_eq!(locked.release(&G, Trigger::new(handle, Direction::Recv, 1)), Err(Error::Protocol));
    locked.unlock(&G);
}
