//! Prepared messages: where they lie, and kernels that play thousands of them.

use crate::world::{World, pattern};
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Buffer, Direction, Error, Group, Net, Prepared, Timeout};

const G: Solo = Solo::new(0, 1);
/// Bytes of the ring.
const RING: u64 = 4096;

#[test]
fn a_message_lies_where_its_position_says() {
    let world = World::new();
    let handle = world.open_driven(1);
    for direction in [Direction::Send, Direction::Recv] {
        world.take(1, direction);
        let message = |position, len| Prepared::new(handle, direction, position, len).span(&G, world.net());
        let start = message(0, 1).unwrap().first.ptr;
        let wraps = message(3 * RING - 100, 300).unwrap();
        assert_eq!((wraps.first.len, wraps.second.len), (100, 200));
        assert_eq!(wraps.first.ptr, start.wrapping_add(RING as usize - 100));
        assert_eq!(wraps.second.ptr, start);
        assert_eq!(message(7, RING).unwrap().len(), RING as usize);
        assert_eq!(message(7, RING + 1), Err(Error::InvalidArgument));
    }
    let free = world.open_driven(2);
    let unprepared = Prepared::new(free, Direction::Send, 0, 1);
    assert_eq!(unprepared.span(&G, world.net()), Err(Error::InvalidArgument));
    let strange = Prepared { direction: 9, ..unprepared };
    assert_eq!(strange.span(&G, world.net()), Err(Error::InvalidArgument));
    let nothing = Prepared { socket: 0, ..unprepared };
    assert_eq!(nothing.span(&G, world.net()), Err(Error::BadHandle));
}

/// Sends message after message out of a buffer.
fn send<G: Group>(g: &G, net: Net, first: Prepared, count: u64, buffer: Buffer) {
    for i in 0..count {
        let message = first.nth(i).unwrap();
        message.room(RING).wait(g, net, Timeout::NEVER).unwrap();
        let span = message.span(g, net).unwrap();
        let from = buffer.skip(i as usize * message.len as usize);
        // SAFETY: the ring has room for the message, and the buffer holds it.
        unsafe { copy_into_ring(g, span, from.as_ptr()) };
        message.trigger().release(g, net).unwrap();
    }
    first.nth(count - 1).unwrap().done().wait(g, net, Timeout::NEVER).unwrap();
}

/// Receives message after message into a buffer.
fn receive<G: Group>(g: &G, net: Net, first: Prepared, count: u64, buffer: Buffer) {
    for i in 0..count {
        let message = first.nth(i).unwrap();
        message.arrived().wait(g, net, Timeout::NEVER).unwrap();
        let span = message.span(g, net).unwrap();
        let to = buffer.skip(i as usize * message.len as usize);
        // SAFETY: the message has landed, and the buffer has room for it.
        unsafe { copy_out_of_ring(g, to.as_ptr(), span) };
        message.trigger().release(g, net).unwrap();
    }
}

#[test]
fn two_blocks_play_thousands_of_messages_from_two_values() {
    // Not a divisor of the ring: messages wrap at every place.
    const LEN: u64 = 1000;
    const COUNT: u64 = 2500;
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    world.take(0, Direction::Send);
    world.take(1, Direction::Recv);
    let mut out = pattern((LEN * COUNT) as usize);
    let mut back = vec![0; out.len()];
    let (source, target) = (crate::world::buffer(&mut out), crate::world::buffer(&mut back));
    let net = world.net();
    std::thread::scope(|scope| {
        for lane in Lanes::group(0, 1, 3) {
            scope.spawn(move || send(&lane, net, Prepared::new(a, Direction::Send, 0, LEN), COUNT, source));
        }
        for lane in Lanes::group(0, 1, 2) {
            let first = Prepared::new(b, Direction::Recv, 0, LEN);
            scope.spawn(move || receive(&lane, net, first, COUNT, target));
        }
    });
    assert!(back == out);
}
