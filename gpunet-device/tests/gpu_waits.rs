//! Blocks that wait as a GPU's do: they poll, sleep on nothing, and go by the epoch. A process of
//! its own, since all its blocks do.
#![allow(clippy::unwrap_used, reason = "a test")]

#[path = "device/world.rs"]
#[allow(dead_code, reason = "other suites use the rest")]
mod world;

use gpunet_device::abi::Word;
use gpunet_device::abi::entry::SlotState;
use gpunet_device::abi::epoch::Epoch;
use gpunet_device::abi::hand_off::{self, HandOff, Plan};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::poll::{POLLIN, POLLNVAL, POLLOUT};
use gpunet_device::{
    Group, Handle, Net, PollCache, PollFd, PollSet, RecvHalf, RelayedWord, Result, Stream, Timeout,
    WakeWords, poll, poll_again, poll_until, poll_until_woken,
};
use gpunet_posix as posix;
use gpunet_posix::send::MSG_MORE;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use world::{GENERATION, World, buffer, pattern};

const G: Solo = Solo::new(0, 1);
/// A poll that takes so long has not heard of what came, in nanoseconds.
const LONG: Timeout = Timeout::ns(30_000_000_000);

/// A world whose blocks wait as a GPU's do, and pause now and then when they have published. All
/// tests of the process start the same plan.
fn world() -> World {
    hand_off::start(Plan {
        longest: Duration::from_millis(2),
        only: vec![HandOff::Published],
        polls: true,
        ..Plan::new(1)
    });
    World::new()
}

fn send_more<H: Group>(g: &H, net: Net, handle: Handle, bytes: &[u8]) -> Result<i64> {
    // SAFETY: a slice of this test.
    unsafe { posix::send::send(g, net, handle.raw(), bytes.as_ptr(), bytes.len(), MSG_MORE) }
}

/// Polls one socket by a group; returns how many are ready.
fn poll_by<H: Group>(g: &H, net: Net, handle: Handle, events: i16, timeout: Timeout) -> Result<usize> {
    let mut fds = [PollFd { handle: handle.raw(), events, revents: 0 }];
    // SAFETY: the entry lives until the call has returned; each lane has one of its own.
    poll(g, net, unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) }, timeout)
}

/// Lands bytes for slot 5 and tells of them, as the proxy does.
fn land(world: &World, position: u64) {
    world.landed(5).publish(position);
    tell(world, 5);
}

/// Tells of a change of the socket in a slot, as the proxy does.
fn tell(world: &World, slot: u32) {
    world.epoch().publish(Epoch(world.epoch().observe()).after(slot).0);
}

/// New entries for sockets.
fn entries<const N: usize>(handles: [Handle; N], events: i16) -> [PollFd; N] {
    handles.map(|handle| PollFd { handle: handle.raw(), events, revents: PollFd::EXAMINE })
}

/// Polls sockets once more; returns how many are ready.
fn again(net: Net, fds: &mut [PollFd], cache: &mut PollCache, timeout: Timeout) -> usize {
    // SAFETY: the entries live until the call has returned.
    let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), fds.len()) };
    poll_again(&G, net, set, cache, timeout, None, || false).unwrap()
}

/// Waits until `condition` holds.
#[track_caller]
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::yield_now();
    }
}

/// The peer answers once it has the request, which a poll publishes while nothing comes, and
/// nothing else tells of anything.
#[test]
fn a_poll_publishes_what_calls_by_handle_have_left() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    assert_eq!(send_more(&G, net, handle, b"request"), Ok(7));
    std::thread::scope(|scope| {
        let polls = scope.spawn(move || poll_by(&G, net, handle, POLLIN, LONG));
        until("published", || world.published(5).observe() == 7);
        land(&world, 1);
        assert_eq!(polls.join().unwrap(), Ok(1));
    });
}

#[test]
fn a_poll_announces_what_was_consumed() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    for lanes in [1, 2] {
        let before = world.consumed(5).observe();
        world.landed(5).publish(before + 3);
        std::thread::scope(|scope| {
            for lane in Lanes::group(0, 1, lanes) {
                scope.spawn(move || {
                    let mut stream = Stream::from_handle(&lane, net, handle).unwrap();
                    assert_eq!(stream.recv(&lane, buffer(&mut [0; 8])), Ok(3));
                    assert_eq!(poll_by(&lane, net, handle, POLLIN, LONG), Ok(1));
                });
            }
            until("announced", || world.consumed(5).observe() == before + 3);
            land(&world, before + 4);
        });
        // What woke it.
        assert_eq!(Stream::from_handle(&G, net, handle).unwrap().recv(&G, buffer(&mut [0; 8])), Ok(1));
        assert_eq!(poll_by(&G, net, handle, POLLIN, Timeout::NON_BLOCKING), Ok(0));
    }
}

