//! What changes a group's sockets.

use super::proxy::{G, Proxy, events, retire, room};
use crate::world::World;
use gpunet_device::poll::{POLLIN, POLLOUT};
use gpunet_device::{Error, RecvHalf};

#[test]
fn a_change_is_delivered_once_until_the_block_waits_again() {
    let world = World::new();
    let socket = world.open_driven(3);
    let mut proxy = Proxy::new(&world, 9, 8);
    let group = proxy.group;
    group.add(&G, socket, POLLIN, 42).unwrap();
    let (mut a, mut b) = (room(2), room(2));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    assert_eq!(proxy.take(&mut a), []);
    assert_eq!(proxy.watch(3).group(), Some(group.handle()), "armed");
    proxy.land(3, 10);
    assert_eq!(proxy.take(&mut a), [42]);
    assert_eq!((a.get(0).handle, a.get(0).revents), (socket.raw(), POLLIN));
    // Another block gets nothing, whatever comes.
    proxy.land(3, 20);
    assert_eq!(proxy.take(&mut b), []);
    // Level: what is left is delivered again.
    assert_eq!(proxy.take(&mut a), [42]);
    let mut half = RecvHalf::from_handle(&G, world.net(), socket).unwrap();
    assert_eq!(half.peek(&G, 100).unwrap().len(), 20);
    half.release(&G, 20);
    assert_eq!(proxy.take(&mut a), []);
    // Armed again, for whoever waits.
    proxy.land(3, 21);
    assert_eq!(proxy.take(&mut b), [42]);
    assert_eq!(proxy.take(&mut a), []);
    group.rearm(&G, socket).unwrap();
    assert_eq!(proxy.take(&mut a), [42], "given away before the block waits");
    assert_eq!(proxy.take(&mut b), [], "and it is not the block's any more");
}

#[test]
fn a_socket_that_is_ready_when_it_is_added_needs_no_news() {
    let world = World::new();
    let (socket, idle) = (world.open_driven(3), world.open_driven(4));
    world.landed(3).publish(1);
    let proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, socket, POLLIN, 1).unwrap();
    proxy.group.add(&G, idle, POLLIN, 2).unwrap();
    let mut memory = room(4);
    let mut own = events(&mut memory);
    assert_eq!(proxy.take(&mut own), [1]);
    proxy.group.modify(&G, idle, POLLOUT, 3).unwrap();
    assert_eq!(proxy.take(&mut own), [1, 3]);
    proxy.group.modify(&G, idle, 0, 3).unwrap();
    proxy.group.remove(&G, socket).unwrap();
    assert_eq!(proxy.take(&mut own), []);
    assert_eq!(proxy.group.rearm(&G, socket), Err(Error::NotFound));
}

#[test]
fn a_group_has_no_more_sockets_than_it_was_made_for() {
    let world = World::new();
    let sockets: Vec<_> = (0..4).map(|slot| world.open_driven(slot)).collect();
    let proxy = Proxy::new(&world, 9, 2);
    for (token, socket) in sockets.iter().enumerate().take(2) {
        proxy.group.add(&G, *socket, POLLIN, token as u64).unwrap();
    }
    assert_eq!(proxy.group.add(&G, sockets[2], POLLIN, 2), Err(Error::NoSpace));
    assert_eq!(proxy.group.add(&G, sockets[0], POLLIN, 2), Err(Error::AlreadyExists));
    proxy.group.remove(&G, sockets[0]).unwrap();
    proxy.group.add(&G, sockets[2], POLLIN, 2).unwrap();
    assert_eq!(proxy.group.add(&G, world.open_fresh(5), POLLIN, 2), Err(Error::NotConnected));
    assert_eq!(proxy.group.add(&G, proxy.group.handle(), POLLIN, 2), Err(Error::NotConnected));
}

#[test]
fn what_the_slots_last_socket_has_left_is_not_the_next_ones() {
    let world = World::new();
    let first = world.open_driven(3);
    let mut proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, first, POLLIN, 1).unwrap();
    let mut memory = room(4);
    let mut own = events(&mut memory);
    assert_eq!(proxy.take(&mut own), []);
    // The proxy is about to tell of the first socket when it is taken out and the next one takes
    // its place.
    let late = proxy.watch(3).entry(3);
    proxy.group.remove(&G, first).unwrap();
    assert_eq!(proxy.watch(3).group(), None);
    let second = world.open_driven(3);
    proxy.group.add(&G, second, POLLIN, 2).unwrap();
    assert_eq!(proxy.take(&mut own), []);
    let before = proxy.state(3);
    proxy.push(0, late.0);
    assert_eq!(proxy.take(&mut own), []);
    assert_eq!(proxy.state(3), before, "still armed for the same arm");
    proxy.land(3, 1);
    assert_eq!(proxy.take(&mut own), [2]);
}

