//! Releasing triggers: in order, twice, too late, by many groups, and where none can be released.

use crate::world::{GENERATION, World, buffer, held};
use gpunet_device::abi::entry::{SlotState, lock};
use gpunet_device::abi::position::{MASK, StreamWord};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::poll::POLLOUT;
use gpunet_device::trigger::TriggerExt;
use gpunet_device::{
    Direction, Error, Handle, Net, PollFd, PollSet, RecvHalf, SendHalf, Stream, Timeout, Trigger, poll,
};
use std::sync::atomic::{AtomicBool, Ordering};

const G: Solo = Solo::new(0, 1);

fn release(world: &World, handle: Handle, direction: Direction, position: u64) -> Result<(), Error> {
    Trigger::new(handle, direction, position).release(&G, world.net())
}

#[test]
fn a_trigger_publishes_and_leaves_the_direction_to_the_host() {
    let world = World::new();
    let handle = world.open_driven(1);
    world.take(1, Direction::Send);
    assert_eq!(release(&world, handle, Direction::Send, 100), Ok(()));
    assert_eq!(world.published(1).observe(), 100);
    assert_eq!(world.direction_lock(1, Direction::Send).load(Ordering::SeqCst), held(lock::TAKEN));
    // Whoever uses the socket afterwards goes on there.
    world.direction_lock(1, Direction::Send).store(held(lock::FREE), Ordering::SeqCst);
    assert_eq!(SendHalf::from_handle(&G, world.net(), handle).unwrap().position(), 100);
}

#[test]
fn a_later_trigger_publishes_all_before_it_and_an_earlier_one_nothing() {
    let world = World::new();
    for (direction, word) in [(Direction::Send, world.published(1)), (Direction::Recv, world.consumed(1))] {
        let handle = world.open_driven(1);
        world.take(1, direction);
        for (position, published) in [(0, 0), (64, 64), (16, 64), (64, 64), (65, 65), (0, 65)] {
            assert_eq!(release(&world, handle, direction, position), Ok(()));
            assert_eq!(word.observe(), published);
        }
    }
}

#[test]
fn a_launch_that_releases_a_trigger_is_a_user_of_the_socket() {
    let world = World::new();
    let handle = world.open_driven(1);
    world.take(1, Direction::Send);
    assert_eq!(world.users(1).load(Ordering::SeqCst), 0);
    release(&world, handle, Direction::Send, 1).unwrap();
    assert_ne!(world.users(1).load(Ordering::SeqCst), 0);
}

/// What a trigger of a receiving direction has published needs no announcement, and what calls have
/// not announced before the host took the direction is the host's.
#[test]
fn a_poll_announces_nothing_of_a_direction_that_is_taken() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut recv = RecvHalf::from_handle(&G, world.net(), handle).unwrap();
    world.landed(1).publish(20);
    assert_eq!(recv.recv(&G, buffer(&mut [0; 10])), Ok(10));
    world.take(1, Direction::Recv);
    let mut entry = [PollFd { handle: handle.raw(), events: POLLOUT, revents: 0 }];
    let mut look = |wanted| {
        // SAFETY: the entry outlives the call.
        let set = unsafe { PollSet::from_raw_parts(entry.as_mut_ptr(), 1) };
        set.set(0, PollFd { handle: handle.raw(), events: wanted, revents: 0 });
        poll(&G, world.net(), set, Timeout::NON_BLOCKING)
    };
    assert_eq!((look(POLLOUT), look(0)), (Ok(1), Ok(0)));
    assert_eq!(world.consumed(1).observe(), 0);
    release(&world, handle, Direction::Recv, 20).unwrap();
    assert_eq!((look(0), world.consumed(1).observe()), (Ok(0), 20));
    // The host gives it back: everything is announced.
    world.recv_lock(1).store(held(lock::FREE), Ordering::SeqCst);
    world.consumed(1).set(7);
    assert_eq!((look(0), world.consumed(1).observe()), (Ok(0), 7));
}

