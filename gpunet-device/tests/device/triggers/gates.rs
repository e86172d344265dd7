//! Gates: what lets them pass, and what tells that they never will.

use crate::world::{GENERATION, World, held};
use gpunet_device::abi::Status;
use gpunet_device::abi::entry::{SlotState, lock};
use gpunet_device::abi::layout::HEARTBEAT_DOWN;
use gpunet_device::abi::position::{MASK, StreamWord};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::trigger::{GateExt, TriggerExt};
use gpunet_device::{Direction, Error, Gate, Handle, Stream, Timeout, Trigger};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const G: Solo = Solo::new(0, 1);
const END: fn(u64) -> u64 = |position| StreamWord::at(position).with_end().0;
const ERR: fn(u64) -> u64 = |position| StreamWord::at(position).with_err().0;

/// A stream whose both directions are taken, in slot 1; 1000 bytes have been sent.
fn taken() -> (World, Handle) {
    let world = World::new();
    let handle = world.open_driven(1);
    world.take(1, Direction::Send);
    world.take(1, Direction::Recv);
    Trigger::new(handle, Direction::Send, 1000).release(&G, world.net()).unwrap();
    (world, handle)
}

fn fail(world: &World, error: Error) {
    world.status(1).publish(Status::open(GENERATION).with_error(error).0);
}

/// A wait and a test at that gate, which end alike.
#[track_caller]
fn pass(world: &World, handle: Handle, direction: Direction, position: u64) -> Result<(), Error> {
    let gate = Gate::new(handle, direction, position);
    let tested = gate.test(&G, world.net());
    let waited = gate.wait(&G, world.net(), Timeout::NEVER);
    assert_eq!(tested, waited.map(|()| true));
    waited
}

#[test]
fn a_gate_passes_when_the_other_end_is_so_far() {
    let (world, handle) = taken();
    let net = world.net();
    for (direction, word) in [(Direction::Send, world.released(1)), (Direction::Recv, world.landed(1))] {
        assert_eq!(pass(&world, handle, direction, 0), Ok(()));
        word.publish(63);
        assert_eq!(Gate::new(handle, direction, 64).test(&G, net), Ok(false));
        assert_eq!(pass(&world, handle, direction, 63), Ok(()));
        word.publish(64);
        assert_eq!(pass(&world, handle, direction, 64), Ok(()));
        assert_eq!(pass(&world, handle, direction, 1), Ok(()), "it stays open");
    }
    assert_ne!(world.users(1).load(Ordering::SeqCst), 0);
}

#[test]
fn groups_that_wait_at_gates_of_one_direction_all_pass() {
    let (world, handle) = taken();
    std::thread::scope(|scope| {
        for group in 0..3 {
            for lane in Lanes::group(group, 3, 2) {
                let net = world.net();
                scope.spawn(move || {
                    for position in 1..=5u64 {
                        let gate = Gate::new(handle, Direction::Recv, position * 100 - u64::from(group));
                        assert_eq!(gate.wait(&lane, net, Timeout::NEVER), Ok(()));
                    }
                });
            }
        }
        for position in 1..=5 {
            world.await_receiver(1);
            world.landed(1).publish(position * 100);
        }
    });
}

#[test]
fn a_gate_that_is_reached_passes_whatever_comes_then() {
    for end in [END, ERR] {
        let (world, handle) = taken();
        world.released(1).publish(end(100));
        world.landed(1).publish(end(100));
        for direction in [Direction::Send, Direction::Recv] {
            assert_eq!(pass(&world, handle, direction, 100), Ok(()));
        }
    }
    let (world, handle) = taken();
    world.released(1).publish(100);
    world.landed(1).publish(100);
    fail(&world, Error::ConnectionReset);
    world.cancel().publish(1);
    for direction in [Direction::Send, Direction::Recv] {
        assert_eq!(pass(&world, handle, direction, 100), Ok(()));
        assert_eq!(pass(&world, handle, direction, 101), Err(Error::ConnectionReset));
    }
}

