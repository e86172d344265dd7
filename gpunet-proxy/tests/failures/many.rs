//! Many connections at once, and beside one that misbehaves.

use crate::support::client::{client, narrow_client};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{Memory, PollMemory, SOLO, World, bounded, small};
use gpunet_device::poll::POLLIN;
use gpunet_device::{Listener, Options, Stream, Timeout, TransportKind, poll};
use gpunet_proxy::Config;
use std::io::{Read, Write};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

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
        let mut streams: Vec<Stream> =
            (0..CLIENTS).map(|_| listener.accept(&SOLO).expect("accepted")).collect();
        while !streams.is_empty() {
            let entries: Vec<_> = streams.iter().map(|stream| (stream.handle().raw(), POLLIN)).collect();
            let set = PollMemory::new(&entries);
            let ready = poll(&SOLO, world.net(), set.set(), Timeout::NEVER).expect("streams that are ready");
            let found: Vec<bool> = (0..streams.len()).map(|i| set.found(i) & POLLIN != 0).collect();
            assert_eq!(found.iter().filter(|&&found| found).count(), ready);
            let mut index = 0;
            streams.retain_mut(|stream| {
                index += 1;
                if !found[index - 1] {
                    return true;
                }
                match stream.recv(&SOLO, memory.buffer()).expect("data or the end") {
                    0 => {
                        let whole = Stream::from_handle(&SOLO, world.net(), stream.handle());
                        whole.and_then(|stream| stream.close(&SOLO)).expect("open");
                    }
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
