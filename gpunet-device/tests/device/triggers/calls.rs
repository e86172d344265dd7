//! Triggers and gates as C programs use them: timeouts in nanoseconds, EAGAIN when they are over.

use crate::world::World;
use gpunet_device::abi::Status;
use gpunet_device::group::Solo;
use gpunet_device::{Direction, Error, Gate, Handle, Net, Trigger};
use gpunet_posix::SOCKET_TIMEOUT;
use gpunet_posix::ioctl::nonblocking;
use gpunet_posix::trigger::{release, test, wait};

const G: Solo = Solo::new(0, 1);

/// A stream in slot 1 whose receiving direction is taken once `prepare` has been called with it.
fn taken(prepare: impl FnOnce(Net, Handle)) -> (World, Gate) {
    let world = World::new();
    let handle = world.open_driven(1);
    prepare(world.net(), handle);
    world.take(1, Direction::Recv);
    (world, Gate::new(handle, Direction::Recv, 10))
}

#[test]
fn a_wait_whose_time_is_over_is_eagain() {
    let (world, gate) = taken(|_, _| ());
    let net = world.net();
    assert_eq!(test(&G, net, gate), Ok(0));
    for timeout_ns in [0, 1_000_000] {
        assert_eq!(wait(&G, net, gate, timeout_ns), Err(Error::WouldBlock));
    }
    world.landed(1).publish(10);
    assert_eq!(test(&G, net, gate), Ok(1));
    for timeout_ns in [0, 1_000_000, -1, SOCKET_TIMEOUT] {
        assert_eq!(wait(&G, net, gate, timeout_ns), Ok(0));
    }
    assert_eq!(
        release(&G, net, Trigger::new(Handle::from_raw(gate.socket).unwrap(), Direction::Recv, 10)),
        Ok(0)
    );
    assert_eq!(world.consumed(1).observe(), 10);
}

#[test]
fn a_gate_is_waited_for_as_long_as_the_socket_says() {
    let (world, gate) = taken(|net, handle| {
        nonblocking(&G, net, handle.raw(), true).unwrap();
    });
    assert_eq!(wait(&G, world.net(), gate, SOCKET_TIMEOUT), Err(Error::WouldBlock));
    let (world, gate) = taken(|_, _| ());
    // Without limit, until something ends it.
    std::thread::scope(|scope| {
        let waits = [-1, SOCKET_TIMEOUT].map(|ns| {
            scope.spawn({
                let net = world.net();
                move || wait(&G, net, gate, ns)
            })
        });
        world.await_receiver(1);
        world.landed(1).publish(10);
        assert_eq!(waits.map(|wait| wait.join().unwrap()), [Ok(0); 2]);
    });
}

#[test]
fn etimedout_is_the_connections_own() {
    let (world, gate) = taken(|_, _| ());
    let generation = Handle::from_raw(gate.socket).unwrap().generation();
    world.status(1).publish(Status::open(generation).with_error(Error::TimedOut).0);
    for timeout_ns in [0, 1_000_000, -1] {
        assert_eq!(wait(&G, world.net(), gate, timeout_ns), Err(Error::TimedOut));
    }
}
