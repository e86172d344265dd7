//! Polling.

use crate::world::{GENERATION, PostedRequest, SOCKETS, World, buffer};
use gpunet_device::abi::Status;
use gpunet_device::abi::control::Reply;
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::poll::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT};
use gpunet_device::{Error, Listener, PollFd, PollSet, Shutdown, Stream, Timeout, poll};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const G: Solo = Solo::new(0, 1);

fn set(fds: &mut [PollFd]) -> PollSet {
    // SAFETY: tests keep the entries until the last call has returned.
    unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), fds.len()) }
}

fn fd(handle: i32, events: i16) -> PollFd {
    PollFd { handle, events, revents: -1 }
}

#[test]
fn only_what_is_asked_for_is_told() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let (a, b) = (a.raw(), b.raw());
    let mut fds = [fd(a, POLLIN), fd(-1, POLLIN), fd(b, POLLIN | POLLOUT), fd(12345, 0), fd(a, 0)];
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), Ok(2));
    assert_eq!(fds.map(|fd| fd.revents), [0, 0, POLLOUT, POLLNVAL, 0]);
    let mut fds = [fd(a, POLLIN)];
    assert_eq!((set(&mut fds).len(), set(&mut fds).is_empty(), set(&mut []).is_empty()), (1, false, true));
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::ms(2)), Ok(0));
}

#[test]
fn errors_and_hang_ups_are_told_unasked() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let driven = world.open_driven(2);
    world.status(2).publish(Status::open(GENERATION).with_error(Error::ConnectionReset).0);
    Stream::from_handle(&G, world.net(), a).unwrap().shutdown(&G, Shutdown::Write);
    Stream::from_handle(&G, world.net(), b).unwrap().shutdown(&G, Shutdown::Write);
    let mut fds = [fd(a.raw(), 0), fd(driven.raw(), 0), fd(b.raw(), POLLIN)];
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::NEVER), Ok(3));
    assert_eq!(fds.map(|fd| fd.revents), [POLLHUP, POLLERR, POLLIN | POLLHUP]);
}

#[test]
fn a_sleeping_poller_is_woken_by_its_peer() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let round = |_| {
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                world.await_poller();
                Stream::from_handle(&G, net, a).unwrap().send_all(&G, b"x").unwrap();
            });
            let mut fds = [fd(b.raw(), POLLIN)];
            assert_eq!(poll(&G, net, set(&mut fds), Timeout::NEVER), Ok(1));
            assert_eq!(world.pollers(), 0, "nobody sleeps any more");
        });
        assert_eq!(Stream::from_handle(&G, net, b).unwrap().recv(&G, buffer(&mut [0])), Ok(1));
        began.elapsed()
    };
    // Not only by the end of its own longest sleep, on however busy a machine.
    assert!((0..10).any(|at| round(at) < Duration::from_millis(150)), "it wakes by its own look");
}

#[test]
fn many_lanes_share_a_set() {
    let world = World::new();
    let net = world.net();
    let mut fds: Vec<_> = (0..SOCKETS).map(|slot| fd(world.open_driven(slot).raw(), POLLIN)).collect();
    let entries = set(&mut fds);
    let quiet = std::sync::Barrier::new(34);
    std::thread::scope(|scope| {
        for lane in Lanes::group(0, 1, 33) {
            let quiet = &quiet;
            scope.spawn(move || {
                assert_eq!(poll(&lane, net, entries, Timeout::ms(3)), Ok(0));
                quiet.wait();
                // It may look between the two words.
                assert!(matches!(poll(&lane, net, entries, Timeout::NEVER), Ok(1 | 2)));
                quiet.wait();
                assert_eq!(poll(&lane, net, entries, Timeout::NEVER), Ok(2));
            });
        }
        quiet.wait();
        // As the proxy does it: the words, then the epoch.
        world.landed(40).publish(1);
        world.landed(63).publish(1);
        world.epoch().publish(1);
        quiet.wait();
    });
    assert_eq!(fds.iter().filter(|fd| fd.revents == POLLIN).count(), 2);
    assert_eq!((fds[40].revents, fds[63].revents, fds[0].revents), (POLLIN, POLLIN, 0));
}

