//! Directions that the host program takes, and what kernels do with the messages that it places.

use crate::queues::{Pair, pair};
use crate::support::{Memory, SOLO, World, bounded, pauses_seed, small};
use gpunet_device::abi::context::Context;
use gpunet_device::abi::entry::Entry;
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::trigger::{GateExt, PreparedExt, TriggerExt};
use gpunet_device::{Error, Handle, Net, Options, Prepared, Stream, Timeout, TransportKind};
use gpunet_posix as posix;
use gpunet_proxy::config::Lines;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{DirectionError, DirectionOutcome};
use gpunet_proxy::{Config, FinishPolicy};
use std::sync::Barrier;

pub const KINDS: [TransportKind; 2] = [TransportKind::Tcp, TransportKind::Peer];

fn errno(error: &DirectionError) -> i32 {
    error.errno()
}

const EBUSY: i32 = 16;
const EMSGSIZE: i32 = 90;

/// Plays messages as a kernel does: fills and publishes each.
fn play_sends(net: Net, first: Prepared, ring: u64, count: u64, seed: u64) {
    for i in 0..count {
        let message = first.nth(i).expect("a position");
        message.room(ring).wait(&SOLO, net, Timeout::NEVER).expect("it is read");
        let bytes = Memory::filled(seed, message.position as usize, message.len as usize);
        let span = message.span(&SOLO, net).expect("taken");
        // SAFETY: the ring has room for the message.
        unsafe { copy_into_ring(&SOLO, span, bytes.buffer().as_ptr()) };
        message.trigger().release(&SOLO, net).expect("taken");
    }
}

/// Plays messages that come: checks and consumes each.
fn play_receives(net: Net, first: Prepared, count: u64, seed: u64) {
    for i in 0..count {
        let message = first.nth(i).expect("a position");
        message.arrived().wait(&SOLO, net, Timeout::NEVER).expect("it is sent");
        let (bytes, span) = (Memory::new(message.len as usize), message.span(&SOLO, net).expect("taken"));
        // SAFETY: the message has landed.
        unsafe { copy_out_of_ring(&SOLO, bytes.buffer().as_ptr(), span) };
        assert!(bytes.holds(0, message.len as usize, seed, message.position as usize), "message {i}");
        message.trigger().release(&SOLO, net).expect("taken");
    }
}

#[test]
fn kernels_play_thousands_of_messages_that_were_prepared_at_once() {
    const LEN: u64 = 100;
    // Threads that pause at each message take many times as long.
    let count = if pauses_seed().is_some() { 2_000 } else { 20_000 };
    bounded(move || {
        for kind in KINDS {
            let mut world = World::new();
            let Pair { near, far } =
                pair(&world, Options::DEFAULT.with_transport(kind).with_rings(4096, 4096));
            let mut sender = near.take_send().expect("nobody uses it");
            let mut receiver = far.take_recv().expect("nobody uses it");
            let (first, expected) = (sender.prepare(LEN as usize), receiver.prepare(LEN as usize));
            let (first, expected) = (first.expect("room").prepared, expected.expect("room").prepared);
            let (net, ring) = (world.net(), sender.capacity() as u64);
            std::thread::scope(|scope| {
                scope.spawn(move || play_sends(net, first, ring, count, 5));
                scope.spawn(move || play_receives(net, expected, count, 5));
            });
            assert_eq!(receiver.outcome().expect("readable").error, None);
            // The launch knows them: nothing is given back, or closed, before its end.
            assert_eq!(errno(&sender.give_back().expect_err("known")), EBUSY);
            drop(receiver);
            assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
            near.take_send().expect("taken again").give_back().expect("unknown");
            far.take_recv().expect("taken again").give_back().expect("unknown");
            // Kernels go on where the messages ended.
            let memory = Memory::filled(9, 0, 10);
            let mut stream = Stream::from_handle(&SOLO, world.net(), near.handle()).expect("given back");
            stream.send_all(&SOLO, memory.buffer()).expect("room");
            let mut other = Stream::from_handle(&SOLO, world.net(), far.handle()).expect("given back");
            let back = Memory::new(10);
            assert_eq!(other.recv_exact(&SOLO, back.buffer()), Ok(10));
            assert!(back.holds(0, 10, 9, 0));
            drop((near, far));
            assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
            world.expect_all_free();
        }
    });
}

#[test]
fn as_many_messages_are_prepared_as_the_ring_holds() {
    bounded(|| {
        let world = World::new();
        let Pair { near, far: _far } = pair(&world, Options::DEFAULT.with_rings(4096, 4096));
        let mut sender = near.take_send().expect("nobody uses it");
        let ring = sender.capacity();
        assert_eq!(errno(&sender.prepare(ring + 1).expect_err("too long")), EMSGSIZE);
        assert_eq!(errno(&sender.prepare(0).expect_err("empty")), Error::InvalidArgument.errno());
        let messages: Vec<_> = (0..16).map(|_| sender.prepare(ring / 16).expect("room")).collect();
        assert_eq!(errno(&sender.prepare(1).expect_err("full")), Error::NoBuffers.errno());
        let net = world.net();
        messages[3].post.release(&SOLO, net).expect("taken");
        assert_eq!(sender.prepare(ring / 4).expect("room again").prepared.position, ring as u64);
        assert_eq!(errno(&sender.prepare(1).expect_err("full")), Error::NoBuffers.errno());
    });
}

