//! Sockets that the host program opens and kernels use.

use crate::support::client::{client, nobody, read_all, std_addr};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, bounded, until};
use gpunet_device::{Error, Handle, Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::FinishPolicy;
use gpunet_proxy::socket::SocketError;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);
const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);
const ANY: &str = "127.0.0.1:0";

/// Sends and receives by the handle, as a kernel does.
fn greet(net: Net, handle: Handle, mut peer: &TcpStream) {
    let memory = Memory::filled(1, 0, 5);
    let mut stream = Stream::from_handle(&SOLO, net, handle).expect("open");
    stream.send_all(&SOLO, memory.buffer()).expect("room");
    let mut heard = [0; 5];
    peer.read_exact(&mut heard).expect("it was sent");
    peer.write_all(&heard).expect("room");
    let back = Memory::new(5);
    assert_eq!(stream.recv_exact(&SOLO, back.buffer()), Ok(5));
    assert!(back.holds(0, 5, 1, 0));
}

#[test]
fn a_connected_socket_serves_one_launch_after_another() {
    bounded(|| {
        let mut world = World::new();
        let server = TcpListener::bind(ANY).expect("a port");
        let addr = server.local_addr().expect("bound");
        let socket = world.attachment().connect_blocking(addr, TCP).expect("connected");
        let (mut peer, from) = server.accept().expect("a connection");
        assert_eq!((socket.transport(), socket.peer_addr().expect("open")), (TransportKind::Tcp, addr));
        assert_eq!(socket.local_addr().expect("open"), from);
        for _ in 0..3 {
            greet(world.net(), socket.handle(), &peer);
            // The end of a launch does not touch it: it is the host program's.
            assert_eq!(world.relaunch(FinishPolicy::Reset).left_open, 0);
        }
        // The launch that runs now has the number of those that used it, and does not know it.
        let (net, handle) = (world.net(), socket.handle());
        drop(socket);
        assert_eq!(read_all(&mut peer).0, b"");
        assert_eq!(Stream::from_handle(&SOLO, net, handle).map(|_| ()), Err(Error::BadHandle));
        world.expect_all_free();
    });
}

#[test]
fn slots_are_used_again_and_more_than_there_are_cannot_be_opened() {
    bounded(|| {
        let world = World::new();
        let options = TCP.with_rings(4096, 4096);
        let listener = world.attachment().listen_blocking(ANY.parse().expect("an address"), options, 128);
        let listener = listener.expect("listening");
        // The listener has one of the 256.
        for _ in 0..3 {
            let (mut sockets, mut clients) = (Vec::new(), Vec::new());
            for _ in 0..200 {
                clients.push(TcpStream::connect(listener.local_addr()).expect("connected"));
                sockets.push(listener.accept_blocking().expect("a connection"));
            }
            drop(sockets);
            clients.iter_mut().for_each(|client| assert_eq!(read_all(client).0, b""));
            drop(clients);
            until("all are closed", || world.attachment().usage().sockets == 1);
        }
        let listen = || world.attachment().listen_blocking(ANY.parse().expect("an address"), TCP, 1);
        let all: Vec<_> = (0..255).map(|_| listen().expect("a slot")).collect();
        let refused = listen().expect_err("none is left");
        assert!(matches!(refused, SocketError::TooManyHostSockets), "{refused:?}");
        drop(all);
        until("all are closed", || world.attachment().usage().sockets == 1);
        listen().expect("a slot");
        drop(listener);
        world.expect_all_free();
    });
}

#[test]
fn a_connect_that_fails_says_why_and_keeps_nothing() {
    bounded(|| {
        let world = World::new();
        for _ in 0..300 {
            let refused = world.attachment().connect_blocking(std_addr(nobody()), TCP);
            let refused = refused.expect_err("nobody is there");
            assert!(matches!(refused, SocketError::Failed(Error::ConnectionRefused)), "{refused:?}");
            assert_eq!(std::io::Error::from(refused).kind(), ErrorKind::ConnectionRefused);
        }
        assert_eq!(world.attachment().usage().sockets, 0);
        world.expect_all_free();
    });
}