#[test]
fn cancel_ends_polls_of_every_kind() {
    let world = World::new();
    let handle = world.open_driven(0);
    world.cancel().publish(1);
    for timeout in [Timeout::NON_BLOCKING, Timeout::secs(1), Timeout::NEVER] {
        let mut fds = [fd(handle.raw(), POLLIN)];
        assert_eq!(poll(&G, world.net(), set(&mut fds), timeout), Err(Error::Canceled));
    }
    world.landed(0).publish(1);
    let mut memory = [0; 4];
    let mut fds = [fd(handle.raw(), POLLIN)];
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), Ok(1));
    assert_eq!(Stream::from_handle(&G, world.net(), handle).unwrap().recv(&G, buffer(&mut memory)), Ok(1));
}

/// A poll announces what its group has received, as a receive that waits does.
#[test]
fn a_poll_announces_what_was_consumed() {
    let world = World::new();
    let net = world.net();
    let handle = world.open_driven(5);
    world.fill(5, 0, b"abc");
    world.landed(5).publish(3);
    let mut stream = Stream::from_handle(&G, net, handle).unwrap();
    assert_eq!(stream.recv(&G, buffer(&mut [0; 8])), Ok(3));
    assert_eq!(world.consumed(5).observe(), 0);
    // Another group polls, too: the bytes are not its own to announce.
    let other = Solo::new(1, 2);
    let mut fds = [fd(handle.raw(), POLLIN)];
    assert_eq!(poll(&other, net, set(&mut fds), Timeout::NON_BLOCKING), Ok(0));
    assert_eq!(world.consumed(5).observe(), 0);
    assert_eq!(poll(&G, net, set(&mut fds), Timeout::NON_BLOCKING), Ok(0));
    assert_eq!(world.consumed(5).observe(), 3);
    // The other group takes the stream over; from then on it announces.
    world.landed(5).publish(5);
    let mut taken = Stream::from_handle(&other, net, handle).unwrap();
    assert_eq!(taken.recv(&other, buffer(&mut [0; 8])), Ok(2));
    assert_eq!(poll(&G, net, set(&mut fds), Timeout::NON_BLOCKING), Ok(0));
    assert_eq!(world.consumed(5).observe(), 3);
    assert_eq!(poll(&other, net, set(&mut fds), Timeout::NON_BLOCKING), Ok(0));
    assert_eq!(world.consumed(5).observe(), 5);
}

/// Of two groups that share a stream neither announces less than the other has.
#[test]
fn two_groups_that_poll_and_receive_never_announce_backwards() {
    let world = World::new();
    let net = world.net();
    let (a, b) = world.open_pair(0, 1);
    const TOTAL: u64 = 200_000;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut stream = Stream::from_handle(&G, net, a).unwrap();
            let mut sent = 0;
            while sent < TOTAL {
                // A position that went back would be a violation.
                sent += stream.send(&G, buffer(&mut [7; 13])).unwrap() as u64;
            }
            stream.shutdown(&G, Shutdown::Write);
        });
        for index in 1..3 {
            scope.spawn(move || {
                let g = Solo::new(index, 3);
                loop {
                    let mut fds = [fd(b.raw(), POLLIN)];
                    poll(&g, net, set(&mut fds), Timeout::ms(1)).unwrap();
                    let mut bytes = [0; 64];
                    // SAFETY: bytes of this stack.
                    let got =
                        unsafe { gpunet_posix::recv::recv(&g, net, b.raw(), bytes.as_mut_ptr(), 64, 0x40) };
                    match got {
                        Ok(0) => return,
                        Ok(_) | Err(Error::WouldBlock | Error::Busy) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        sender.join().unwrap();
    });
}

/// A poll learns of a handle that another group closes.
#[test]
fn a_poll_ends_when_a_handle_is_closed() {
    use gpunet_device::abi::entry::SlotState;
    let world = World::new();
    let net = world.net();
    let (driven, direct) = (world.open_driven(5), world.open_pair(0, 1).0);
    std::thread::scope(|scope| {
        for handle in [driven, direct] {
            let polls = scope.spawn(move || {
                let mut fds = [fd(handle.raw(), POLLIN)];
                (poll(&G, net, set(&mut fds), Timeout::NEVER), fds[0].revents)
            });
            world.await_poller();
            world.set_state(handle.slot(), SlotState::retired(GENERATION));
            assert_eq!(polls.join().unwrap(), (Ok(1), POLLNVAL));
        }
    });
}

#[test]
fn a_listener_is_readable_while_a_connection_waits() {
    let world = World::new();
    let listener = world.open_listener(3);
    let mut fds = [fd(listener.raw(), POLLIN | POLLOUT)];
    assert_eq!((poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), fds[0].revents), (Ok(0), 0));
    world.landed(3).publish(2);
    assert_eq!(
        (poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), fds[0].revents),
        (Ok(1), POLLIN)
    );
    let mut fds = [fd(listener.raw(), POLLOUT)];
    assert_eq!((poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), fds[0].revents), (Ok(0), 0));
}

