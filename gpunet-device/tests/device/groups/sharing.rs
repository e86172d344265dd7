//! Several blocks that wait for one group.

use super::proxy::{G, Proxy, events, room};
use crate::world::{LAUNCH, SLOTS, World, buffer};
use gpunet_device::group::Lanes;
use gpunet_device::poll::POLLIN;
use gpunet_device::poll_group::Events;
use gpunet_device::{RecvHalf, Stream, Timeout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Three blocks serve eight sockets while the proxy lands bytes: all bytes are read, and no two
/// blocks are at one socket.
#[test]
fn each_event_is_one_blocks_and_none_is_lost() {
    const SOCKETS: u32 = 8;
    const BYTES: u64 = 2000;
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, SOCKETS);
    let (net, group) = (world.net(), proxy.group);
    for slot in 0..SOCKETS {
        group.add(&G, world.open_driven(slot), POLLIN, u64::from(slot)).unwrap();
    }
    let at_work: Vec<_> = (0..SOCKETS).map(|_| AtomicBool::new(false)).collect();
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (at_work, read) = (&at_work, &read);
            scope.spawn(move || {
                let mut memory = room(2);
                let mut own = events(&mut memory);
                while read.load(Ordering::Relaxed) < BYTES * u64::from(SOCKETS) {
                    group.wait(&G, &mut own, Timeout::ms(1)).unwrap();
                    for event in (0..own.len()).map(|index| own.get(index)) {
                        let busy = &at_work[event.token as usize];
                        assert!(!busy.swap(true, Ordering::AcqRel), "two blocks have one event");
                        let handle = gpunet_device::Handle::from_raw(event.handle).unwrap();
                        let mut half = RecvHalf::from_handle(&G, net, handle).unwrap();
                        let n = half.try_peek(&G, usize::MAX).unwrap().len();
                        half.release(&G, n);
                        read.fetch_add(n as u64, Ordering::Relaxed);
                        busy.store(false, Ordering::Release);
                    }
                }
            });
        }
        // Within the ring, whatever was announced.
        for position in 1..=BYTES {
            for slot in 0..SOCKETS {
                proxy.land(slot, position);
            }
            if position.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(read.load(Ordering::Relaxed), BYTES * u64::from(SOCKETS));
}

#[test]
fn direct_streams_have_no_proxy_and_are_delivered_all_the_same() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let driven = world.open_driven(2);
    let mut proxy = Proxy::new(&world, 9, 8);
    let (net, group) = (world.net(), proxy.group);
    group.add(&G, b, POLLIN, 1).unwrap();
    group.add(&G, driven, POLLIN, 2).unwrap();
    let mut memory = room(2);
    let mut own = events(&mut memory);
    assert_eq!(proxy.take(&mut own), []);
    assert_eq!(proxy.watch(1).group(), None, "the proxy has nothing to tell");
    std::thread::scope(|scope| {
        scope.spawn(move || Stream::from_handle(&G, net, a).unwrap().send_all(&G, b"hello"));
        assert_eq!(group.wait(&G, &mut own, Timeout::NEVER), Ok(1));
    });
    assert_eq!(own.get(0).token, 1);
    proxy.land(2, 1);
    assert_eq!(proxy.take(&mut own), [1, 2]);
}

/// All lanes of a block wait together, and share the work.
#[test]
fn lanes_of_a_block_get_the_same_events() {
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, 40);
    for slot in 10..40 {
        proxy.group.add(&G, world.open_driven(slot), POLLIN, u64::from(slot)).unwrap();
    }
    let (pair, _) = world.open_pair(0, 1);
    proxy.group.add(&G, pair, POLLIN, 100).unwrap();
    let group = proxy.group;
    let memory = buffer(Vec::leak(room(64)));
    let wait = |timeout| -> Vec<Vec<u64>> {
        std::thread::scope(|scope| {
            let lanes = Lanes::group(0, 1, 33).into_iter().map(|lane| {
                scope.spawn(move || {
                    let mut own = Events::new(memory);
                    let count = group.wait(&lane, &mut own, timeout).unwrap();
                    (0..count).map(|index| own.get(index).token).collect::<Vec<_>>()
                })
            });
            let lanes: Vec<_> = lanes.collect();
            lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
        })
    };
    assert_eq!(wait(Timeout::NON_BLOCKING), vec![Vec::<u64>::new(); 33]);
    for slot in (10..40).step_by(3) {
        proxy.land(slot, 5);
    }
    let mut found = wait(Timeout::NEVER);
    assert!(found.iter().all(|lane| *lane == found[0]));
    found[0].sort_unstable();
    assert_eq!(found[0], (10..40u32).step_by(3).map(u64::from).collect::<Vec<_>>());
}

#[test]
fn what_a_launch_held_when_it_ended_is_delivered_to_another() {
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, 8);
    for slot in 0..2 {
        proxy.group.add(&G, world.open_driven(slot), POLLIN, u64::from(slot)).unwrap();
    }
    let (mut a, mut b) = (room(2), room(2));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    assert_eq!(proxy.take(&mut a), []);
    proxy.land(0, 1);
    proxy.land(1, 1);
    assert_eq!(proxy.take(&mut a), [0, 1]);
    // Another launch has ended: this one still has its events.
    world.end_launch(LAUNCH + 1);
    assert_eq!(proxy.take(&mut b), []);
    world.end_launch(LAUNCH);
    assert_eq!(proxy.take(&mut b), [0, 1]);
    // Whoever had them and goes on all the same arms nothing.
    assert_eq!(proxy.take(&mut a), []);
    assert_eq!(proxy.take(&mut b), [0, 1]);
}

/// A block has passed an event on, and comes back after the socket was delivered to others very
/// often: it has given it away.
#[test]
fn an_event_that_was_passed_on_is_no_blocks_again_however_late_it_comes() {
    let world = World::new();
    let socket = world.open_driven(3);
    let mut proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, socket, POLLIN, 1).unwrap();
    proxy.land(3, 1);
    let memory: [_; 3] = std::array::from_fn(|_| room(1));
    let [mut late, mut other, mut next] = memory;
    let [mut late, mut other, mut next] = [events(&mut late), events(&mut other), events(&mut next)];
    assert_eq!(proxy.take(&mut late), [1]);
    proxy.group.rearm(&G, socket).unwrap();
    for _ in 0..1 << 16 {
        assert_eq!(proxy.take(&mut other), [1]);
        assert_ne!(other.get(0).turn, late.get(0).turn);
        proxy.group.rearm(&G, socket).unwrap();
    }
    assert_eq!(proxy.take(&mut other), [1]);
    assert_eq!(proxy.take(&mut late), []);
    assert_eq!(proxy.take(&mut next), [], "the other block has it");
}

#[test]
fn what_a_block_had_claimed_beside_an_impossible_entry_is_not_lost() {
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, 8);
    for slot in 0..3 {
        proxy.group.add(&G, world.open_driven(slot), POLLIN, u64::from(slot)).unwrap();
    }
    let (mut a, mut b) = (room(8), room(8));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    assert_eq!(proxy.take(&mut a), []);
    proxy.land(0, 1);
    assert_eq!(proxy.take(&mut a), [0]);
    // Into one list: the bad one comes first.
    proxy.push(0, u64::from(SLOTS) << 48 | 1 << 18);
    proxy.land(2, 1);
    proxy.land(1, 1);
    assert_eq!(proxy.group.wait(&G, &mut a, Timeout::NON_BLOCKING), Err(gpunet_device::Error::Protocol));
    assert_eq!(proxy.take(&mut b), [0, 1, 2], "of the block that failed, too");
}
