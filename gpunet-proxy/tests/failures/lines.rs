//! Lines of small messages that land over TCP: what is in them, and what a kernel that scribbles there does to itself.

use crate::support::client::client;
use crate::support::raw::{landed, receive_line, words_of};
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, small, until};
use gpunet_device::abi::line;
use gpunet_device::{Options, Stream, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::config::Lines;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

/// A stream over TCP that has a line, and its client.
fn lined(world: &World, options: Options) -> (Stream, TcpStream) {
    let listener = listen(world.net(), options);
    let client = client(listener.local_addr());
    let stream = listener.accept(&SOLO).expect("accepted");
    listener.close(&SOLO).expect("open");
    (stream, client)
}

fn world() -> World {
    World::with(Config { lines: Lines::On, ..small() })
}

#[test]
fn what_lands_is_in_the_line_if_it_is_small() {
    bounded(|| {
        let world = world();
        let (mut stream, mut client) = lined(&world, TCP.with_rings(1 << 16, 1 << 16));
        let slot = stream.handle().slot();
        let line = receive_line(world.net(), slot).expect("a line");
        let mut at = 0;
        for len in [1, 64, 255, 256, 257, 8] {
            let memory = Memory::new(len);
            client.write_all(&vec![at as u8; len]).expect("sent");
            until("it has landed", || landed(world.net(), slot).observe() == at + len as u64);
            // A long message leaves the line as it is.
            let has_line = line.header().peek() == line::header(at, len);
            assert_eq!(has_line, len <= line::MAX, "{len} bytes at {at}");
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(len));
            assert!(memory.copy(0, len).iter().all(|&byte| byte == at as u8), "{len} bytes at {at}");
            at += len as u64;
        }
        stream.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_socket_without_the_option_and_a_small_ring_have_none() {
    bounded(|| {
        let world = world();
        let without = TCP.with_rings(1 << 16, 1 << 16).with_flag(Options::LINES, false);
        for options in [without, TCP.with_rings(1 << 15, 1 << 15)] {
            let (stream, _client) = lined(&world, options);
            assert!(receive_line(world.net(), stream.handle().slot()).is_none());
            stream.close(&SOLO).expect("open");
        }
        world.end();
    });
}

/// No header and no unit that is made up at random has the right tag, but for one of 2^32.
#[test]
fn who_scribbles_in_a_line_gets_the_ring() {
    const ROUNDS: usize = 2000;
    bounded(|| {
        let world = world();
        let (mut stream, mut client) = lined(&world, TCP.with_rings(1 << 16, 1 << 16));
        let words = words_of(receive_line(world.net(), stream.handle().slot()).expect("a line"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut rng = Rng::new(17);
                while !is_over.load(Ordering::Relaxed) {
                    words[rng.below(words.len() as u64) as usize].set(rng.next() << 32);
                    std::thread::yield_now();
                }
            });
            let mut back = [0; 64];
            for round in 0..ROUNDS {
                let len = 1 + round % 64;
                let sent = Memory::filled(round as u64, 0, len);
                let memory = Memory::new(len);
                client.write_all(&sent.copy(0, len)).expect("sent");
                assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(len));
                assert!(memory.holds(0, len, round as u64, 0), "round {round}");
                stream.send_all(&SOLO, memory.buffer()).expect("room");
                client.read_exact(&mut back[..len]).expect("an answer");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        stream.close(&SOLO).expect("open");
        world.end();
    });
}