#[test]
fn a_socket_that_is_closed_leaves_whoever_has_its_event() {
    let world = World::new();
    let sockets: Vec<_> = (0..3).map(|slot| world.open_driven(slot)).collect();
    let mut proxy = Proxy::new(&world, 9, 3);
    for (token, socket) in sockets.iter().enumerate() {
        proxy.group.add(&G, *socket, POLLIN, token as u64).unwrap();
    }
    let mut memory = room(4);
    let mut own = events(&mut memory);
    assert_eq!(proxy.take(&mut own), []);
    (0..3).for_each(|slot| proxy.land(slot, 1));
    assert_eq!(proxy.take(&mut own), [0, 1, 2]);
    // The proxy has closed one for a launch that has ended, and tells of it. The others are still
    // ready.
    retire(&world, 1);
    proxy.tell(1);
    assert_eq!(proxy.take(&mut own), [0, 2]);
    assert_eq!(proxy.group.rearm(&G, sockets[1]), Err(Error::NotFound));
    // Its place in the group is free.
    let next = world.open_driven(5);
    world.landed(5).publish(1);
    proxy.group.add(&G, next, POLLIN, 7).unwrap();
    assert_eq!(proxy.take(&mut own), [0, 2, 7]);
}

#[test]
fn lists_never_overflow_though_nobody_waits() {
    let world = World::new();
    let sockets: Vec<_> = (0..4).map(|slot| world.open_driven(slot)).collect();
    let mut proxy = Proxy::new(&world, 9, 4);
    let mut memory = room(8);
    let mut own = events(&mut memory);
    let rounds = 10 * proxy.cells;
    for round in 0..rounds {
        for (token, socket) in sockets.iter().enumerate() {
            proxy.group.add(&G, *socket, POLLIN, token as u64).unwrap();
        }
        assert_eq!(proxy.take(&mut own), [], "armed");
        // Something changes of each, which is not news for long.
        for (slot, socket) in sockets.iter().enumerate() {
            proxy.tell(slot as u32);
            proxy.group.remove(&G, *socket).unwrap();
        }
        assert!(round > 0 || proxy.count(0).peek() > 0, "entries were pushed");
    }
    for (token, socket) in sockets.iter().enumerate() {
        proxy.group.add(&G, *socket, POLLIN, token as u64).unwrap();
        proxy.land(token as u32, 1);
    }
    assert_eq!(proxy.take(&mut own), [0, 1, 2, 3]);
}

/// A socket joins and leaves often while nothing changes. Then something does.
#[test]
fn the_proxy_tells_of_a_change_however_often_a_socket_was_armed_in_vain() {
    let world = World::new();
    let socket = world.open_driven(3);
    let mut proxy = Proxy::new(&world, 9, 8);
    let mut memory = room(4);
    let mut own = events(&mut memory);
    proxy.group.add(&G, socket, POLLIN, 1).unwrap();
    assert_eq!(proxy.take(&mut own), []);
    proxy.tell(3);
    let told = proxy.watch(3);
    for _ in 0..1 << 18 {
        proxy.group.remove(&G, socket).unwrap();
        proxy.group.add(&G, socket, POLLIN, 1).unwrap();
        assert_eq!(proxy.take(&mut own), []);
        assert_ne!(proxy.watch(3), told);
    }
    proxy.land(3, 1);
    assert_eq!(proxy.take(&mut own), [1]);
}

#[test]
fn fewer_bytes_than_the_low_water_mark_are_no_event() {
    let world = World::new();
    let socket = world.open_driven(3);
    // SAFETY: the entry of the slot, which nobody else uses.
    unsafe { (*world.entry(3)).options = gpunet_device::Options::DEFAULT.with_low_water(1, 100) };
    let mut proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, socket, POLLIN, 1).unwrap();
    let mut memory = room(1);
    let mut own = events(&mut memory);
    for position in [0, 50, 99] {
        proxy.land(3, position);
        assert_eq!(proxy.take(&mut own), [], "{position}");
    }
    proxy.land(3, 100);
    assert_eq!(proxy.take(&mut own), [1]);
}
