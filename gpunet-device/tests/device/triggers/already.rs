//! Calls by handle on a stream of which the host has a direction.

use crate::world::{World, held};
use gpunet_device::abi::entry::lock;
use gpunet_device::cpu::deferred;
use gpunet_device::group::Solo;
use gpunet_device::{Direction, Error, Handle, Net, RecvHalf, Result, SendHalf, Stream};
use gpunet_posix::{SOCKET_TIMEOUT, close, in_place, ioctl, recv, send, shutdown};
use std::sync::atomic::Ordering;

const G: Solo = Solo::new(0, 1);

/// Calls that use the sending direction.
fn sends(net: Net, handle: Handle) -> Vec<Result<()>> {
    let (socket, byte) = (handle.raw(), 0u8);
    vec![
        SendHalf::from_handle(&G, net, handle).map(|_| ()),
        // SAFETY: a byte of this stack.
        unsafe { send::send(&G, net, socket, &raw const byte, 1, 0) }.map(|_| ()),
        in_place::reserve(&G, net, socket, 1, SOCKET_TIMEOUT).map(|_| ()),
        in_place::commit(&G, net, socket, 1).map(|_| ()),
        shutdown::shutdown(&G, net, socket, shutdown::SHUT_WR).map(|_| ()),
    ]
}

/// Calls that use the receiving direction.
fn receives(net: Net, handle: Handle) -> Vec<Result<()>> {
    let (socket, mut byte, mut count) = (handle.raw(), 0u8, 0);
    vec![
        RecvHalf::from_handle(&G, net, handle).map(|_| ()),
        // SAFETY: a byte of this stack.
        unsafe { recv::recv(&G, net, socket, &raw mut byte, 1, 0) }.map(|_| ()),
        in_place::peek(&G, net, socket, 1, SOCKET_TIMEOUT).map(|_| ()),
        in_place::release(&G, net, socket, 1).map(|_| ()),
        // SAFETY: an int of this stack.
        unsafe { ioctl::ioctl(&G, net, socket, ioctl::FIONREAD, &raw mut count) }.map(|_| ()),
        shutdown::shutdown(&G, net, socket, shutdown::SHUT_RD).map(|_| ()),
    ]
}

/// Calls that use both.
fn both(net: Net, handle: Handle) -> Vec<Result<()>> {
    vec![
        Stream::from_handle(&G, net, handle).map(|_| ()),
        shutdown::shutdown(&G, net, handle.raw(), shutdown::SHUT_RDWR).map(|_| ()),
        close::close(&G, net, handle.raw()).map(|_| ()),
        deferred::close(net, handle).map(|_| ()),
    ]
}

#[test]
fn calls_by_handle_find_a_direction_that_is_taken_in_use() {
    for direction in [Direction::Send, Direction::Recv] {
        for held in [lock::TAKEN, lock::RELEASE].map(held) {
            let world = World::new();
            let (net, handle) = (world.net(), world.open_driven(1));
            world.direction_lock(1, direction).store(held, Ordering::SeqCst);
            // None of them waits: it would be cancelled.
            world.cancel().publish(1);
            let calls = match direction {
                Direction::Send => sends,
                Direction::Recv => receives,
            };
            for (n, found) in calls(net, handle).into_iter().chain(both(net, handle)).enumerate() {
                assert_eq!(found, Err(Error::Busy), "call {n}, {direction:?}");
            }
            assert_eq!(world.direction_lock(1, direction).load(Ordering::SeqCst), held);
        }
    }
}

#[test]
fn the_other_direction_is_free() {
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(1));
    world.take(1, Direction::Recv);
    assert_eq!(sends(net, handle), vec![Ok(()); 5]);
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(1));
    world.landed(1).publish(4);
    world.take(1, Direction::Send);
    assert_eq!(receives(net, handle), vec![Ok(()); 6]);
}

#[test]
fn a_stream_is_not_closed_while_the_host_has_a_direction() {
    let world = World::new();
    let (net, handle) = (world.net(), world.open_driven(1));
    let stream = Stream::from_handle(&G, net, handle).unwrap();
    world.take(1, Direction::Recv);
    assert_eq!(stream.close(&G), Err(Error::Busy));
    assert_eq!((world.published(1).observe(), world.consumed(1).observe()), (0, 0));
    assert!(SendHalf::from_handle(&G, net, handle).is_ok(), "it is still open");
}
