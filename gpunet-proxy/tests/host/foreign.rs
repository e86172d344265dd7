//! Plain TCP programs as the other end: the standard library's sockets, and tokio's.

use crate::bench::{Bench, Case, bytes, errno, eventually};
use crate::streams::echo;
use crate::support::client::{self, FullListener, read_all};
use gpunet_device::{SockAddr, TransportKind};
use std::io::{Read, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TCP: Case = Case { transport: TransportKind::Tcp, threads: 2 };

#[test]
fn a_program_of_the_standard_library_is_served() {
    TCP.run(async |bench: Bench| {
        let listener = bench.listen().await;
        let addr = SockAddr::from_std(listener.local_addr().expect("an address"));
        let client = tokio::task::spawn_blocking(move || {
            let mut stream = client::client(addr);
            let sent = bytes(1, 0, 1 << 20);
            let mut writer = stream.try_clone().expect("a socket");
            let copy = sent.clone();
            let writing = std::thread::spawn(move || {
                writer.write_all(&copy).expect("sent");
                writer.shutdown(std::net::Shutdown::Write).expect("shut down");
            });
            let (all, end) = read_all(&mut stream);
            writing.join().expect("no panic");
            end.expect("in order");
            assert!(all == sent);
        });
        let (stream, peer) = listener.accept().await.expect("accepted");
        assert!(peer.ip().is_loopback());
        echo(stream).await.expect("served");
        client.await.expect("no panic");
        drop(listener);
        bench.end().await;
    });
}

#[test]
fn a_program_on_tokio_is_called() {
    TCP.run(async |bench: Bench| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let (mut read, mut write) = stream.split();
            tokio::io::copy(&mut read, &mut write).await.expect("copied");
        });
        let stream = bench.host.connect(addr, bench.options()).await.expect("connected");
        assert_eq!(stream.peer_addr().expect("connected"), addr);
        let (mut read, mut write) = stream.into_split();
        let (sent, mut back) = (bytes(2, 0, 1 << 20), Vec::new());
        let (written, received) = tokio::join!(
            async {
                write.write_all(&sent).await?;
                write.shutdown().await
            },
            read.read_to_end(&mut back)
        );
        written.expect("sent");
        received.expect("received");
        assert!(back == sent);
        server.await.expect("no panic");
        drop((read, write));
        bench.end().await;
    });
}

#[test]
fn a_reset_by_a_program_is_an_error() {
    TCP.run(async |bench: Bench| {
        let listener = bench.listen().await;
        let addr = SockAddr::from_std(listener.local_addr().expect("an address"));
        let client = tokio::task::spawn_blocking(move || client::client(addr)).await.expect("no panic");
        let (mut stream, _) = listener.accept().await.expect("accepted");
        let (begun, begins) = tokio::sync::oneshot::channel();
        let waits = tokio::spawn(async move {
            begun.send(()).expect("the test waits for it");
            let read = errno(stream.read(&mut [0; 4]).await);
            // There is room in the ring, but no use.
            (read, errno(stream.write(b"x").await))
        });
        begins.await.expect("it reads");
        client::reset(client);
        assert_eq!(waits.await.expect("no panic"), (libc::ECONNRESET, libc::ECONNRESET));
        drop(listener);
        bench.end().await;
    });
}

/// Sockets and host dropped outside of a runtime: the drop waits for the delivery.
#[test]
fn what_was_written_is_delivered_when_all_is_dropped_at_once() {
    crate::support::bounded(|| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let (bench, runtime) = (Bench::with(TCP, TCP.config()), TCP.runtime());
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            listener.accept().expect("accepted").0.read_to_end(&mut all).expect("received");
            all
        });
        let (sent, options) = (bytes(3, 0, 1 << 20), bench.options().with_rings(1 << 20, 4096));
        let stream = runtime.block_on(async {
            let mut stream = bench.host.connect(addr, options).await.expect("connected");
            stream.write_all(&sent).await.expect("sent");
            stream
        });
        drop((stream, bench));
        assert!(reader.join().expect("no panic") == sent);
    });
}

#[test]
fn a_connect_that_takes_for_ever_can_be_dropped() {
    TCP.run(async |bench: Bench| {
        let full = FullListener::new();
        let addr = full.addr.to_std().expect("an address");
        for _ in 0..3 {
            let connect = bench.host.connect(addr, bench.options());
            let late = tokio::time::timeout(Duration::from_millis(20), connect).await;
            assert!(late.is_err());
        }
        bench.end().await;
    });
}

#[test]
fn who_connects_hears_of_an_abort() {
    TCP.run(async |bench: Bench| {
        let full = FullListener::new();
        let (host, addr) = (bench.host.clone(), full.addr.to_std().expect("an address"));
        let options = bench.options();
        let waits = tokio::spawn(async move { errno(host.connect(addr, options).await) });
        eventually("the connect waits", || bench.host.usage().requests == 1).await;
        bench.proxy.abort();
        assert_eq!(waits.await.expect("no panic"), libc::ENETDOWN);
    });
}
