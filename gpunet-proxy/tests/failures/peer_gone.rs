//! The other end resets, leaves, or does not read.

use crate::support::client::{client, narrow_client, read_all, reset, unacknowledged};
use crate::support::pair::connect;
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, World, bounded, pattern, small, until};
use gpunet_device::poll::{POLLERR, POLLIN};
use gpunet_device::{Error, Listener, Options, Stream, Timeout, TransportKind, poll};
use gpunet_proxy::Config;
use socket2::SockRef;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

fn tcp() -> Options {
    Options::DEFAULT.with_transport(TransportKind::Tcp)
}

fn accepted(listener: &Listener, connect: impl FnOnce() -> TcpStream) -> (Stream, TcpStream) {
    let peer = connect();
    (listener.accept(&SOLO).expect("accepted"), peer)
}

#[test]
fn a_reset_is_told_after_the_data_before_it() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
        peer.write_all(b"hello").expect("sent");
        let memory = Memory::new(5);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer().first(2)), Ok(2));
        reset(peer);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer().skip(2)), Ok(3));
        assert_eq!(memory.copy(0, 5), b"hello");
        for _ in 0..3 {
            assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(Error::ConnectionReset));
        }
        let set = PollMemory::new(&[(stream.handle().raw(), POLLIN)]);
        assert_eq!(poll(&SOLO, world.net(), set.set(), Timeout::NEVER), Ok(1));
        assert!(set.found(0) & POLLERR != 0);
        // A sender hears of it once the ring is full, if not before.
        let piece = Memory::new(100_000);
        let error = loop {
            if let Err(error) = stream.send(&SOLO, piece.buffer()) {
                break error;
            }
        };
        assert_eq!(error, Error::ConnectionReset);
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

/// Nothing is read after the end, and a kernel that waits for something else sends nothing either.
#[test]
fn a_reset_after_the_end_is_told_to_who_only_polls() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
        peer.write_all(b"hello").expect("sent");
        peer.shutdown(Shutdown::Write).expect("shut down");
        let memory = Memory::new(10);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
        reset(peer);
        let set = PollMemory::new(&[(stream.handle().raw(), 0)]);
        assert_eq!(poll(&SOLO, world.net(), set.set(), Timeout::NEVER), Ok(1));
        assert_eq!(set.found(0), POLLERR);
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(0), "what was received ended in good order");
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn a_reset_in_the_backlog_is_told_after_the_data_before_it() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let mut peer = client(listener.local_addr());
        peer.write_all(b"hello").expect("sent");
        until("all is acknowledged", || unacknowledged(&peer) == 0);
        let addr = peer.local_addr().expect("an address");
        reset(peer);
        let mut stream = listener.accept(&SOLO).expect("accepted");
        assert_eq!(stream.peer_addr(), addr.into());
        let memory = Memory::new(10);
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(5));
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(Error::ConnectionReset));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

/// Far more than the ring was sent before the reset: the kernel still has it, and so it is
/// delivered. A send that fails meanwhile changes nothing.
#[test]
fn data_before_a_reset_is_delivered_whole() {
    const LEN: usize = 40_000;
    for sends in [false, true] {
        bounded(move || {
            let world = World::new();
            let listener = listen(world.net(), tcp().with_rings(4096, 4096));
            let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
            let bytes: Vec<u8> = (0..LEN).map(|i| pattern(1, i)).collect();
            peer.write_all(&bytes).expect("sent");
            // All of it has arrived on this side, acknowledged.
            until("all is acknowledged", || unacknowledged(&peer) == 0);
            reset(peer);
            if sends {
                let error = loop {
                    if let Err(error) = stream.send(&SOLO, b"nobody will read this") {
                        break error;
                    }
                };
                assert_eq!(error, Error::BrokenPipe, "nothing to read is lost, so no more is told yet");
            }
            let memory = Memory::new(LEN);
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(LEN));
            assert!(memory.holds(0, LEN, 1, 0));
            let error = stream.recv(&SOLO, memory.buffer()).expect_err("no orderly end");
            assert!(matches!(error, Error::ConnectionReset | Error::BrokenPipe), "{error:?}");
            stream.close(&SOLO).expect("open");
            listener.close(&SOLO).expect("open");
            world.expect_all_free();
        });
    }
}

