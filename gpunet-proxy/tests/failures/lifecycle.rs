//! Attachments and proxies that come and go, inside and outside async code.

use crate::support::client::{client, narrow_client, read_all};
use crate::support::pair::connect;
use crate::support::world::{LOOPBACK, listen};
use crate::support::{HANG, Memory, SOLO, World, bounded, small};
use gpunet_device::{Listener, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::{Config, FinishPolicy};

use std::time::Instant;

const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn an_attachment_dropped_with_open_sockets_sends_what_was_accepted() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), Options::DEFAULT);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let memory = Memory::filled(1, 0, 200_000);
        stream.send_all(&SOLO, memory.buffer()).expect("room");
        let reader = std::thread::spawn(move || read_all(&mut peer));
        let (proxy, attachment, token) = world.apart();
        drop(proxy);
        drop(attachment);
        assert_eq!(token.finish(FinishPolicy::Close).left_open, 0, "closed already");
        let (bytes, end) = reader.join().expect("no panic");
        assert!(end.is_ok() && bytes == memory.copy(0, 200_000), "{} bytes, {end:?}", bytes.len());
    });
}

/// The peer reads nothing until after the drop, which nevertheless returns, and what was accepted
/// arrives, although proxy and attachment are gone as far as the program can see.
#[test]
fn a_drop_inside_a_runtime_goes_on_in_the_background() {
    bounded(|| {
        let world = World::with(Config { linger: HANG, ..small() });
        let listener = listen(world.net(), TCP.with_rings(1 << 20, 4096));
        let mut peer = narrow_client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let piece = Memory::new(1 << 16);
        let mut sent = 0;
        while let Ok(n) = stream.sender().send_timeout(&SOLO, piece.buffer(), Timeout::ms(50)) {
            sent += n;
        }
        let (proxy, attachment, token) = world.apart();
        let start = Instant::now();
        tokio().block_on(async {
            drop(token);
            drop(attachment);
            drop(proxy);
        });
        assert!(start.elapsed() < HANG / 4, "the drop waited for the peer");
        let (bytes, end) = read_all(&mut peer);
        assert!(end.is_ok(), "{end:?}");
        assert_eq!(bytes.len(), sent);
    });
}

#[test]
fn an_async_close_reports_and_holds_nobody_up() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        let mut peer = client(listener.local_addr());
        let mut stream = listener.accept(&SOLO).expect("accepted");
        stream.send_all(&SOLO, b"hello").expect("room");
        let (_proxy, attachment, token) = world.apart();
        assert_eq!(token.finish(FinishPolicy::Keep).left_open, 2);
        let report = tokio().block_on(async {
            let close = ::tokio::task::LocalSet::new();
            close
                .run_until(async {
                    let close = ::tokio::task::spawn_local(attachment.close_async());
                    ::tokio::task::yield_now().await;
                    // The peer ends its side on this very thread, with a blocking call.
                    let bytes = read_all(&mut peer).0;
                    assert_eq!(bytes, b"hello");
                    drop(peer);
                    close.await.expect("no panic")
                })
                .await
        });
        assert_eq!((report.undelivered, report.unfinished), (0, 0));
    });
}

#[test]
fn two_proxies_in_one_process_know_nothing_of_each_other() {
    bounded(|| {
        let (one, two) = (World::new(), World::new());
        let listener = listen(one.net(), Options::DEFAULT);
        let (net, addr) = (two.net(), listener.local_addr());
        let client = std::thread::spawn(move || {
            let mut stream = Stream::connect(&SOLO, net, addr)?;
            stream.send_all(&SOLO, b"hello")?;
            stream.close(&SOLO)
        });
        let mut stream = listener.accept(&SOLO).expect("accepted, over TCP");
        let memory = Memory::new(10);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        assert_eq!(client.join().expect("no panic"), Ok(()));
        // One stops; the other runs on.
        one.end();
        listen(two.net(), Options::DEFAULT).close(&SOLO).expect("open");
        two.end();
    });
}

#[test]
fn two_attachments_of_one_proxy_are_served_side_by_side() {
    bounded(|| {
        let world = World::with(Config { data_threads: 2, ..small() });
        let other = world.proxy.attach_cpu().expect("an attachment");
        let token = other.token().expect("a number");
        let listener = listen(world.net(), Options::DEFAULT);
        let (net, addr) = (token.net(), listener.local_addr());
        for _ in 0..10 {
            let client = std::thread::spawn(move || {
                let mut stream = Stream::connect(&SOLO, net, addr)?;
                stream.send_all(&SOLO, b"ping")?;
                let memory = Memory::new(4);
                stream.recv_exact(&SOLO, memory.buffer())?;
                stream.close(&SOLO)
            });
            let mut stream = listener.accept(&SOLO).expect("accepted");
            let memory = Memory::new(4);
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(4));
            stream.send_all(&SOLO, memory.buffer()).expect("room");
            stream.close(&SOLO).expect("open");
            assert_eq!(client.join().expect("no panic"), Ok(()));
        }
        // The end of one is not the end of the other.
        let theirs = Listener::bind(&SOLO, net, LOOPBACK).expect("a free port");
        theirs.close(&SOLO).expect("open");
        assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
        assert_eq!(other.close().unfinished, 0);
        listener.close(&SOLO).expect("open");
        world.end();
    });
}

#[test]
fn a_kernel_that_outlives_its_attachment_hears_of_it() {
    bounded(|| {
        let world = World::new();
        let net = world.net();
        let listener = listen(net, TCP);
        let handle = listener.handle();
        let waiting = std::thread::spawn(move || {
            Listener::from_handle(&SOLO, net, handle).and_then(|l| l.accept(&SOLO)).map(|_| ())
        });
        world.expect_requests(1);
        let (_proxy, attachment, token) = world.apart();
        // The token keeps the memory for as long as kernels may use it.
        assert_eq!(attachment.close().unfinished, 0);
        assert_eq!(waiting.join().expect("no panic"), Err(gpunet_device::Error::Canceled));
        drop(token);
    });
}

#[test]
fn a_listener_ends_with_its_attachment_whatever_else_was_open() {
    bounded(|| {
        let world = World::new();
        let peer = Options::DEFAULT.with_transport(TransportKind::Peer);
        let net = world.net();
        let listener = listen(net, peer);
        let _ends = connect(net, &listener, peer);
        // In a later slot than the direct stream, which is closed at once.
        let other = listen(net, TCP).local_addr().to_std().expect("an address");
        let (_proxy, attachment, token) = world.apart();
        drop(attachment);
        drop(token);
        let refused = std::net::TcpStream::connect(other).expect_err("nobody listens there");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

/// Who has a stream finds it counted, however late its data thread takes it.
#[test]
fn a_stream_is_counted_before_a_kernel_has_it() {
    bounded(|| {
        let world = World::new();
        let listener = listen(world.net(), TCP);
        for opened in 1..=200 {
            let peer = client(listener.local_addr());
            let stream = listener.accept(&SOLO).expect("accepted");
            assert_eq!(world.attachment().stats().opened, opened);
            stream.close(&SOLO).expect("closed");
            drop(peer);
        }
        listener.close(&SOLO).expect("closed");
        world.end();
    });
}
