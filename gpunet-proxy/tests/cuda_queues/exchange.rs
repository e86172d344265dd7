//! Messages of all lengths, memories and transports.

use crate::support::{KINDS, Kind, Memory, World, pattern};
use gpunet_device::TransportKind;
use gpunet_device::abi::{Options, Word};
use gpunet_proxy::queue::{Queue, QueueError, QueueSettings, Started};
use gpunet_proxy::socket::DirectionError;
use std::io::{Read, Write};
use std::time::Duration;

/// Short ones, around a ring of 64 KiB, and staged ones.
const LENGTHS: [usize; 7] = [1, 64, 4096, 65_535, 65_537, 1 << 20, 9_999_999];

fn echo(mut peer: std::net::TcpStream) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match peer.read(&mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(n) => peer.write_all(&bytes[..n]).expect("written"),
            }
        }
    })
}

/// Each message goes to an echo server and comes back, both at once.
fn echoed(world: &World, queue: &mut Queue, ring: u64) {
    let (socket, peer) = world.tcp(Options::DEFAULT.with_rings(ring, ring));
    let server = echo(peer);
    let (mut sender, mut receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    for (at, (kind, len)) in KINDS.into_iter().flat_map(|kind| LENGTHS.map(|len| (kind, len))).enumerate() {
        let from = Memory::filled(world, kind, len, at as u64);
        let to = Memory::new(world, kind, len);
        let receiving = queue.start_recv(&mut receiver, to.buffer(len)).expect("enqueued");
        let sending = queue.start_send(&mut sender, from.buffer(len)).expect("enqueued");
        queue.finish(&[sending, receiving]).expect("enqueued");
        queue.synchronize().expect("no failure");
        assert!(to.bytes(world, len) == pattern(at as u64, len), "{kind:?}, {len} bytes");
        if len <= ring as usize / 4 {
            queue.send(&mut sender, to.buffer(len)).expect("enqueued");
            queue.recv(&mut receiver, from.buffer(len)).expect("enqueued");
            queue.synchronize().expect("no failure");
            assert!(from.bytes(world, len) == pattern(at as u64, len), "{kind:?}, {len} bytes, again");
        }
    }
    assert!(queue.outcome().failure.is_none());
    drop((sender, receiver, socket));
    server.join().expect("the echo");
}

#[test]
fn messages_of_any_length_and_memory_go_and_come() {
    let world = World::new();
    echoed(&world, &mut world.queue(), 1 << 16);
    let settings = QueueSettings { fragment: 10_000, depth: 1, ..world.settings() };
    let queue = Queue::cuda_with(world.attachment(), world.stream(), settings);
    echoed(&world, &mut queue.expect("a queue"), 4096);
}

#[test]
fn two_queues_of_one_device_exchange_messages() {
    let world = World::new();
    for transport in [TransportKind::Peer, TransportKind::Tcp] {
        let options = Options::DEFAULT.with_transport(transport).with_rings(1 << 16, 1 << 16);
        let (near, far) = world.pair(options);
        assert_eq!(near.transport(), transport);
        let (mut near_tx, mut near_rx) = (near.take_send().expect("free"), near.take_recv().expect("free"));
        let (mut far_tx, mut far_rx) = (far.take_send().expect("free"), far.take_recv().expect("free"));
        let (mut here, mut there) = (world.queue(), world.queue());
        for (kind, len) in KINDS.into_iter().flat_map(|kind| LENGTHS.map(|len| (kind, len))) {
            let from = Memory::filled(&world, kind, len, 7);
            let [there_and, back] = [0; 2].map(|_| Memory::new(&world, kind, len));
            here.send(&mut near_tx, from.buffer(len)).expect("enqueued");
            here.recv(&mut near_rx, back.buffer(len)).expect("enqueued");
            there.recv(&mut far_rx, there_and.buffer(len)).expect("enqueued");
            there.send(&mut far_tx, there_and.buffer(len)).expect("enqueued");
            here.synchronize().expect("no failure");
            there.synchronize().expect("no failure");
            assert!(back.bytes(&world, len) == pattern(7, len), "{transport:?}, {kind:?}, {len} bytes");
        }
    }
}

/// Many more operations than a stream takes: the caller waits for room, and each message is
/// checked.
#[test]
fn thousands_of_messages_go_through_one_stream() {
    const ROUNDS: usize = 3000;
    let world = World::new();
    let (socket, peer) = world.tcp(Options::DEFAULT);
    let server = echo(peer);
    let (mut sender, mut receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    let mut queue = world.queue();
    let from = Memory::filled(&world, Kind::Device, 64 * ROUNDS, 3);
    let to = Memory::new(&world, Kind::Device, 64 * ROUNDS);
    for round in 0..ROUNDS {
        queue.send(&mut sender, from.buffer(64 * ROUNDS).slice(64 * round, 64)).expect("enqueued");
        queue.recv(&mut receiver, to.buffer(64 * ROUNDS).slice(64 * round, 64)).expect("enqueued");
    }
    queue.synchronize().expect("no failure");
    assert!(to.bytes(&world, 64 * ROUNDS) == pattern(3, 64 * ROUNDS));
    assert_eq!(queue.outcome().done, 2 * ROUNDS as u64 + 1);
    drop((sender, receiver, socket));
    server.join().expect("the echo");
}

/// Nobody reads: a stream that is full says so, and holds nobody up.
#[test]
fn a_full_stream_is_an_error_and_no_deadlock() {
    let world = World::new();
    let (socket, mut peer) = world.tcp(Options::DEFAULT);
    let mut receiver = socket.take_recv().expect("free");
    let mut queue = world.queue();
    let to = Memory::new(&world, Kind::Device, 64);
    let mut count = 0u64;
    let refused = loop {
        match queue.recv(&mut receiver, to.buffer(1)) {
            Ok(()) => count += 1,
            Err(refused) => break refused,
        }
        assert!(count < 10_000, "a stream takes no more than that");
    };
    assert!(matches!(refused, QueueError::StreamFull { .. }), "{refused:?}");
    let sent = pattern(5, count as usize + 20);
    peer.write_all(&sent).expect("written");
    queue.synchronize().expect("no failure");
    assert_eq!(queue.outcome().done, count + 1);
    assert_eq!(to.bytes(&world, 1)[0], sent[count as usize - 1]);
    // What was refused has taken no place in the stream.
    queue.recv(&mut receiver, to.buffer(20)).expect("enqueued");
    queue.synchronize().expect("no failure");
    assert_eq!(to.bytes(&world, 20), sent[count as usize..]);
}

#[test]
fn words_checks_and_functions_are_in_order() {
    let world = World::new();
    let words = Memory::new(&world, Kind::Pinned, 4096);
    let Memory::Pinned(page) = &words else { unreachable!() };
    // SAFETY: words of the page, at their addresses for the device and the CPU.
    let at = |base: u64, index: u64| unsafe { Word::from_ptr((base + 64 * index) as *mut u64) };
    let (device, cpu) = (page.device_ptr(), page.region().base().as_ptr() as u64);
    let mut queue = world.queue();
    let (told, tell) = std::sync::mpsc::channel();
    at(cpu, 3).set(77);
    queue.write(at(device, 0), 5).expect("enqueued");
    queue.wait_word(at(device, 1), 9).expect("enqueued");
    queue.check(at(device, 3)).expect("enqueued");
    queue.write(at(device, 2), 1).expect("enqueued");
    queue.on_done(move |outcome| told.send(outcome.done).expect("a listener")).expect("enqueued");
    while at(cpu, 0).observe() != 5 {
        std::thread::yield_now();
    }
    // Time for a stream that does not wait.
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((at(cpu, 2).observe(), queue.is_idle()), (0, false));
    at(cpu, 1).publish(9);
    assert_eq!(tell.recv_timeout(Duration::from_secs(10)), Ok(5));
    assert_eq!((at(cpu, 2).observe(), at(cpu, 3).observe()), (1, 0));
    assert!(queue.is_idle());
}

#[test]
fn a_direction_is_of_one_queue_at_a_time() {
    let world = World::new();
    let (socket, mut peer) = world.tcp(Options::DEFAULT);
    let mut receiver = socket.take_recv().expect("free");
    let (mut one, mut other) = (world.queue(), world.queue());
    let to = Memory::new(&world, Kind::Device, 64);
    one.recv(&mut receiver, to.buffer(8)).expect("enqueued");
    let refused = other.recv(&mut receiver, to.buffer(8)).expect_err("no order");
    assert!(matches!(refused, QueueError::Direction(DirectionError::InUseByQueue)), "{refused:?}");
    peer.write_all(&[1; 16]).expect("written");
    one.synchronize().expect("no failure");
    other.recv(&mut receiver, to.buffer(8)).expect("enqueued");
    other.synchronize().expect("no failure");
}

#[test]
fn what_a_queue_has_not_started_is_not_finished() {
    let world = World::new();
    let (socket, mut peer) = world.tcp(Options::DEFAULT);
    let mut receiver = socket.take_recv().expect("free");
    let (mut one, mut other) = (world.queue(), world.queue());
    let to = Memory::new(&world, Kind::Device, 64);
    let started = one.start_recv(&mut receiver, to.buffer(8)).expect("enqueued");
    let (queue, direction, nth) = started.to_raw();
    assert_eq!(Started::from_raw(queue, direction, nth), Some(started));
    assert_eq!(Started::from_raw(queue, 2, nth), None);
    // The stream would wait for these for ever.
    for (direction, nth) in [(direction, nth + 1), (direction, 0), (1 - direction, nth)] {
        let wrong = Started::from_raw(queue, direction, nth).expect("a direction");
        let refused = one.finish(&[started, wrong]).expect_err("not started");
        assert!(matches!(refused, QueueError::NotStarted), "{refused:?}");
    }
    let refused = other.finish(&[started]).expect_err("another's");
    assert!(matches!(refused, QueueError::NotStarted), "{refused:?}");
    peer.write_all(&[1; 8]).expect("written");
    one.finish(&[started, started]).expect("enqueued");
    one.synchronize().expect("no failure");
    assert_eq!(to.bytes(&world, 8), [1; 8]);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let world = World::new();
    let with = |fragment, depth| QueueSettings { fragment, depth, ..world.settings() };
    for settings in [with(0, 4), with(1, 0), with(1, 65)] {
        let refused = Queue::cuda_with(world.attachment(), world.stream(), settings).expect_err("refused");
        assert!(matches!(refused, QueueError::Settings), "{settings:?}");
        assert!(refused.to_string().contains("1 to 64"), "{refused}");
    }
    drop(Queue::cuda_with(world.attachment(), world.stream(), with(1, 64)).expect("a queue"));
}