#[test]
fn a_socket_that_is_not_open_yet_hangs_up_as_linux_has_it() {
    let world = World::new();
    let fresh = world.open_fresh(3).raw();
    let mut fds = [fd(fresh, POLLIN | POLLOUT), fd(fresh, POLLIN)];
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), Ok(2));
    assert_eq!(fds.map(|fd| fd.revents), [POLLOUT | POLLHUP, POLLHUP]);
}

#[test]
fn what_can_be_no_handle_is_told_and_a_negative_one_passed_over() {
    let world = World::new();
    let mut fds = [fd(0, POLLIN), fd(5, POLLIN), fd(-1, POLLIN), fd(i32::MIN, POLLIN)];
    assert_eq!(poll(&G, world.net(), set(&mut fds), Timeout::NON_BLOCKING), Ok(2));
    assert_eq!(fds.map(|fd| fd.revents), [POLLNVAL, POLLNVAL, 0, 0]);
}

#[test]
fn past_its_end_a_set_is_empty_and_stays_so() {
    let mut fds = [fd(7, POLLIN), fd(8, POLLIN), fd(9, POLLIN)];
    let first = set(&mut fds[..2]);
    assert_eq!((first.len(), first.get(1)), (2, fd(8, POLLIN)));
    assert_eq!(first.get(2), PollFd { handle: -1, events: 0, revents: 0 });
    first.set(1, fd(1, POLLOUT));
    first.set(2, fd(2, POLLOUT));
    assert_eq!(fds, [fd(7, POLLIN), fd(1, POLLOUT), fd(9, POLLIN)]);
}

/// Only a GPU's poll relies on the epoch alone: the proxy moves it on for a CPU's where a poller is
/// registered.
#[test]
fn a_poll_of_a_cpu_finds_what_no_epoch_tells() {
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(5));
    std::thread::scope(|scope| {
        let polls = scope.spawn(move || poll(&G, net, set(&mut [fd(handle.raw(), POLLIN)]), Timeout::NEVER));
        world.await_poller();
        world.landed(5).publish(1);
        assert_eq!(polls.join().unwrap(), Ok(1));
    });
}

#[test]
fn one_group_asks_for_the_only_connection() {
    let world = World::new();
    world.give_slots(&[9, 4, 5]);
    let handle = world.open_listener(3);
    let net = world.net();
    let mut seen = [0; 4];
    let mut fds = [fd(handle.raw(), POLLIN)];
    let entries = set(&mut fds);
    let try_accept = move || Listener::from_handle(&G, net, handle).unwrap().try_accept(&G).map(|_| ());
    let refuse =
        |posted: &PostedRequest| world.reply(posted, Reply::new(Error::WouldBlock.errno() as u32, 0));
    world.landed(3).publish(1);
    let turn = world.accept_turn(3);
    // Another group has the turn: nothing is asked, and there is nothing to poll for.
    turn.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(try_accept(), Err(Error::WouldBlock));
    assert!(world.request(&mut seen).is_none(), "two groups ask for one connection");
    assert_eq!(poll(&G, net, entries, Timeout::NON_BLOCKING), Ok(0));
    // The turn has ended, by its group or because its time is over.
    for ended in [0, 1] {
        turn.store(ended, Ordering::Relaxed);
        assert_eq!(poll(&G, net, entries, Timeout::NEVER), Ok(1), "the connection is everybody's again");
        std::thread::scope(|scope| {
            let group = scope.spawn(try_accept);
            let asked = world.next_request(&mut seen);
            assert!(turn.load(Ordering::Relaxed) > 1, "it has the turn while it asks");
            refuse(&asked);
            assert_eq!(group.join().unwrap(), Err(Error::WouldBlock));
        });
        assert_eq!(turn.load(Ordering::Relaxed), 0);
    }
    // Of two that wait, a second group need not wait for the first.
    world.landed(3).publish(2);
    world.give_slots(&[9, 4, 5, 6, 7]);
    std::thread::scope(|scope| {
        let groups = [(); 2].map(|()| scope.spawn(try_accept));
        let asked = [(); 2].map(|()| world.next_request(&mut seen));
        asked.iter().for_each(refuse);
        for group in groups {
            assert_eq!(group.join().unwrap(), Err(Error::WouldBlock));
        }
    });
}