#[test]
fn what_cannot_be_released_is_refused() {
    let world = World::new();
    let handle = world.open_driven(1);
    let invalid = Err(Error::InvalidArgument);
    for held in [lock::FREE, lock::CALL, lock::ANNOUNCE].map(held) {
        world.direction_lock(1, Direction::Send).store(held, Ordering::SeqCst);
        assert_eq!(release(&world, handle, Direction::Send, 1), invalid);
        assert_eq!(world.direction_lock(1, Direction::Send).load(Ordering::SeqCst), held);
    }
    world.take(1, Direction::Send);
    assert_eq!(release(&world, handle, Direction::Recv, 1), invalid, "the other direction");
    assert_eq!(release(&world, handle, Direction::Send, MASK + 1), invalid);
    let strange = Trigger { direction: 2, ..Trigger::new(handle, Direction::Send, 1) };
    assert_eq!(strange.release(&G, world.net()), invalid);
    let bad = Err(Error::BadHandle);
    assert_eq!(release(&world, Handle::new(1, GENERATION - 1), Direction::Send, 1), bad);
    assert_eq!(release(&world, Handle::new(65_535, 1), Direction::Send, 1), bad);
    let nothing = Trigger { socket: -1, ..Trigger::new(handle, Direction::Send, 1) };
    assert_eq!(nothing.release(&G, world.net()), bad);
    assert_eq!(release(&world, world.open_listener(2), Direction::Send, 1), Err(Error::NotConnected));
    // SAFETY: 0 stands for no context.
    let nowhere = unsafe { Net::from_raw(0) };
    assert_eq!(Trigger::new(handle, Direction::Send, 1).release(&G, nowhere), Err(Error::NetworkDown));
    world.set_state(1, SlotState::retired(GENERATION));
    assert_eq!(release(&world, handle, Direction::Send, 1), bad);
    assert_eq!(world.published(1).observe(), 0);
}

#[test]
fn after_the_end_only_what_was_published_before_is_released() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    stream.send_all(&G, b"12345").unwrap();
    stream.sender().shutdown(&G);
    world.take(1, Direction::Send);
    assert_eq!(release(&world, handle, Direction::Send, 5), Ok(()));
    assert_eq!(release(&world, handle, Direction::Send, 6), Err(Error::BrokenPipe));
    assert_eq!(StreamWord(world.published(1).observe()), StreamWord::at(5).with_end());
    stream.receiver().shutdown(&G);
    world.take(1, Direction::Recv);
    assert_eq!(release(&world, handle, Direction::Recv, 1), Err(Error::BrokenPipe));
}

/// A group has the lock for some stores. Should it stay there, nobody waits for ever.
#[test]
fn a_group_that_does_not_end_its_release_is_not_waited_for_after_a_cancel() {
    let world = World::new();
    let handle = world.open_driven(1);
    world.direction_lock(1, Direction::Send).store(held(lock::RELEASE), Ordering::SeqCst);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| release(&world, handle, Direction::Send, 1));
        world.cancel().publish(1);
        assert_eq!(waits.join().unwrap(), Err(Error::Canceled));
    });
    assert_eq!(world.published(1).observe(), 0);
    // What need not be waited for is not.
    world.take(1, Direction::Send);
    assert_eq!(release(&world, handle, Direction::Send, 1), Ok(()));
}

/// Groups of several lanes release the triggers of one direction, each in an order of its own;
/// whoever observes the word sees it grow.
#[test]
fn triggers_of_many_groups_never_turn_a_word_back() {
    const GROUPS: u64 = 4;
    const POSITIONS: u64 = 1009;
    let world = World::new();
    let handle = world.open_driven(1);
    world.take(1, Direction::Send);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Acquire) {
                let now = world.published(1).observe();
                assert!(now >= last, "{last} and then {now}");
                last = now;
            }
        });
        let groups: Vec<_> = (0..GROUPS)
            .flat_map(|group| Lanes::group(group as u32, GROUPS as u32, 2))
            .map(|lane| {
                let world = &world;
                scope.spawn(move || {
                    use gpunet_device::Group;
                    let step = 11 + 2 * u64::from(lane.index());
                    for i in 1..POSITIONS {
                        // Every position once; most of them too late.
                        let position = (i + i * step % 37).min(POSITIONS - 1);
                        let trigger = Trigger::new(handle, Direction::Send, position);
                        assert_eq!(trigger.release(&lane, world.net()), Ok(()));
                        // Whoever has released it: it is published.
                        assert!(world.published(1).observe() >= position);
                    }
                })
            })
            .collect();
        groups.into_iter().for_each(|lane| lane.join().unwrap());
        done.store(true, Ordering::Release);
        observer.join().unwrap();
    });
    assert_eq!(world.published(1).observe(), POSITIONS - 1);
    assert_eq!(world.direction_lock(1, Direction::Send).load(Ordering::SeqCst), held(lock::TAKEN));
}
