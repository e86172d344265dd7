//! What a device returns when the other side is wrong, gone, or told to stop.

use crate::world::{GENERATION, World, buffer, held as locked};
use gpunet_device::abi::Status;
use gpunet_device::abi::entry::{SlotState, lock};
use gpunet_device::abi::layout::{HEARTBEAT_DOWN, SocketLine};
use gpunet_device::abi::position::StreamWord;
use gpunet_device::cpu::watch::Sleeper;
use gpunet_device::group::Solo;
use gpunet_device::internal::close::close_stream;
use gpunet_device::poll::{POLLIN, POLLNVAL};
use gpunet_device::{Direction, Error, Handle, Listener, PollFd, PollSet, RecvHalf, Stream, Timeout, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const G: Solo = Solo::new(0, 1);

#[test]
fn stale_and_impossible_handles_are_refused() {
    let world = World::new();
    world.open_driven(1);
    let find = |slot, generation| Stream::from_handle(&G, world.net(), Handle::new(slot, generation)).err();
    assert_eq!(find(1, GENERATION), None);
    assert_eq!(find(1, GENERATION - 1), Some(Error::BadHandle));
    assert_eq!(find(2, 1), Some(Error::BadHandle));
    assert_eq!(find(65_535, 1), Some(Error::BadHandle));
    let listener = Listener::from_handle(&G, world.net(), Handle::new(1, GENERATION));
    assert_eq!(listener.err(), Some(Error::InvalidArgument));
}

#[test]
fn a_call_that_moves_nothing_still_tells_a_dead_handle() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    assert_eq!(stream.send(&G, b""), Ok(0));
    assert_eq!(stream.recv(&G, buffer(&mut [])), Ok(0));
    world.open_driven(1);
    // The slot of the next socket.
    world.give_slots(&[1]);
    // Another group's, which does not learn of it.
    let mut copy = Stream::from_handle(&G, world.net(), handle).unwrap();
    stream.close(&G).unwrap();
    assert_eq!(copy.send(&G, b""), Err(Error::BadHandle));
    assert_eq!(copy.recv(&G, buffer(&mut [])), Err(Error::BadHandle));
    assert_eq!(copy.close(&G), Err(Error::BadHandle));
}

#[test]
fn a_position_that_cannot_be_ends_the_connection() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    world.landed(1).publish(4097);
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::Protocol));
    assert!(StreamWord(world.consumed(1).observe()).err());
    // For good, and for whoever comes by the handle.
    world.landed(1).publish(1);
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::Protocol));
    let mut again = Stream::from_handle(&G, world.net(), handle).unwrap();
    assert_eq!(again.recv(&G, buffer(&mut memory)), Err(Error::Protocol));

    let mut other = Stream::from_handle(&G, world.net(), world.open_driven(2)).unwrap();
    other.send_all(&G, b"12345").unwrap();
    // Released more than was ever sent.
    world.line(2, 8).publish(6);
    let mut big = vec![0; 4096];
    assert_eq!(other.send(&G, buffer(&mut big)).err(), Some(Error::Protocol));
    assert_eq!(StreamWord(world.published(2).observe()), StreamWord::at(5).with_err());
}

#[test]
fn data_comes_before_the_error_that_followed_it() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    let mut memory = [0; 8];
    // A word of an earlier user of the slot does not count.
    world.status(1).publish(Status::open(GENERATION - 1).with_error(Error::ConnectionReset).0);
    assert_eq!(stream.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    world.fill(1, 0, b"abc");
    world.landed(1).publish(3);
    world.status(1).publish(Status::open(GENERATION).with_error(Error::ConnectionReset).0);
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(3));
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::ConnectionReset));
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::ConnectionReset));
}

/// Data and error come between the receiver's poll of the word and its check of the status.
#[test]
fn data_comes_before_the_error_whenever_both_come() {
    const ROUNDS: u32 = 4000;
    let world = World::new();
    let begun = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while begun.load(Ordering::Acquire) < round {
                    // On busy cores the receiver waits for this one.
                    std::thread::yield_now();
                }
                // The receiver is at another place of its wait each time.
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                world.landed(1).publish(3);
                world.status(1).publish(Status::open(GENERATION).with_error(Error::ConnectionReset).0);
            }
        });
        let mut memory = [0; 8];
        let wrong = (1..=ROUNDS).find(|&round| {
            world.landed(1).publish(0);
            world.status(1).publish(Status::open(GENERATION).0);
            let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
            begun.store(round, Ordering::Release);
            let found = [(); 2].map(|()| stream.recv(&G, buffer(&mut memory)));
            found != [Ok(3), Err(Error::ConnectionReset)]
        });
        // The other thread ends in any case.
        begun.store(ROUNDS, Ordering::Release);
        assert_eq!(wrong, None, "a round in which the data was lost");
    });
}

#[test]
fn end_of_stream_and_broken_pipe_come_by_status_too() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.status(1).publish(Status::open(GENERATION).with(Status::EOF | Status::NO_SEND).0);
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(0));
    let mut big = vec![0; 4096];
    while stream.send(&G, buffer(&mut big)).is_ok() {}
    assert_eq!(stream.send(&G, b"x"), Err(Error::BrokenPipe));
}

