//! Lists that somebody has overwritten: only their group fails.

use super::proxy::{G, Proxy, events, room};
use crate::world::{SLOTS, World};
use gpunet_device::Error;
use gpunet_device::Timeout;
use gpunet_device::poll::POLLIN;

#[test]
fn a_count_that_cannot_be_fails_its_group_and_no_other() {
    for count in [u64::MAX, 1 << 40, 1000] {
        let world = World::new();
        let (socket, other) = (world.open_driven(3), world.open_driven(4));
        let proxy = Proxy::new(&world, 9, 8);
        let mut second = Proxy::new(&world, 10, 8);
        proxy.group.add(&G, socket, POLLIN, 1).unwrap();
        second.group.add(&G, other, POLLIN, 2).unwrap();
        let (mut a, mut b) = (room(2), room(2));
        let (mut a, mut b) = (events(&mut a), events(&mut b));
        assert_eq!((proxy.take(&mut a), second.take(&mut b)), (vec![], vec![]));
        proxy.count(0).publish(count);
        assert_eq!(proxy.group.wait(&G, &mut a, Timeout::NON_BLOCKING), Err(Error::Protocol), "{count}");
        second.land(4, 1);
        assert_eq!(second.take(&mut b), [2]);
    }
}

#[test]
fn an_entry_of_a_slot_that_does_not_exist_fails_the_group() {
    let world = World::new();
    let mut proxy = Proxy::new(&world, 9, 8);
    let mut memory = room(2);
    let mut own = events(&mut memory);
    proxy.push(0, u64::from(SLOTS) << 48 | 1 << 18);
    assert_eq!(proxy.group.wait(&G, &mut own, Timeout::NON_BLOCKING), Err(Error::Protocol));
    assert_eq!(proxy.take(&mut own), [], "the next ones are believed again");
}

/// The list of one group names a socket of another, and its arm.
#[test]
fn a_socket_of_another_group_is_not_delivered() {
    let world = World::new();
    let mut first = Proxy::new(&world, 9, 8);
    let mut second = Proxy::new(&world, 10, 8);
    let (mut a, mut b) = (room(2), room(2));
    let (mut a, mut b) = (events(&mut a), events(&mut b));
    second.group.add(&G, world.open_driven(4), POLLIN, 2).unwrap();
    assert_eq!(second.take(&mut b), [], "armed");
    world.landed(4).publish(1);
    first.push(0, second.watch(4).entry(4).0);
    assert_eq!(first.take(&mut a), []);
    second.tell(4);
    assert_eq!(second.take(&mut b), [2]);
}

#[test]
fn entries_of_random_bytes_deliver_nothing_that_is_not_so() {
    let world = World::new();
    let sockets: Vec<_> = (0..4).map(|slot| world.open_driven(slot)).collect();
    let mut proxy = Proxy::new(&world, 9, 8);
    for (token, socket) in sockets.iter().enumerate() {
        proxy.group.add(&G, *socket, POLLIN, token as u64).unwrap();
    }
    let mut memory = room(8);
    let mut own = events(&mut memory);
    assert_eq!(proxy.take(&mut own), []);
    let mut random = 1u64;
    for _ in 0..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Of slots that exist.
        proxy.push(0, random & !(0xffc0 << 48));
        // The right entry of a socket of which nothing has changed, now and then.
        proxy.push(1, proxy.watch((random % 4) as u32).entry((random % 4) as u32).0);
        assert_eq!(proxy.take(&mut own), []);
    }
    // Nothing was lost by it.
    for slot in 0..4 {
        proxy.land(slot, 1);
    }
    assert_eq!(proxy.take(&mut own), [0, 1, 2, 3]);
}

#[test]
fn a_cancelled_launch_waits_no_more() {
    let world = World::new();
    let socket = world.open_driven(3);
    let mut proxy = Proxy::new(&world, 9, 8);
    proxy.group.add(&G, socket, POLLIN, 1).unwrap();
    let mut memory = room(2);
    let mut own = events(&mut memory);
    world.cancel().publish(1);
    for timeout in [Timeout::NON_BLOCKING, Timeout::NEVER, Timeout::ms(1)] {
        assert_eq!(proxy.group.wait(&G, &mut own, timeout), Err(Error::Canceled));
    }
    world.cancel().publish(0);
    proxy.land(3, 1);
    assert_eq!(proxy.take(&mut own), [1], "what came meanwhile is not lost");
}
