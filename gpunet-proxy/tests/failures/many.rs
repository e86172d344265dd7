//! Many connections: one after another, at once, and beside one that misbehaves.

use crate::support::client::{client, narrow_client, std_addr};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, PollMemory, SOLO, World, bounded, small};
use gpunet_device::poll::POLLIN;
use gpunet_device::{Error, Listener, Options, Stream, TransportKind, poll};
use gpunet_proxy::Config;
use std::io::{Read, Write};
use std::net::TcpStream;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

/// Ten thousand in a release build; a debug build takes its time.
const SHORT: usize = if cfg!(debug_assertions) { 2_000 } else { 10_000 };

#[test]
fn short_connections_one_after_another_leak_nothing() {
    bounded(|| {
        let world = World::with(Config { sockets: 16, shared_rings: 1 << 20, ..small() });
        let listener = listen(world.net(), TCP.with_rings(4096, 4096));
        let addr = std_addr(listener.local_addr());
        let clients = std::thread::spawn(move || {
            for i in 0..SHORT {
                let mut peer = TcpStream::connect(addr).expect("connected");
                let byte = [i as u8];
                peer.write_all(&byte).expect("sent");
                let mut back = [0];
                peer.read_exact(&mut back).expect("an answer");
                assert_eq!(byte, back);
            }
        });
        let memory = Memory::new(1);
        for _ in 0..SHORT {
            // The slots and rings of earlier connections come back as fast as they are needed.
            let mut stream = accept(&listener);
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(1));
            stream.send_all(&SOLO, memory.buffer()).expect("room");
            stream.close(&SOLO).expect("open");
        }
        clients.join().expect("no panic");
        let stats = world.attachment().stats();
        assert_eq!((stats.opened, stats.undelivered), (SHORT as u64, 0));
        listener.close(&SOLO).expect("open");
        world.end();
    });
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

#[test]
fn short_direct_connections_leak_nothing() {
    bounded(|| {
        let world = World::with(Config { sockets: 16, shared_rings: 1 << 20, ..small() });
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
    });
}

#[test]
fn hundreds_at_once_are_served_by_one_group() {
    const CLIENTS: usize = 300;
    const ROUNDS: usize = 3;
    bounded(|| {
        let world = World::with(Config { sockets: 1024, ..small() });
        // All may come at once: a backlog that is too short costs a client a second.
        let options = TCP.with_rings(4096, 4096);
        let listener = Listener::bind_with(&SOLO, world.net(), LOOPBACK, options, 1024).expect("a free port");
        let addr = listener.local_addr();
        let clients = std::thread::spawn(move || {
            let mut peers: Vec<_> = (0..CLIENTS).map(|_| client(addr)).collect();
            for round in 0..ROUNDS {
                for (i, peer) in peers.iter_mut().enumerate() {
                    peer.write_all(&[i as u8, round as u8]).expect("sent");
                }
                for (i, peer) in peers.iter_mut().enumerate() {
                    let mut back = [0; 2];
                    peer.read_exact(&mut back).expect("an answer");
                    assert_eq!(back, [i as u8, round as u8]);
                }
            }
        });
        let memory = Memory::new(100);
        let mut streams: Vec<Stream> = (0..CLIENTS).map(|_| accept(&listener)).collect();
        while !streams.is_empty() {
            let entries: Vec<_> = streams.iter().map(|stream| (stream.handle().raw(), POLLIN)).collect();
            let set = PollMemory::new(&entries);
            let ready = poll(&SOLO, world.net(), set.set(), -1).expect("streams that are ready");
            let found: Vec<bool> = (0..streams.len()).map(|i| set.found(i) & POLLIN != 0).collect();
            assert_eq!(found.iter().filter(|&&found| found).count(), ready);
            let mut index = 0;
            streams.retain_mut(|stream| {
                index += 1;
                if !found[index - 1] {
                    return true;
                }
                match stream.recv(&SOLO, memory.buffer()).expect("data or the end") {
                    0 => stream.close(&SOLO).expect("open"),
                    n => {
                        stream.send_all(&SOLO, memory.buffer().first(n)).expect("room");
                        return true;
                    }
                }
                false
            });
        }
        clients.join().expect("no panic");
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_peer_that_never_reads_does_not_hold_up_the_others() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP.with_linger_ms(0));
        let lazy = narrow_client(listener.local_addr());
        let stuck = listener.accept(&SOLO).expect("accepted").handle();
        let sender = std::thread::spawn(move || {
            let piece = Memory::new(1 << 20);
            let mut stream = Stream::from_handle(&SOLO, net, stuck)?;
            while stream.send_all(&SOLO, piece.buffer()).is_ok() {}
            stream.close(&SOLO)
        });
        // Another one floods and never reads either, but what comes back is only a little.
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let memory = Memory::new(4);
        for i in 0..200u32 {
            peer.write_all(&i.to_ne_bytes()).expect("sent");
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(4));
            stream.send_all(&SOLO, memory.buffer()).expect("room");
            let mut back = [0; 4];
            peer.read_exact(&mut back).expect("an answer");
            assert_eq!(u32::from_ne_bytes(back), i);
        }
        drop(peer);
        // Its end is the end of the sender's wait.
        drop(lazy);
        assert_eq!(sender.join().expect("no panic"), Ok(()));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}