#[test]
fn a_peer_that_gave_up_is_a_reset_after_its_data() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.landed(1).publish(StreamWord::at(2).with_err().0);
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(2));
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::ConnectionReset));
}

/// The end of a stream that another group closes is the answer to that, and not reported as an end.
#[test]
fn the_end_of_a_stream_that_was_closed_is_a_dead_handle() {
    for by_proxy in [false, true] {
        let world = World::new();
        let handle = world.open_driven(3);
        let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
        // As full as a ring can be.
        while stream.try_send(&G, &[7; 4096]).is_ok() {}
        if by_proxy {
            world.status(3).publish(Status::open(GENERATION).with_error(Error::BadHandle).0);
        } else {
            world.set_state(3, SlotState::retired(GENERATION));
        }
        world.landed(3).publish(StreamWord::at(0).with_end().0);
        world.line(3, offset_of!(SocketLine, released)).publish(StreamWord::at(0).with_end().0);
        let (poll_set, mut byte) = (&mut [PollFd { handle: handle.raw(), events: POLLIN, revents: 0 }], [0]);
        // SAFETY: the entry outlives the call.
        let set = unsafe { PollSet::from_raw_parts(poll_set.as_mut_ptr(), 1) };
        assert_eq!((poll(&G, world.net(), set, Timeout::NEVER), set.get(0).revents), (Ok(1), POLLNVAL));
        assert_eq!(stream.peek(&G, 1), Err(Error::BadHandle));
        assert_eq!(stream.try_recv(&G, buffer(&mut byte)), Err(Error::BadHandle));
        assert_eq!(stream.recv(&G, buffer(&mut byte)), Err(Error::BadHandle));
        assert_eq!(stream.try_send(&G, b"x"), Err(Error::BadHandle));
        assert_eq!(stream.send(&G, b"x"), Err(Error::BadHandle));
    }
}

#[test]
fn a_stopped_proxy_ends_waits() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    let mut memory = [0; 8];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            world.await_receiver(1);
            world.heartbeat().publish(HEARTBEAT_DOWN);
        });
        assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::NetworkDown));
    });
    assert_eq!(stream.try_recv(&G, buffer(&mut memory)), Err(Error::NetworkDown));
    // What has come is still there.
    world.fill(1, 0, b"abc");
    world.landed(1).publish(3);
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(3));
}

#[test]
fn a_heartbeat_that_stands_still_ends_waits() {
    let world = World::with_heartbeat_timeout(150_000_000);
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    let began = std::time::Instant::now();
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::NetworkDown));
    assert!(began.elapsed() >= Duration::from_millis(140));
}

/// A wait counts the silence from its own first check, and from each beat.
#[test]
fn a_heartbeat_that_goes_on_is_in_time_whatever_the_limit() {
    let world = World::with_heartbeat_timeout(0);
    let mut waiter = Sleeper::new(world.net());
    let the_clock_moves = || {
        let before = gpunet_device::now_ns();
        while gpunet_device::now_ns() == before {}
    };
    for beat in 1..10 {
        world.heartbeat().publish(beat);
        the_clock_moves();
        assert_eq!(waiter.check(), Ok(()), "beat {beat}");
    }
    the_clock_moves();
    assert_eq!(waiter.check(), Err(Error::NetworkDown));
}

#[test]
fn cancel_ends_waits_but_not_what_has_come() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.cancel().publish(1);
    world.fill(1, 0, b"abc");
    world.landed(1).publish(3);
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(3));
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Err(Error::Canceled));
    assert_eq!(stream.try_recv(&G, buffer(&mut memory)), Err(Error::Canceled));
    assert_eq!(Stream::connect(&G, world.net(), gpunet_device::SockAddr::NONE).err(), Some(Error::Canceled));
}

/// A group that announces has the half for one store; one that receives may have it for long, and
/// announces itself.
#[test]
fn who_finds_a_stream_waits_for_a_group_that_announces_and_for_no_other() {
    let world = World::new();
    let handle = world.open_driven(1);
    // A wait ends at once.
    world.cancel().publish(1);
    for (held, found) in [(lock::ANNOUNCE, Some(Error::Canceled)), (lock::CALL, None), (lock::FREE, None)] {
        world.recv_lock(1).store(locked(held), Ordering::SeqCst);
        assert_eq!(Stream::from_handle(&G, world.net(), handle).err(), found);
    }
}

