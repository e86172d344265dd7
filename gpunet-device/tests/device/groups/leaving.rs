//! Sockets that leave a group in whatever way: nothing of the group stays behind at them, or at the
//! next ones of their slots.

use super::proxy::{G, Proxy, events, retire, room};
use crate::world::{GENERATION, LAUNCH, SOCKETS, World};
use gpunet_device::abi::entry::SlotState;
use gpunet_device::poll::POLLIN;
use gpunet_device::{Error, Handle};

/// A slot of the host program.
const HOST_SLOT: u32 = SOCKETS + 3;

#[test]
fn a_socket_that_the_host_opened_is_let_go_when_its_group_is_closed() {
    let world = World::new();
    let socket = world.open_driven(HOST_SLOT);
    let first = Proxy::new(&world, 9, 8);
    first.group.add(&G, socket, POLLIN, 1).unwrap();
    first.close();
    let mut second = Proxy::new(&world, 10, 8);
    second.group.add(&G, socket, POLLIN, 2).unwrap();
    let mut memory = room(2);
    let mut own = events(&mut memory);
    assert_eq!(second.take(&mut own), []);
    second.land(HOST_SLOT, 1);
    assert_eq!(second.take(&mut own), [2]);
}

#[test]
fn a_socket_of_the_host_that_a_launch_held_is_delivered_to_another() {
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, world.open_driven(HOST_SLOT), POLLIN, 1).unwrap();
    let (mut a, mut b) = (room(2), room(2));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    proxy.land(HOST_SLOT, 1);
    assert_eq!(proxy.take(&mut a), [1]);
    assert_eq!(proxy.take(&mut b), []);
    world.end_launch(LAUNCH);
    assert_eq!(proxy.take(&mut b), [1]);
}

/// The host makes a handle stale by the state alone.
#[test]
fn the_next_socket_of_a_slot_joins_though_nobody_has_noticed_that_the_last_was_closed() {
    let world = World::new();
    for slot in [3, HOST_SLOT] {
        let mut proxy = Proxy::new(&world, 9 + slot % 2, 1);
        let old = world.open_driven(slot);
        proxy.group.add(&G, old, POLLIN, 1).unwrap();
        let mut memory = room(2);
        let mut own = events(&mut memory);
        assert_eq!(proxy.take(&mut own), [], "armed");
        world.open_driven(slot);
        let next = Handle::new(slot, GENERATION + 1);
        world.set_state(
            slot,
            SlotState::new(gpunet_device::abi::entry::Kind::Stream, next.generation(), LAUNCH),
        );
        // The group has room for one: the place of the last is free.
        proxy.group.add(&G, next, POLLIN, 2).unwrap();
        assert_eq!(proxy.group.add(&G, next, POLLIN, 3), Err(Error::AlreadyExists));
        assert_eq!(proxy.take(&mut own), []);
        proxy.land(slot, 1);
        assert_eq!(proxy.take(&mut own), [2]);
        proxy.close();
    }
}

#[test]
fn sockets_with_pending_events_are_heard_in_the_next_group_after_theirs_was_closed() {
    let world = World::new();
    let sockets: Vec<_> = (0..4).map(|slot| world.open_driven(slot)).collect();
    let first = Proxy::new(&world, 9, 8);
    for socket in &sockets {
        first.group.add(&G, *socket, POLLIN, 1).unwrap();
    }
    first.close();
    // In the same slot, and in another.
    for slot in [9, 10] {
        let mut next = Proxy::new(&world, slot, 8);
        let mut memory = room(4);
        let mut own = events(&mut memory);
        for (token, socket) in sockets.iter().enumerate() {
            next.group.add(&G, *socket, POLLIN, token as u64).unwrap();
        }
        (0..4).for_each(|at| world.landed(at).set(0));
        assert_eq!(next.take(&mut own), []);
        (0..4).for_each(|at| next.land(at, 1));
        assert_eq!(next.take(&mut own), [0, 1, 2, 3]);
        for socket in &sockets {
            next.group.rearm(&G, *socket).unwrap();
        }
        next.close();
    }
}

#[test]
fn a_socket_is_heard_in_the_group_that_it_was_moved_to_before_anybody_looked_at_it() {
    let world = World::new();
    let sockets: Vec<_> = (0..4).map(|slot| world.open_driven(slot)).collect();
    let (first, mut second) = (Proxy::new(&world, 9, 8), Proxy::new(&world, 10, 8));
    let (mut a, mut b) = (room(4), room(4));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    for (token, socket) in sockets.iter().enumerate() {
        first.group.add(&G, *socket, POLLIN, token as u64).unwrap();
    }
    // From the top of the stack, from its bottom, and from between. Nobody waits for the first
    // group meanwhile.
    for moved in [3, 0, 2] {
        first.group.remove(&G, sockets[moved]).unwrap();
        second.group.add(&G, sockets[moved], POLLIN, 10 + moved as u64).unwrap();
        second.land(moved as u32, 1);
    }
    assert_eq!(second.take(&mut b), [10, 12, 13]);
    // Who stayed is still to be looked at.
    world.landed(1).publish(1);
    assert_eq!(first.take(&mut a), [1]);
}

/// The proxy closes the group of a launch that has ended; no block does.
#[test]
fn sockets_of_a_group_whose_launch_has_ended_join_another() {
    for is_slot_reused in [false, true] {
        let world = World::new();
        let (queued, armed) = (world.open_driven(1), world.open_driven(2));
        let first = Proxy::new(&world, 9, 8);
        let mut memory = room(4);
        let mut own = events(&mut memory);
        first.group.add(&G, armed, POLLIN, 1).unwrap();
        assert_eq!(first.take(&mut own), []);
        first.group.add(&G, queued, POLLIN, 2).unwrap();
        let handle = first.group.handle();
        world.set_state(handle.slot(), SlotState::retired(handle.generation()));
        let mut next = Proxy::new(&world, if is_slot_reused { 9 } else { 10 }, 8);
        for (socket, token) in [(armed, 3), (queued, 4)] {
            next.group.add(&G, socket, POLLIN, token).unwrap();
            assert_eq!(next.take(&mut own), []);
            next.land(socket.slot(), 1);
            assert_eq!(next.take(&mut own), [token]);
            next.group.remove(&G, socket).unwrap();
        }
    }
}

/// The state of a socket that was closed while it was still to be looked at does not keep the next
/// one of its slot out.
#[test]
fn a_slot_that_is_reused_while_it_is_on_a_stack_is_heard_in_another_group() {
    let world = World::new();
    let (first, mut second) = (Proxy::new(&world, 9, 8), Proxy::new(&world, 10, 8));
    let old = world.open_driven(3);
    first.group.add(&G, old, POLLIN, 1).unwrap();
    retire(&world, 3);
    first.group.remove(&G, old).unwrap();
    let next = world.open_driven(3);
    second.group.add(&G, next, POLLIN, 2).unwrap();
    let mut memory = room(4);
    let mut own = events(&mut memory);
    assert_eq!(second.take(&mut own), []);
    second.land(3, 1);
    assert_eq!(second.take(&mut own), [2]);
    assert_eq!(first.take(&mut own), []);
}
