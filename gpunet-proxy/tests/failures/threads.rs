//! Streams over several data threads: who has which, and that none is left when they end.

use crate::support::client::{client, read_all, reset};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, small, until};
use gpunet_device::{Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::{Config, FinishPolicy};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

fn world() -> World {
    World::with(Config { data_threads: 3, linger: Duration::from_millis(200), ..small() })
}

/// So many streams of the net, and their peers.
fn open(net: Net, listener: &Listener, count: usize) -> Vec<(Stream, TcpStream)> {
    let pairs = (0..count).map(|_| {
        let peer = client(listener.local_addr());
        (listener.accept(&SOLO).expect("accepted"), peer)
    });
    let pairs: Vec<_> = pairs.collect();
    assert!(pairs.iter().all(|(stream, _)| Stream::from_handle(&SOLO, net, stream.handle()).is_ok()));
    pairs
}

fn streams(world: &World) -> Vec<u32> {
    let snapshot = world.proxy.snapshot().expect("a snapshot");
    snapshot.threads.iter().map(|thread| thread.streams).collect()
}

/// Moves data both ways.
fn talk((stream, peer): &mut (Stream, TcpStream)) {
    let memory = Memory::filled(1, 0, 10_000);
    stream.send_all(&SOLO, memory.buffer()).expect("room");
    let mut bytes = vec![0; 10_000];
    peer.read_exact(&mut bytes).expect("sent");
    peer.write_all(&bytes).expect("room");
    let back = Memory::new(10_000);
    assert_eq!(stream.recv_exact(&SOLO, back.buffer()), Ok(10_000));
}

#[test]
fn streams_spread_over_the_threads_and_leave_none_behind() {
    bounded(|| {
        let world = world();
        let listener = listen(world.net(), TCP);
        let mut pairs = open(world.net(), &listener, 1);
        assert_eq!(streams(&world), [1, 0, 0]);
        pairs.extend(open(world.net(), &listener, 4));
        assert_eq!(streams(&world), [2, 2, 1]);
        pairs.iter_mut().for_each(talk);
        let busy = world.proxy.snapshot().expect("a snapshot").threads;
        assert!(busy.iter().all(|thread| thread.busy_ns > 0), "{busy:?}");
        // The second is the only one of its thread that goes; the next stream takes its place.
        let (stream, peer) = pairs.remove(1);
        stream.close(&SOLO).expect("open");
        drop(peer);
        until("its thread is done with it", || streams(&world) == [2, 1, 1]);
        pairs.extend(open(world.net(), &listener, 1));
        assert_eq!(streams(&world), [2, 2, 1]);
        pairs.iter_mut().for_each(talk);
        for (n, (stream, peer)) in pairs.into_iter().enumerate() {
            if n == 0 {
                reset(peer);
                stream.close(&SOLO).expect("open");
            } else {
                stream.close(&SOLO).expect("open");
                drop(peer);
            }
        }
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        assert_eq!(streams(&world), [0, 0, 0]);
    });
}

/// A kernel's connection to a kernel of the same proxy. The connect is over when the accept begins,
/// or finds it waiting.
fn open_both(world: &World, listener: &Listener, waits: bool) -> [Stream; 2] {
    let (net, addr) = (world.net(), listener.local_addr());
    let connect = || Stream::connect_with(&SOLO, net, addr, TCP).expect("connected");
    let accept = || listener.accept(&SOLO).expect("accepted");
    if !waits {
        return [connect(), accept()];
    }
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| accept().handle());
        until("the accept waits", || world.attachment().usage().requests == 1);
        let one = connect();
        let other = accepting.join().expect("no panic");
        [one, Stream::from_handle(&SOLO, net, other).expect("open")]
    })
}

#[test]
fn both_ends_of_a_connection_of_one_proxy_are_on_one_thread() {
    bounded(|| {
        let world = world();
        let listener = listen(world.net(), TCP);
        let first = open_both(&world, &listener, true);
        assert_eq!(streams(&world), [2, 0, 0]);
        let second = open_both(&world, &listener, false);
        assert_eq!(streams(&world), [2, 2, 0]);
        let foreign = open(world.net(), &listener, 1);
        assert_eq!(streams(&world), [2, 2, 1]);
        let third = open_both(&world, &listener, true);
        assert_eq!(streams(&world), [2, 2, 3]);
        for [mut one, mut other] in [first, second, third] {
            let (memory, got) = (Memory::filled(1, 0, 10_000), Memory::new(10_000));
            one.send_all(&SOLO, memory.buffer()).expect("room");
            assert_eq!(other.recv_exact(&SOLO, got.buffer()), Ok(10_000));
            assert!(got.holds(0, 10_000, 1, 0));
            other.close(&SOLO).expect("open");
            one.close(&SOLO).expect("open");
        }
        until("the threads are done with them", || streams(&world).iter().sum::<u32>() == 1);
        drop(foreign.into_iter().map(|(stream, _)| stream.close(&SOLO)).collect::<Vec<_>>());
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        assert_eq!(streams(&world), [0, 0, 0]);
    });
}

#[test]
fn streams_that_a_launch_or_an_attachment_leaves_do_not_stay_on_the_threads() {
    bounded(|| {
        let mut world = world();
        let beside = World::beside(&world);
        let theirs = listen(beside.net(), TCP);
        let listener = listen(world.net(), TCP);
        let mut kept = open(beside.net(), &theirs, 2);
        let left = open(world.net(), &listener, 5);
        assert_eq!(streams(&world), [3, 2, 2]);
        world.relaunch(FinishPolicy::Reset);
        until("the threads are done with them", || streams(&world) == [1, 1, 0]);
        drop(left);
        kept.iter_mut().for_each(talk);
        let (_, attachment, token) = beside.apart();
        drop(attachment);
        assert_eq!(token.finish(FinishPolicy::Close).left_open, 0, "closed already");
        for (_, mut peer) in kept {
            assert!(read_all(&mut peer).1.is_ok());
        }
        until("the threads are done with them", || streams(&world) == [0, 0, 0]);
        world.expect_all_free();
    });
}