/// Word and error come between the waiter's look at the word and its check of the status.
#[test]
fn what_was_reached_before_an_error_passes_whenever_both_come() {
    const ROUNDS: u32 = 4000;
    for direction in [Direction::Send, Direction::Recv] {
        let world = World::new();
        let begun = AtomicU32::new(0);
        let word = match direction {
            Direction::Send => world.released(1),
            Direction::Recv => world.landed(1),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    while begun.load(Ordering::Acquire) < round {
                        std::hint::spin_loop();
                    }
                    // The waiter is at another place of its wait each time.
                    (0..round % 100).for_each(|_| std::hint::spin_loop());
                    word.publish(3);
                    fail(&world, Error::ConnectionReset);
                }
            });
            let wrong = (1..=ROUNDS).find(|&round| {
                word.publish(0);
                world.status(1).publish(Status::open(GENERATION).0);
                let handle = world.open_driven(1);
                world.take(1, direction);
                if direction == Direction::Send {
                    Trigger::new(handle, Direction::Send, 3).release(&G, world.net()).unwrap();
                }
                begun.store(round, Ordering::Release);
                let passed = Gate::new(handle, direction, 3).wait(&G, world.net(), Timeout::NEVER);
                // The other thread has ended its round, too.
                while Status(world.status(1).observe()).error().is_none() {
                    std::thread::yield_now();
                }
                passed != Ok(())
            });
            // The other thread ends in any case.
            begun.store(ROUNDS, Ordering::Release);
            assert_eq!(wrong, None, "a round in which the gate did not pass");
        });
    }
}

#[test]
fn a_direction_that_ends_before_the_gate_says_so() {
    for (end, of_recv) in [(END, Error::NoData), (ERR, Error::ConnectionReset)] {
        let (world, handle) = taken();
        world.released(1).publish(end(99));
        world.landed(1).publish(end(99));
        for _ in 0..2 {
            assert_eq!(pass(&world, handle, Direction::Send, 100), Err(Error::BrokenPipe));
            assert_eq!(pass(&world, handle, Direction::Recv, 100), Err(of_recv));
        }
        assert_eq!(pass(&world, handle, Direction::Recv, 99), Ok(()));
    }
    // The proxy knows why.
    let (world, handle) = taken();
    world.released(1).publish(END(99));
    world.landed(1).publish(END(99));
    fail(&world, Error::ConnectionReset);
    for direction in [Direction::Send, Direction::Recv] {
        assert_eq!(pass(&world, handle, direction, 100), Err(Error::ConnectionReset));
    }
    // By the status, without a mark in the words.
    let (world, handle) = taken();
    world.status(1).publish(Status::open(GENERATION).with(Status::EOF | Status::NO_SEND).0);
    assert_eq!(pass(&world, handle, Direction::Send, 100), Err(Error::BrokenPipe));
    assert_eq!(pass(&world, handle, Direction::Recv, 100), Err(Error::NoData));
}

#[test]
fn a_direction_that_this_end_has_ended_is_not_waited_for() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    stream.send_all(&G, b"12345").unwrap();
    stream.shutdown(&G, gpunet_device::Shutdown::Both);
    world.take(1, Direction::Send);
    world.take(1, Direction::Recv);
    assert_eq!(Gate::new(handle, Direction::Send, 5).test(&G, world.net()), Ok(false), "it is under way");
    assert_eq!(pass(&world, handle, Direction::Send, 6), Err(Error::BrokenPipe));
    assert_eq!(pass(&world, handle, Direction::Recv, 1), Err(Error::NoData));
}

/// Whoever releases the waiters of a dead socket knows its words' positions no better than anybody
/// else.
#[test]
fn the_word_of_a_socket_that_has_failed_is_not_believed() {
    let (world, handle) = taken();
    world.landed(1).publish(50);
    assert_eq!(pass(&world, handle, Direction::Recv, 50), Ok(()));
    fail(&world, Error::ConnectionReset);
    for position in [0, 60, 1 << 40] {
        world.landed(1).publish(ERR(position));
        world.released(1).publish(ERR(position));
        for direction in [Direction::Send, Direction::Recv] {
            assert_eq!(pass(&world, handle, direction, 60), Err(Error::ConnectionReset));
        }
    }
    let (world, handle) = taken();
    world.heartbeat().publish(HEARTBEAT_DOWN);
    world.landed(1).publish(ERR(MASK));
    assert_eq!(pass(&world, handle, Direction::Recv, 1), Err(Error::NetworkDown));
    assert_eq!(StreamWord(world.consumed(1).observe()), StreamWord::at(0));
}