#[test]
fn a_message_is_placed_behind_all_that_kernels_have_played() {
    const LEN: u64 = 100;
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let Pair { near, far } =
                pair(&world, Options::DEFAULT.with_transport(kind).with_rings(4096, 4096));
            let mut sender = near.take_send().expect("nobody uses it");
            let mut receiver = far.take_recv().expect("nobody uses it");
            let (net, ring) = (world.net(), sender.capacity() as u64);
            let mut place = |len: u64| {
                let (first, expected) = (sender.prepare(len as usize), receiver.prepare(len as usize));
                (first.expect("room").prepared, expected.expect("room").prepared)
            };
            // Of each two messages one is prepared; the other ones follow it.
            for round in 0..100 {
                let (first, expected) = place(LEN + round);
                assert_eq!(
                    (first.position, expected.position),
                    ((LEN * 2 + round - 1) * round, first.position)
                );
                play_sends(net, first, ring, 2, 5);
                play_receives(net, expected, 2, 5);
            }
            // What a queue sends is placed behind them, too.
            let (first, expected) = place(LEN);
            play_sends(net, first, ring, 3, 5);
            play_receives(net, expected, 3, 5);
            let (sent, came) = (Memory::filled(6, 0, 10_000), Memory::new(10_000));
            let mut queues = [0; 2].map(|_| Queue::cpu(world.attachment()).expect("a queue"));
            queues[0].send(&mut sender, sent.buffer()).expect("all is published");
            queues[1].recv(&mut receiver, came.buffer()).expect("all is consumed");
            queues.iter_mut().for_each(|queue| queue.synchronize().expect("no failure"));
            assert!(came.holds(0, 10_000, 6, 0));
        }
    });
}

#[test]
fn a_direction_has_ended_when_the_peer_has_left() {
    bounded(|| {
        for kind in KINDS {
            let world = World::new();
            let Pair { near, far } = pair(&world, Options::DEFAULT.with_transport(kind));
            let mut receiver = far.take_recv().expect("nobody uses it");
            let (sender, message) = (far.take_send().expect("nobody uses it"), receiver.prepare(1));
            assert!(receiver.outcome().expect("readable").error.is_none());
            drop(near);
            let ended = message.expect("room").arrived.wait(&SOLO, world.net(), Timeout::NEVER);
            assert_eq!(ended, Err(Error::NoData));
            let error = |outcome: Result<DirectionOutcome, DirectionError>| outcome.expect("readable").error;
            assert_eq!(error(receiver.outcome()), Some(Error::NoData), "{kind:?}");
            if kind == TransportKind::Peer {
                assert_eq!(error(sender.outcome()), Some(Error::BrokenPipe));
            }
        }
    });
}

/// Where the line of messages from a socket lies, as its entry in the device's table says; 0: it
/// has none.
fn line_of(net: Net, handle: Handle) -> i32 {
    // SAFETY: the context of this attachment, which lives until the test has ended.
    let context = unsafe { (net.raw() as *const Context).read() };
    let entries = (context.device + context.device_layout.entries) as *const Entry;
    let entry = entries.wrapping_add(handle.slot() as usize);
    // SAFETY: a field of the socket's entry in the table.
    unsafe { (&raw const (*entry).send.line).read_volatile() }
}

/// A launch begins to use a socket just as the host takes one of its directions: if that fails,
/// lanes of the launch load the entry meanwhile, and it is as it was before.
#[test]
fn a_direction_that_is_taken_in_vain_keeps_its_line() {
    const ROUNDS: u64 = 150;
    bounded(|| {
        let options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(64 << 10, 64 << 10);
        let mut world = World::with(Config { lines: Lines::On, ..small() });
        let mut in_vain = 0;
        for round in 0..ROUNDS {
            let Pair { near, far } = pair(&world, options);
            let (net, handle) = (world.net(), near.handle());
            assert_ne!(line_of(net, handle), 0);
            let begin = Barrier::new(2);
            let taken = std::thread::scope(|scope| {
                scope.spawn(|| {
                    begin.wait();
                    // Earlier and later ones: most come while the host takes it.
                    (0..round * 16).for_each(|_| std::hint::spin_loop());
                    let _ = Stream::from_handle(&SOLO, net, handle);
                });
                begin.wait();
                near.take_send()
            });
            if taken.is_err() {
                in_vain += 1;
                assert_ne!(line_of(net, handle), 0, "round {round}");
            }
            drop((taken, near, far));
            world.relaunch(FinishPolicy::Close);
        }
        eprintln!("{in_vain} of {ROUNDS} in vain");
    });
}

/// Sends four bytes by the handle.
fn send(net: Net, socket: i32) -> Result<i64, Error> {
    let bytes = b"four";
    // SAFETY: the bytes are mapped.
    unsafe { posix::send::send(&SOLO, net, socket, bytes.as_ptr(), bytes.len(), 0) }
}

#[test]
fn calls_by_handle_find_that_a_direction_is_taken() {
    bounded(|| {
        for kind in KINDS {
            let mut world = World::new();
            let Pair { near, far } = pair(&world, Options::DEFAULT.with_transport(kind));
            let sender = near.take_send().expect("nobody uses it");
            assert_eq!(errno(&near.take_send().expect_err("taken")), Error::Busy.errno());
            let (net, socket) = (world.net(), near.handle().raw());
            assert_eq!(send(net, socket), Err(Error::Busy));
            assert_eq!(Stream::from_handle(&SOLO, net, near.handle()).map(|_| ()), Err(Error::Busy));
            assert_eq!(posix::close::close(&SOLO, net, socket), Err(Error::Busy));
            // A launch knows it now.
            assert_eq!(errno(&near.take_recv().expect_err("known")), EBUSY);
            drop(sender);
            assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
            near.take_send().expect("unknown").give_back().expect("unknown");
            assert_eq!(send(world.net(), socket), Ok(4));
            drop((near, far));
        }
    });
}