#[test]
fn kernels_accept_at_a_listener_of_the_host_program_and_it_at_theirs() {
    bounded(|| {
        let mut world = World::new();
        let net = world.net();
        let ours =
            world.attachment().listen_blocking(ANY.parse().expect("an address"), TCP, 8).expect("listening");
        let theirs = Listener::from_handle(&SOLO, net, ours.handle()).expect("open");
        for round in 0..40 {
            let connect = || TcpStream::connect(ours.local_addr()).expect("connected");
            let mut peer = if round % 3 == 0 {
                // Whoever waits already goes before what comes ahead of accepts.
                std::thread::scope(|scope| {
                    let accept = scope.spawn(|| ours.accept_blocking());
                    world.expect_requests(1);
                    let peer = connect();
                    let socket = accept.join().expect("no panic").expect("a connection");
                    greet(net, socket.handle(), &peer);
                    Stream::from_handle(&SOLO, net, socket.into_handle())
                        .and_then(|stream| stream.close(&SOLO))
                        .expect("open");
                    peer
                })
            } else {
                let peer = connect();
                let stream = theirs.accept(&SOLO).expect("a connection");
                greet(net, stream.handle(), &peer);
                stream.close(&SOLO).expect("open");
                peer
            };
            assert_eq!(read_all(&mut peer).0, b"");
        }
        assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
        drop(ours);
        assert_eq!(theirs.accept(&SOLO).err(), Some(Error::BadHandle));
        world.expect_all_free();
    });
}

#[test]
fn the_host_program_connects_to_a_kernel_of_its_own_device() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        for options in [TCP, PEER] {
            let listener = listen(net, options);
            let addr = std_addr(listener.local_addr());
            let server =
                std::thread::spawn(move || listener.accept(&SOLO).map(|stream| (listener, stream.handle())));
            let socket = world.attachment().connect_blocking(addr, options).expect("connected");
            let (listener, server) = server.join().expect("no panic").expect("accepted");
            assert_eq!(socket.transport(), options_kind(options));
            let memory = Memory::filled(7, 0, 3000);
            let mut near = Stream::from_handle(&SOLO, net, socket.handle()).expect("open");
            let mut far = Stream::from_handle(&SOLO, net, server).expect("open");
            for _ in 0..100 {
                near.send_all(&SOLO, memory.buffer()).expect("room");
                let back = Memory::new(3000);
                assert_eq!(far.recv_exact(&SOLO, back.buffer()), Ok(3000));
                assert!(back.holds(0, 3000, 7, 0));
            }
            far.close(&SOLO).expect("open");
            // A kernel closes it; that of the host program finds it closed.
            near.close(&SOLO).expect("open");
            drop(socket);
            listener.close(&SOLO).expect("open");
        }
        world.expect_all_free();
    });
}

fn options_kind(options: Options) -> TransportKind {
    TransportKind::from_raw(options.transport).expect("one that was asked for")
}

#[test]
fn a_socket_that_a_launch_knows_is_closed_when_that_has_ended() {
    bounded(|| {
        let world = World::new();
        let server = TcpListener::bind(ANY).expect("a port");
        let addr = server.local_addr().expect("bound");
        let socket = world.attachment().connect_blocking(addr, TCP).expect("connected");
        let (peer, _) = server.accept().expect("a connection");
        let other = world.attachment().token().expect("a number");
        greet(other.net(), socket.handle(), &peer);
        let handle = socket.handle();
        drop(socket);
        // The launch uses it on.
        greet(other.net(), handle, &peer);
        assert_eq!(other.finish(FinishPolicy::Close).left_open, 0);
        assert_eq!(read_all(&mut { peer }).0, b"");
        world.expect_all_free();
    });
}

#[test]
fn a_socket_that_is_left_to_the_kernels_lives_until_one_closes_it() {
    bounded(|| {
        let mut world = World::new();
        let server = TcpListener::bind(ANY).expect("a port");
        let addr = server.local_addr().expect("bound");
        let handle = world.attachment().connect_blocking(addr, TCP).expect("connected").into_handle();
        let (mut peer, _) = server.accept().expect("a connection");
        greet(world.net(), handle, &peer);
        assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
        greet(world.net(), handle, &peer);
        let stream = Stream::from_handle(&SOLO, world.net(), handle).expect("open");
        stream.close(&SOLO).expect("open");
        assert_eq!(read_all(&mut peer).0, b"");
        world.expect_all_free();
    });
}

#[test]
fn futures_that_are_dropped_keep_nothing() {
    bounded(|| {
        let mut world = World::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = world.attachment().listen(ANY.parse().expect("an address"), TCP, 8).await;
            let listener = listener.expect("listening");
            for _ in 0..300 {
                let short = Duration::from_micros(50);
                let _ = tokio::time::timeout(short, listener.accept()).await;
                let addr = listener.local_addr();
                let _ = tokio::time::timeout(Duration::ZERO, world.attachment().connect(addr, TCP)).await;
            }
            // Clients that were given up may still have come.
            let waiting = async { while listener.accept().await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_millis(50), waiting).await;
            let client = client(gpunet_device::SockAddr::from_std(listener.local_addr()));
            let served = loop {
                let socket = listener.accept().await.expect("a connection");
                if socket.peer_addr().ok() == client.local_addr().ok() {
                    break socket;
                }
            };
            greet(world.net(), served.handle(), &client);
        });
        assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);
        until("all are closed", || world.attachment().usage().sockets == 0);
        world.expect_all_free();
    });
}