#[test]
fn time_cancel_and_a_stopped_proxy_end_a_wait() {
    let (world, handle) = taken();
    let gates = [Direction::Send, Direction::Recv].map(|direction| Gate::new(handle, direction, 100));
    let both = |timeout_ns| gates.map(|gate| gate.wait(&G, world.net(), timeout_ns));
    assert_eq!(both(Timeout::ms(1)), [Err(Error::TimedOut); 2]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| gates[1].wait(&G, world.net(), Timeout::NEVER));
        world.await_receiver(1);
        world.cancel().publish(1);
        assert_eq!(waits.join().unwrap(), Err(Error::Canceled));
    });
    assert_eq!(gates.map(|gate| gate.test(&G, world.net())), [Err(Error::Canceled); 2]);
    world.cancel().publish(0);
    world.heartbeat().publish(HEARTBEAT_DOWN);
    assert_eq!(both(Timeout::NEVER), [Err(Error::NetworkDown); 2]);
}

#[test]
fn bytes_that_come_on_the_way_to_a_gate_do_not_lengthen_the_wait() {
    let (world, handle) = taken();
    let gate = Gate::new(handle, Direction::Recv, 4096);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| gate.wait(&G, world.net(), Timeout::ms(20)));
        let mut landed = 0;
        while !waits.is_finished() && landed < 4095 {
            landed += 1;
            world.landed(1).publish(landed);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(waits.join().unwrap(), Err(Error::TimedOut));
        assert!(landed < 4095, "it ends when nothing comes any more");
    });
}

#[test]
fn the_timeout_of_a_connection_is_its_failure() {
    let (world, handle) = taken();
    fail(&world, Error::TimedOut);
    assert_eq!(pass(&world, handle, Direction::Recv, 1), Err(Error::TimedOut));
}

#[test]
fn a_word_that_cannot_be_ends_the_stream() {
    let (world, handle) = taken();
    // More than was sent; more than the ring holds; no word; ERR alone.
    for (slot, direction, word) in [
        (2, Direction::Send, 1),
        (3, Direction::Recv, 4097),
        (4, Direction::Recv, u64::MAX),
        (5, Direction::Send, StreamWord::MALFORMED.0),
    ] {
        let handle = world.open_driven(slot);
        world.take(slot, direction);
        let (theirs, mine) = match direction {
            Direction::Send => (world.released(slot), world.published(slot)),
            Direction::Recv => (world.landed(slot), world.consumed(slot)),
        };
        theirs.publish(word);
        assert_eq!(pass(&world, handle, direction, 100), Err(Error::Protocol));
        assert_eq!(StreamWord(mine.observe()), StreamWord::at(0).with_err());
        // For good, and for triggers; the direction is still the host's.
        theirs.publish(0);
        assert_eq!(pass(&world, handle, direction, 100), Err(Error::Protocol));
        assert_eq!(Trigger::new(handle, direction, 1).release(&G, world.net()), Err(Error::Protocol));
        assert_eq!(world.direction_lock(slot, direction).load(Ordering::SeqCst), held(lock::TAKEN));
    }
    // Back behind what another gate has seen.
    world.released(1).publish(100);
    assert_eq!(pass(&world, handle, Direction::Send, 100), Ok(()));
    world.released(1).publish(99);
    assert_eq!(pass(&world, handle, Direction::Send, 101), Err(Error::Protocol));
    assert_eq!(StreamWord(world.published(1).observe()), StreamWord::at(1000).with_err());
}

#[test]
fn what_cannot_be_waited_for_is_refused() {
    let (world, handle) = taken();
    let invalid = Err(Error::InvalidArgument);
    assert_eq!(pass(&world, handle, Direction::Send, MASK + 1), invalid);
    let strange = Gate { direction: 2, ..Gate::new(handle, Direction::Send, 1) };
    assert_eq!(strange.wait(&G, world.net(), Timeout::NEVER), invalid);
    assert_eq!(pass(&world, world.open_driven(2), Direction::Send, 0), invalid, "not taken");
    assert_eq!(pass(&world, world.open_fresh(3), Direction::Send, 0), Err(Error::NotConnected));
    assert_eq!(pass(&world, Handle::new(1, GENERATION - 1), Direction::Send, 0), Err(Error::BadHandle));
}

/// The end of a stream that the host has closed is the answer to that.
#[test]
fn a_stream_that_is_closed_meanwhile_is_a_dead_handle() {
    let (world, handle) = taken();
    std::thread::scope(|scope| {
        let waits =
            scope.spawn(|| Gate::new(handle, Direction::Recv, 100).wait(&G, world.net(), Timeout::NEVER));
        world.await_receiver(1);
        world.set_state(1, SlotState::retired(GENERATION));
        world.landed(1).publish(END(0));
        assert_eq!(waits.join().unwrap(), Err(Error::BadHandle));
    });
}