#[test]
fn a_peer_that_leaves_in_mid_message_ends_the_stream() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
        peer.write_all(&[7; 300]).expect("sent");
        drop(peer);
        let memory = Memory::new(1000);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(300));
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(0));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_close_without_linger_resets_a_tcp_peer() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp().with_linger_ms(0));
        for _ in 0..20 {
            let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
            stream.send_all(&SOLO, b"x").expect("sent");
            stream.close(&SOLO).expect("open");
            let (_, end) = read_all(&mut peer);
            assert_eq!(end.expect_err("a reset").kind(), std::io::ErrorKind::ConnectionReset);
        }
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn a_close_without_linger_resets_a_direct_peer() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = listen(net, peer);
        let addr = listener.local_addr();
        let client = std::thread::spawn(move || {
            let mut stream = Stream::connect_with(&SOLO, net, addr, peer.with_linger_ms(0))?;
            stream.send_all(&SOLO, b"hello")?;
            stream.close(&SOLO)
        });
        let mut stream = listener.accept(&SOLO).expect("accepted");
        assert_eq!(client.join().expect("no panic"), Ok(()));
        let memory = Memory::new(100);
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Ok(5));
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(Error::ConnectionReset));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn what_a_tcp_peer_never_read_is_reported() {
    bounded(|| {
        let world = World::with(small());
        let listener = listen(world.net(), tcp().with_linger_ms(100));
        let (mut stream, mut peer) = accepted(&listener, || narrow_client(listener.local_addr()));
        let piece = Memory::new(1 << 16);
        let mut sent = 0;
        while let Ok(n) = stream.sender().send_timeout(&SOLO, piece.buffer(), Timeout::ms(100)) {
            sent += n as u64;
        }
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        let undelivered = world.attachment().stats().undelivered;
        let (read, end) = read_all(&mut peer);
        assert!(end.is_err(), "no orderly end");
        assert!(undelivered > 0 && undelivered + read.len() as u64 >= sent, "{undelivered} of {sent}");
        let (_proxy, attachment, token) = world.apart();
        assert_eq!(token.finish(gpunet_proxy::FinishPolicy::Close).left_open, 0);
        assert_eq!(attachment.close().undelivered, undelivered);
    });
}

#[test]
fn what_is_sent_to_a_direct_peer_that_left_is_reported() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let listener = listen(net, peer);
        let [mut client, mut stream] = connect(net, &listener, peer);
        client.send_all(&SOLO, b"hello").expect("room");
        // What it does not care to read has reached it; what comes later has not.
        let memory = Memory::new(2);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(2));
        stream.close(&SOLO).expect("open");
        client.send_all(&SOLO, b"anyone?").expect("room");
        client.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
        assert_eq!(world.attachment().stats().undelivered, 7);
    });
}

/// The peer reads only after the two seconds for which a closed stream waits for its end, and sends
/// meanwhile: a socket closed too early would answer that with a reset, which destroys the rest.
#[test]
fn a_peer_that_reads_late_gets_everything_all_the_same() {
    // More than the peer's kernel takes, less than this side's.
    const LEN: usize = 60_000;
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let (mut stream, mut peer) = accepted(&listener, || narrow_client(listener.local_addr()));
        let memory = Memory::filled(3, 0, LEN);
        stream.send_all(&SOLO, memory.buffer()).expect("room in the ring");
        stream.close(&SOLO).expect("open");
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2300) {
            peer.write_all(b"?").expect("the connection stands");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (read, end) = read_all(&mut peer);
        assert!(end.is_ok(), "{end:?} after {} bytes", read.len());
        assert!(read == memory.copy(0, LEN), "{} bytes", read.len());
        drop(peer);
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

/// Also of what was sent a moment ago.
#[test]
fn what_a_peer_has_not_acknowledged_is_counted() {
    bounded(|| {
        let world = World::with(Config { data_threads: 2, ..small() });
        let listener = listen(world.net(), tcp().with_linger_ms(0));
        let memory = Memory::new(60_000);
        for _ in 0..20 {
            let (mut stream, peer) = accepted(&listener, || narrow_client(listener.local_addr()));
            assert_eq!(stream.out_queue(&SOLO), Ok(0));
            stream.send_all(&SOLO, memory.buffer()).expect("room in the ring");
            let left = stream.out_queue(&SOLO).expect("open");
            assert!(left > 0 && left <= 60_000, "{left}");
            stream.close(&SOLO).expect("open");
            drop(peer);
        }
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn urgent_data_does_not_hold_up_the_rest() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), tcp());
        let (mut stream, mut peer) = accepted(&listener, || client(listener.local_addr()));
        let memory = Memory::new(2000);
        for _ in 0..50 {
            peer.write_all(&[b'a'; 1000]).expect("sent");
            SockRef::from(&peer).send_out_of_band(b"!").expect("sent");
            peer.write_all(&[b'b'; 1000]).expect("sent");
            // The urgent byte itself is not part of the stream.
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(2000));
        }
        drop(peer);
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        world.end();
    });
}
