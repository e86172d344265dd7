//! Futures that are dropped before they are done.

use crate::bench::{Bench, bytes};
use gpunet_device::TransportKind;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Polls a future `times` times, letting others run in between, and drops it; its output if it was
/// done.
async fn nudge<T>(future: impl Future<Output = T>, times: u32) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        let polled = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

pub async fn dropped_accepts_lose_no_connection(bench: Bench) {
    const CONNECTIONS: u8 = 40;
    let listener = bench.listen().await;
    let (addr, options, host) =
        (listener.local_addr().expect("an address"), bench.options(), bench.host.clone());
    let clients = tokio::spawn(async move {
        for number in 0..CONNECTIONS {
            let mut stream = host.connect(addr, options).await.expect("connected");
            stream.write_all(&[number]).await.expect("sent");
            assert_eq!(stream.read(&mut [0]).await.expect("the end"), 0);
        }
    });
    let mut accepted = 0;
    let mut polls = 0;
    while accepted < CONNECTIONS {
        polls = (polls + 1) % 7;
        let Some(result) = nudge(listener.accept(), polls).await else {
            tokio::time::sleep(Duration::from_micros(50)).await;
            continue;
        };
        let (mut stream, _) = result.expect("accepted");
        // In order, and none is missing: each client waits until it was served.
        assert_eq!(stream.read_u8().await.expect("received"), accepted);
        accepted += 1;
    }
    clients.await.expect("no panic");
    drop(listener);
    bench.end().await;
}

pub async fn a_connection_taken_for_a_dropped_accept_goes_to_the_next(bench: Bench) {
    let listener = bench.listen().await;
    let addr = listener.local_addr().expect("an address");
    for _ in 0..20 {
        let (client, taken) = tokio::join!(bench.host.connect(addr, bench.options()), async {
            for times in 1.. {
                let dropped = nudge(listener.accept(), times % 3).await;
                if dropped.is_some() {
                    return dropped;
                }
                // The request of the dropped accept is answered meanwhile.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            None
        });
        let (mut client, (mut server, _)) =
            (client.expect("connected"), taken.expect("taken").expect("accepted"));
        client.write_all(b"x").await.expect("sent");
        assert_eq!(server.read_u8().await.expect("received"), b'x');
    }
    // A request whose connection nobody will ever take.
    let client = bench.host.connect(addr, bench.options());
    let accept = async {
        while nudge(listener.accept(), 2).await.is_none() {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
    };
    let (client, ()) = tokio::join!(client, accept);
    drop((client, listener));
    bench.end().await;
}

pub async fn dropped_connects_leave_nothing_behind(bench: Bench) {
    let listener = bench.listen().await;
    let addr = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move {
        loop {
            // Those of dropped connects are over at once, in order or not.
            drop(listener.accept().await);
        }
    });
    for round in 0..150 {
        let connected = nudge(bench.host.connect(addr, bench.options()), round % 5).await;
        // Slots and rings come back when the other end, too, is closed, which may take a while.
        if let Some(Err(error)) = connected {
            let errno = error.errno();
            assert!([libc::EMFILE, libc::ENOBUFS].contains(&errno), "{error}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if round % 3 == 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    server.abort();
    assert!(server.await.expect_err("aborted").is_cancelled());
    bench.expect_all_free().await;
}

pub async fn dropped_reads_and_writes_lose_no_bytes(bench: Bench) {
    const LEN: usize = 200_000;
    let (mut client, mut server) = bench.pair_with(bench.options().with_rings(4096, 4096)).await;
    if bench.case.transport == TransportKind::Peer {
        assert_eq!(client.transport(), TransportKind::Peer);
    }
    let all = bytes(6, 0, LEN);
    let send = async {
        let mut sent = 0;
        let mut polls = 0;
        while sent < LEN {
            polls = polls % 3 + 1;
            match nudge(client.write(&all[sent..LEN.min(sent + 3001)]), polls).await {
                Some(n) => sent += n.expect("sent"),
                None => tokio::task::yield_now().await,
            }
        }
        client.shutdown().await.expect("shut down");
    };
    let receive = async {
        let (mut got, mut piece, mut polls) = (Vec::new(), [0; 1777], 0);
        loop {
            polls = polls % 4 + 1;
            match nudge(server.read(&mut piece), polls).await {
                Some(Ok(0)) => return got,
                Some(n) => got.extend_from_slice(&piece[..n.expect("received")]),
                None => tokio::task::yield_now().await,
            }
        }
    };
    let ((), got) = tokio::join!(send, receive);
    assert!(got == all, "bytes were lost or changed");
    drop((client, server));
    bench.end().await;
}