/// Also one that somebody else ends as soon as it has begun.
#[test]
fn a_poll_that_finds_nothing_has_published_when_it_returns() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    for (round, timeout) in
        [Timeout::NON_BLOCKING, Timeout::ns(1), Timeout::ms(2), Timeout::NEVER].into_iter().enumerate()
    {
        assert_eq!(send_more(&G, net, handle, b"x"), Ok(1));
        let mut fds = [PollFd { handle: handle.raw(), events: POLLIN, revents: 0 }];
        // SAFETY: the entry lives until the call has returned.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
        assert_eq!(poll_until(&G, net, set, timeout, || timeout == Timeout::NEVER), Ok(0));
        assert_eq!(world.published(5).observe(), round as u64 + 1, "{timeout:?}");
    }
}

/// What calls by handle leave after a half was made is published while that waits.
#[test]
fn a_receive_publishes_what_was_left_after_its_half_was_made() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    std::thread::scope(|scope| {
        let receives = scope.spawn(move || {
            let mut half = RecvHalf::from_handle(&G, net, handle).unwrap();
            assert_eq!(send_more(&G, net, handle, b"late"), Ok(4));
            half.recv(&G, buffer(&mut [0; 8]))
        });
        until("published", || world.published(5).observe() == 4);
        world.landed(5).publish(1);
        assert_eq!(receives.join().unwrap(), Ok(1));
    });
}

/// Who finds no space has nothing unpublished: the proxy tells of space in a ring that it saw full.
#[test]
fn a_ring_that_is_full_is_published() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    let mut stream = Stream::from_handle(&G, net, handle).unwrap();
    // The ring begins anew at no multiple of a quarter.
    stream.send_all(&G, buffer(&mut pattern(100))).unwrap();
    world.released(5).publish(100);
    let mut piece = pattern(1000);
    let mut sent = 100;
    while sent < 4196 {
        let left = buffer(&mut piece).first(4196 - sent);
        sent += stream.sender().send_more(&G, left).unwrap();
    }
    assert_eq!(world.published(5).observe(), 4196);
    assert_eq!(poll_by(&G, net, handle, POLLOUT, Timeout::NON_BLOCKING), Ok(0));
}

/// A group that polls a stream publishes what calls by handle have left, while another group, of
/// several lanes, goes on by values of the stream: nothing is published twice, and the lanes agree.
#[test]
fn a_poller_and_a_sender_never_publish_backwards() {
    const ROUNDS: usize = 500;
    let world = world();
    let (net, (a, b)) = (world.net(), world.open_pair(0, 1));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let poller = scope.spawn(|| {
            let g = Solo::new(2, 3);
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(poll_by(&g, net, a, POLLIN, Timeout::NON_BLOCKING), Ok(0));
            }
        });
        let sender = scope.spawn(|| {
            std::thread::scope(|lanes| {
                for lane in Lanes::group(0, 1, 2) {
                    lanes.spawn(move || {
                        for _ in 0..ROUNDS {
                            assert_eq!(send_more(&lane, net, a, b"more"), Ok(4));
                            let mut stream = Stream::from_handle(&lane, net, a).unwrap();
                            stream.sender().flush(&lane);
                            stream.send_all(&lane, b"end").unwrap();
                        }
                    });
                }
            });
        });
        let receiver = scope.spawn(|| {
            let g = Solo::new(1, 3);
            let mut half = RecvHalf::from_handle(&g, net, b).unwrap();
            for byte in b"moreend".iter().cycle().take(7 * ROUNDS) {
                let mut memory = [0];
                // A position that went back would be a violation.
                assert_eq!(half.recv_timeout(&g, buffer(&mut memory), LONG), Ok(1));
                assert_eq!(memory[0], *byte);
            }
        });
        let ended = [receiver.join(), sender.join()];
        is_over.store(true, Ordering::Relaxed);
        poller.join().unwrap();
        for end in ended {
            end.unwrap();
        }
    });
}