/// A poller that found the handle open announces, and publishes, while another group closes: the
/// proxy learns of the close after that.
#[test]
fn a_close_comes_after_what_a_poller_announces() {
    for direction in [Direction::Send, Direction::Recv] {
        let world = World::new();
        let net = world.net();
        let handle = world.open_driven(3);
        let word = if direction == Direction::Send { world.published(3) } else { world.consumed(3) };
        let (held, has_stream) = (world.direction_lock(3, direction), Barrier::new(2));
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| {
                let stream = Stream::from_handle(&G, net, handle).unwrap();
                has_stream.wait();
                has_stream.wait();
                stream.close(&G)
            });
            has_stream.wait();
            held.store(locked(lock::ANNOUNCE), Ordering::SeqCst);
            has_stream.wait();
            let mut fds = [PollFd { handle: handle.raw(), events: 0, revents: 0 }];
            // SAFETY: the entry outlives the calls.
            let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
            while poll(&G, net, set, Timeout::NON_BLOCKING) == Ok(0) {}
            // The handle is dead. Time for a close that does not wait.
            let late = Instant::now() + Duration::from_millis(20);
            while !closer.is_finished() && Instant::now() < late {
                std::thread::yield_now();
            }
            assert_eq!(world.closed(3).observe(), 0, "{direction:?}");
            word.publish(0);
            held.store(locked(lock::FREE), Ordering::SeqCst);
            assert_eq!(closer.join().unwrap(), Ok(()));
        });
        assert_eq!(world.closed(3).observe(), u64::from(GENERATION), "{direction:?}");
    }
}

/// The proxy gives the slot to the next socket once it has the close. A group that announces at
/// that moment, which stores into words of the slot, is waited for in a launch that is cancelled,
/// too.
#[test]
fn a_cancelled_close_is_not_posted_while_another_group_announces() {
    for direction in [Direction::Send, Direction::Recv] {
        let world = World::new();
        let (net, handle) = (world.net(), world.open_driven(3));
        let held = world.direction_lock(3, direction);
        held.store(locked(lock::ANNOUNCE), Ordering::SeqCst);
        world.cancel().publish(1);
        std::thread::scope(|scope| {
            let closer = scope.spawn(|| close_stream(&G, net, handle));
            while world.state(3).load(Ordering::SeqCst) != SlotState::retired(GENERATION).0 {
                std::thread::yield_now();
            }
            // The handle is dead. Time for a close that does not wait.
            let late = Instant::now() + Duration::from_millis(20);
            while world.closed(3).observe() == 0 && Instant::now() < late {
                std::thread::yield_now();
            }
            let early = world.closed(3).observe();
            held.store(locked(lock::FREE), Ordering::SeqCst);
            assert_eq!(closer.join().unwrap(), Ok(()));
            assert_eq!((early, world.closed(3).observe()), (0, u64::from(GENERATION)), "{direction:?}");
        });
    }
}

/// The proxy is gone meanwhile: nothing is posted, and the other half is free again.
#[test]
fn a_close_that_cannot_wait_for_who_announces_posts_nothing() {
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(3));
    world.recv_lock(3).store(locked(lock::ANNOUNCE), Ordering::SeqCst);
    std::thread::scope(|scope| {
        let closer = scope.spawn(|| close_stream(&G, net, handle));
        while world.state(3).load(Ordering::SeqCst) != SlotState::retired(GENERATION).0 {
            std::thread::yield_now();
        }
        world.heartbeat().publish(HEARTBEAT_DOWN);
        assert_eq!(closer.join().unwrap(), Err(Error::NetworkDown));
    });
    assert!(world.request(&mut [0; 4]).is_none());
    assert_eq!(world.closed(3).observe(), 0);
    let holders =
        [Direction::Send, Direction::Recv].map(|half| world.direction_lock(3, half).load(Ordering::SeqCst));
    assert_eq!(holders, [locked(lock::FREE), locked(lock::ANNOUNCE)]);
    assert_eq!(world.published(3).observe(), 0, "no end was published");
}

/// A group announces what it has consumed, and is slow to ring the doorbell. Meanwhile the stream
/// is closed, and the slot is the next socket's, of which a group has a half.
#[test]
fn a_late_announcement_leaves_the_lock_of_the_slots_next_socket_alone() {
    for held in [lock::FREE, lock::CALL, lock::ANNOUNCE, lock::TAKEN] {
        let held = lock::word(GENERATION + 1, held);
        let world = World::new();
        let (net, first) = (world.net(), world.open_driven(3));
        world.landed(3).publish(10);
        // A doorbell that cannot be rung, because it was rung so often.
        // SAFETY: a call without pointers.
        let doorbell = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, 0)) };
        let mut bell = File::from(doorbell);
        bell.write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
        world.sleep_until(bell.as_raw_fd());
        std::thread::scope(|scope| {
            let late = scope.spawn(move || {
                let mut half = RecvHalf::from_handle(&G, net, first).unwrap();
                assert_eq!(half.try_peek(&G, 10).unwrap().len(), 10);
                half.release(&G, 10);
                let mut fds = [PollFd { handle: first.raw(), events: POLLIN, revents: 0 }];
                // SAFETY: the entry outlives the call.
                poll(&G, net, unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) }, Timeout::NEVER)
            });
            while world.consumed(3).observe() != 10 {
                std::thread::yield_now();
            }
            world.set_state(3, SlotState::retired(GENERATION));
            world.open_driven_as(GENERATION + 1, 3);
            let lock = world.recv_lock(3);
            lock.store(held, Ordering::SeqCst);
            bell.read_exact(&mut [0; 8]).unwrap();
            assert_eq!(late.join().unwrap(), Ok(1));
            assert_eq!(lock.load(Ordering::SeqCst), held);
        });
    }
}
