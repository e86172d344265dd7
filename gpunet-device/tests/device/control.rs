//! Requests to the proxy, which the test plays.

use crate::world::World;
use gpunet_device::abi::control::{Descriptor, Op, Reply, Request};
use gpunet_device::abi::place::{Place, SHARED};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream};

const G: Solo = Solo::new(0, 1);
const ADDR: SockAddr = SockAddr::v4([10, 0, 0, 1], 99);

/// Runs `body` against a proxy that gives each request the next of `answers` and returns them all.
fn against<R: Send>(
    world: &World,
    answers: Vec<Option<Reply>>,
    body: impl FnOnce(Net) -> R + Send,
) -> (R, Vec<Request>) {
    let net = world.net();
    std::thread::scope(|scope| {
        let kernel = scope.spawn(move || body(net));
        let mut seen = [0; 4];
        let requests = answers.into_iter().map(|answer| world.serve(&mut seen, |_| answer)).collect();
        (kernel.join().unwrap(), requests)
    })
}

fn opened(descriptor: Descriptor) -> Option<Reply> {
    let mut reply = Reply::new(0, 0);
    reply.descriptor = descriptor;
    Some(reply)
}

fn failed(error: Error) -> Option<Reply> {
    Some(Reply::new(error.errno() as u32, 0))
}

#[test]
fn a_connect_opens_the_slot_that_it_named() {
    let world = World::new();
    world.give_slots(&[9, 4]);
    let answers = vec![opened(world.driven(9)), failed(Error::from_errno(0))];
    let (addr, requests) = against(&world, answers, |net| {
        let mut stream = Stream::connect_with(&G, net, ADDR, Options::DEFAULT.with_linger_ms(5)).unwrap();
        stream.send_all(&G, b"hello").unwrap();
        let addr = stream.peer_addr();
        stream.close(&G).unwrap();
        addr
    });
    assert_eq!(addr.port, 2000);
    let [connect, close] = requests[..] else { panic!() };
    assert_eq!((connect.op, connect.slot, connect.generation, connect.launch), (Op::Connect as u32, 9, 1, 3));
    assert_eq!((connect.address, connect.options.linger_ms), (ADDR, 5));
    assert_eq!((close.op, close.slot, close.send_position), (Op::Close as u32, 9, 5));
    // The stream's end was told before the close.
    assert!(gpunet_device::abi::position::StreamWord(world.published(9).observe()).fin());
}

#[test]
fn a_failed_connect_leaves_its_slot_to_the_next() {
    let world = World::new();
    // The proxy gives slot 2 back at once.
    world.give_slots(&[2, 2]);
    let answers = vec![failed(Error::ConnectionRefused), opened(world.driven(2))];
    let (handles, requests) = against(&world, answers, |net| {
        assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::ConnectionRefused));
        let handle = Stream::connect(&G, net, ADDR).unwrap().handle();
        assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::TooManySockets));
        handle
    });
    assert_eq!((handles.slot(), handles.generation()), (2, 2));
    assert_eq!((requests[0].generation, requests[1].generation), (1, 2));
}

#[test]
fn a_descriptor_outside_the_regions_is_refused() {
    let world = World::new();
    world.give_slots(&[1, 2, 3]);
    let outside = Descriptor { recv_ring: Place::new(SHARED, world.layout.len - 4095), ..world.driven(1) };
    let nowhere = Descriptor { published: Place::new(7, 0), ..world.driven(2) };
    let odd = Descriptor { landed: Place::new(SHARED, 4), ..world.driven(3) };
    against(&world, vec![opened(outside), opened(nowhere), opened(odd)], |net| {
        for _ in 0..3 {
            assert_eq!(Stream::connect(&G, net, ADDR).err(), Some(Error::Protocol));
        }
    });
}

#[test]
fn a_wait_that_is_given_up_is_abandoned() {
    let world = World::new();
    world.give_slots(&[1, 2]);
    let (late, _) =
        against(&world, vec![None], |net| Stream::connect_timeout(&G, net, ADDR, 5_000_000).err());
    assert_eq!(late, Some(Error::TimedOut));
}

#[test]
fn accepts_name_a_fresh_slot() {
    let world = World::new();
    world.give_slots(&[1, 2, 3]);
    let mut bound = Reply::new(0, 0);
    bound.descriptor.local = SockAddr::v4([0; 4], 4242);
    let answers = vec![Some(bound), opened(world.driven(2)), Some(Reply::new(0, 0))];
    let (port, requests) = against(&world, answers, |net| {
        let listener = Listener::bind(&G, net, ADDR).unwrap();
        assert_eq!(listener.try_accept(&G).err(), Some(Error::WouldBlock));
        let stream = listener.accept(&G).unwrap();
        assert_eq!(stream.handle().slot(), 2);
        let port = listener.local_addr().port;
        listener.close(&G).unwrap();
        assert_eq!(listener.accept(&G).err(), Some(Error::BadHandle));
        port
    });
    assert_eq!(port, 4242);
    assert_eq!((requests[1].slot, requests[1].target, requests[1].target_generation), (1, 2, 1));
}
