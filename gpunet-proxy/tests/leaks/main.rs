//! What came is given back: descriptors, threads, slots and rings after thousands of connections,
//! attachments and proxies. One test, in a process of its own, so that the counts are exact.

#[path = "../support/mod.rs"]
mod support;

use gpunet_device::{Error, Listener, Options, Stream, TransportKind};
use gpunet_proxy::{Config, embed};
use std::io::{Read, Write};
use std::net::TcpStream;
use support::client::{client, std_addr};
use support::world::listen;
use support::{Memory, SOLO, World, bounded, small, until};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const SHORT: usize = 10_000;

/// The process's descriptors and threads.
fn held() -> (usize, usize) {
    let count = |dir| std::fs::read_dir(dir).expect("this is Linux").count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// Returns whether no more is held than before, when some may have been on its way back yet.
fn is_back(before: (usize, usize)) -> bool {
    let now = held();
    now.0 <= before.0 && now.1 <= before.1
}

/// Checks that a phase ends with what it began with. Threads of clients may take a moment to go.
fn leaks_nothing(name: &str, phase: fn()) {
    let before = held();
    phase();
    until(&format!("{name}: {before:?} descriptors and threads again"), || is_back(before));
}

#[test]
fn everything_comes_back() {
    bounded(|| {
        // The first runtime of a process makes a pair of sockets for signals, which tokio keeps.
        World::new().end();
        leaks_nothing("short connections", short_connections);
        leaks_nothing("short direct connections", short_direct_connections);
        leaks_nothing("attachments", attachments);
        leaks_nothing("proxies", proxies);
    });
}

/// A table and a slab for a few connections: those before must be gone.
fn world() -> World {
    World::with(Config { sockets: 16, shared_rings: 1 << 20, ..small() })
}

fn short_connections() {
    let world = world();
    let listener = listen(world.net(), TCP.with_rings(4096, 4096));
    let addr = std_addr(listener.local_addr());
    let before = held();
    let clients = std::thread::spawn(move || {
        for i in 0..SHORT {
            let mut peer = TcpStream::connect(addr).expect("connected");
            let byte = [i as u8];
            peer.write_all(&byte).expect("sent");
            let mut back = Vec::new();
            // To the end: who closes first keeps the port for a minute.
            peer.read_to_end(&mut back).expect("an answer");
            assert_eq!(byte, *back);
        }
    });
    let memory = Memory::new(1);
    for _ in 0..SHORT {
        let mut stream = accept(&listener);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
        stream.send_all(&SOLO, memory.buffer()).expect("room");
        stream.close(&SOLO).expect("open");
    }
    clients.join().expect("no panic");
    until("only the listener is open", || world.attachment().usage().sockets == 1 && is_back(before));
    let stats = world.attachment().stats();
    assert_eq!((stats.opened, stats.closed, stats.undelivered), (SHORT as u64, SHORT as u64, 0));
    listener.close(&SOLO).expect("open");
    world.end();
}

/// Accepts, while streams that are being closed hold slots and rings for a moment more.
fn accept(listener: &Listener) -> Stream {
    loop {
        match listener.accept(&SOLO) {
            Ok(stream) => return stream,
            Err(Error::TooManySockets | Error::NoBuffers) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn short_direct_connections() {
    let world = world();
    let net = world.net();
    let options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(4096, 4096);
    let listener = listen(net, options);
    let addr = listener.local_addr();
    let clients = std::thread::spawn(move || {
        let memory = Memory::new(1);
        for _ in 0..SHORT {
            let mut stream = Stream::connect_with(&SOLO, net, addr, options)?;
            stream.send_all(&SOLO, b"x")?;
            stream.recv_exact(&SOLO, memory.buffer())?;
            stream.close(&SOLO)?;
        }
        Ok::<(), Error>(())
    });
    let memory = Memory::new(1);
    for _ in 0..SHORT {
        let mut stream = accept(&listener);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
        stream.send_all(&SOLO, memory.buffer()).expect("room");
        stream.close(&SOLO).expect("open");
    }
    assert_eq!(clients.join().expect("no panic"), Ok(()));
    listener.close(&SOLO).expect("open");
    world.end();
}

/// Each with a listener and a stream that nobody closed.
fn attachments() {
    let world = World::new();
    for _ in 0..200 {
        let attachment = world.proxy.attach_cpu().expect("an attachment");
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        stream.send_all(&SOLO, b"x").expect("room");
        peer.read_exact(&mut [0]).expect("a byte");
        drop(peer);
        drop(token);
        assert_eq!(attachment.close().unfinished, 0);
    }
    world.end();
}

fn proxies() {
    for _ in 0..50 {
        let proxy = embed(small()).expect("a proxy");
        let attachment = proxy.attach_cpu().expect("an attachment");
        drop(proxy);
        drop(attachment);
    }
}