/// What the epoch does not tell of is not looked at: the proxy tells of everything. What the last
/// poll has found is.
#[test]
fn a_poll_of_the_same_set_examines_what_has_changed_since() {
    let world = world();
    let (net, handles) = (world.net(), [5, 6, 7].map(|slot| world.open_driven(slot)));
    let (mut fds, mut cache) = (entries(handles, POLLIN), PollCache::EMPTY);
    let mut poll = |fds: &mut [PollFd; 3], timeout| {
        let ready = again(net, fds, &mut cache, timeout);
        (ready, fds.map(|fd| fd.revents))
    };
    assert_eq!(poll(&mut fds, Timeout::ms(1)), (0, [0, 0, 0]));
    [5, 6].into_iter().for_each(|slot| world.landed(slot).publish(1));
    assert_eq!(poll(&mut fds, Timeout::NON_BLOCKING), (0, [0, 0, 0]), "nobody has told of it");
    tell(&world, 6);
    assert_eq!(poll(&mut fds, LONG), (1, [0, POLLIN, 0]));
    assert_eq!(poll(&mut fds, LONG), (1, [0, POLLIN, 0]), "it is still so");
    fds[0].revents = PollFd::EXAMINE;
    assert_eq!(poll(&mut fds, LONG), (2, [POLLIN, POLLIN, 0]));
    for handle in &handles[..2] {
        RecvHalf::from_handle(&G, net, *handle).unwrap().recv(&G, buffer(&mut [0; 8])).unwrap();
    }
    assert_eq!(poll(&mut fds, Timeout::ms(1)), (0, [0, 0, 0]));
    // Several changes name no socket.
    [5, 7].into_iter().for_each(|slot| world.landed(slot).publish(2));
    [5, 7].into_iter().for_each(|slot| tell(&world, slot));
    assert_eq!(poll(&mut fds, LONG), (2, [POLLIN, 0, POLLIN]));
    world.set_state(6, SlotState::retired(GENERATION));
    assert_eq!(poll(&mut fds, LONG), (3, [POLLIN, POLLNVAL, POLLIN]), "closed by another group");
}

/// A data thread tells of space only if it has seen the ring full.
#[test]
fn who_waits_for_space_examines_its_sockets_each_time() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    let (mut fds, mut cache) = (entries([handle], POLLOUT), PollCache::EMPTY);
    Stream::from_handle(&G, net, handle).unwrap().send_all(&G, buffer(&mut pattern(4096))).unwrap();
    for released in [100, 200] {
        assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
        world.released(5).publish(released);
        assert_eq!(again(net, &mut fds, &mut cache, LONG), 1);
        Stream::from_handle(&G, net, handle).unwrap().send_all(&G, buffer(&mut pattern(100))).unwrap();
    }
}

/// As above, where the polls before knew their epoch: what a poll knows does not outlive it, and it
/// forgets it once it waits for space.
#[test]
fn who_begins_to_wait_for_space_knows_nothing_by_the_epoch() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    let (mut fds, mut cache) = (entries([handle], POLLIN), PollCache::EMPTY);
    assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
    Stream::from_handle(&G, net, handle).unwrap().send_all(&G, buffer(&mut pattern(4096))).unwrap();
    fds = entries([handle], POLLOUT);
    assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
    world.released(5).publish(100);
    assert_eq!(again(net, &mut fds, &mut cache, LONG), 1);
    // The same within one poll, after it has examined the socket: nobody tells of the space.
    Stream::from_handle(&G, net, handle).unwrap().send_all(&G, buffer(&mut pattern(100))).unwrap();
    fds = entries([handle], POLLIN);
    assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
    fds = entries([handle], POLLOUT);
    // SAFETY: the entries live until the call has returned.
    let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
    let examined = || {
        world.released(5).publish(200);
        false
    };
    assert_eq!(poll_again(&G, net, set, &mut cache, LONG, None, examined), Ok(1));
}

/// The end of another group's turn to accept moves no epoch.
#[test]
fn a_listener_at_which_another_group_has_the_turn_is_examined_each_time() {
    let world = world();
    let (net, listener) = (world.net(), world.open_listener(5));
    let (mut fds, mut cache) = (entries([listener], POLLIN), PollCache::EMPTY);
    assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
    world.accept_turn(5).store(u64::MAX, Ordering::Relaxed);
    land(&world, 1);
    assert_eq!(again(net, &mut fds, &mut cache, Timeout::ms(1)), 0);
    world.accept_turn(5).store(0, Ordering::Relaxed);
    assert_eq!(again(net, &mut fds, &mut cache, LONG), 1);
}

/// Words by which groups are woken: for each group one of this device, and one of the host with its
/// relay.
struct Wakes {
    own: [AtomicU64; 2],
    /// The host's word, its copy, and the turn.
    relayed: [AtomicU64; 3],
}

impl Wakes {
    fn word(word: &AtomicU64) -> Word {
        // SAFETY: an aligned word that outlives the tests' threads.
        unsafe { Word::from_ptr(word.as_ptr()) }
    }

    /// Polls one quiet socket by a group, which has seen that copy, until it is woken.
    fn wait(&self, net: Net, handle: Handle, group: usize, seen: u64) -> Result<usize> {
        let [host, copy, turn] = &self.relayed;
        let own = Self::word(&self.own[group]);
        let relayed = RelayedWord { host: Self::word(host), copy: copy.as_ptr(), turn: turn.as_ptr(), seen };
        // SAFETY: blocks that poll as a GPU's do not sleep; the words outlive the call.
        let words = unsafe { WakeWords::new([(own, own.peek()); 2], std::ptr::null_mut()).relayed(relayed) };
        let mut fds = [PollFd { handle: handle.raw(), events: POLLIN, revents: 0 }];
        // SAFETY: the entry lives until the call has returned.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
        poll_until_woken(&Solo::new(group as u32, 2), net, set, Timeout::NEVER, Some(words), || false)
    }
}

/// One of the groups loads the host's word and the other its copy: both end, whichever it is. A
/// group's own word ends the wait of that one alone.
#[test]
fn words_of_the_host_and_of_the_device_end_the_polls_of_groups() {
    let world = world();
    let (net, handle) = (world.net(), world.open_driven(5));
    let wakes = Wakes { own: Default::default(), relayed: Default::default() };
    for round in 1..=50 {
        let seen = wakes.relayed[1].load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let polls = [0, 1].map(|group| {
                let wakes = &wakes;
                scope.spawn(move || wakes.wait(net, handle, group, seen))
            });
            if round % 2 == 0 {
                wakes.relayed[0].store(round, Ordering::Release);
            } else {
                // Before its group waits, or while it does: a group that begins later has seen it.
                until("woken", || {
                    for own in &wakes.own {
                        own.fetch_add(1, Ordering::Release);
                    }
                    polls.iter().all(|poll| poll.is_finished())
                });
            }
            for poll in polls {
                assert_eq!(poll.join().unwrap(), Ok(0));
            }
        });
        if round % 2 == 0 {
            assert_eq!(wakes.relayed[1].load(Ordering::Acquire), round, "the copy");
        }
    }
}

/// One block takes what comes to eight sockets, sometimes only a part of it.
#[test]
fn polls_of_the_same_set_miss_nothing() {
    const ROUNDS: u64 = 3000;
    let world = world();
    let net = world.net();
    let handles: [Handle; 8] = std::array::from_fn(|slot| world.open_driven(slot as u32));
    let block = |g: &Lanes, set: PollSet| {
        let (mut cache, mut left, mut turns) = (PollCache::EMPTY, ROUNDS, 0);
        while left > 0 {
            // A lost change ends it.
            let ready = poll_again(g, net, set, &mut cache, LONG, None, || false).unwrap();
            assert!(ready > 0, "{left} bytes do not come");
            for fd in (0..set.len()).map(|index| set.get(index)) {
                let (Some(handle), true) = (Handle::from_raw(fd.handle), fd.revents != 0) else { continue };
                turns += 1;
                let len = if turns % 3 == 0 { 1 } else { 64 };
                let mut half = RecvHalf::from_handle(g, net, handle).unwrap();
                let got = half.try_peek(g, len).unwrap().len();
                half.release(g, got);
                left -= got as u64;
            }
        }
    };
    for lanes in [1, 2] {
        let mut fds = entries(handles, POLLIN);
        // SAFETY: the entries live until the lanes have ended, which are one group.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), fds.len()) };
        std::thread::scope(|scope| {
            for lane in Lanes::group(0, 1, lanes) {
                let block = &block;
                scope.spawn(move || block(&lane, set));
            }
            for round in 0..ROUNDS {
                // Eight at most without a pause.
                let slot = (round * round / 7 % 8) as u32;
                let word = world.landed(slot);
                word.publish(word.observe() + 1);
                tell(&world, slot);
                if round % 8 == 0 {
                    std::thread::yield_now();
                }
            }
        });
    }
}
