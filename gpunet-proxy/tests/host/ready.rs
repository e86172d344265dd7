//! Readiness, peeking, and a reading half that stops.

use crate::bench::{Bench, bytes};
use gpunet_proxy::host::ReadHalf;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};

fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

async fn peek(read: &mut ReadHalf, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let mut buf = ReadBuf::new(&mut bytes);
    poll_fn(|cx| read.poll_peek(cx, &mut buf)).await.expect("peeked");
    buf.filled().to_vec()
}

pub async fn a_half_is_ready_when_a_call_would_not_wait(bench: Bench) {
    let (client, server) = bench.pair_with(bench.options().with_rings(4096, 4096)).await;
    let ((mut client_read, mut client_write), (mut server_read, mut server_write)) =
        (client.into_split(), server.into_split());
    assert!(client_read.poll_ready(&mut cx()).is_pending(), "nothing has come");
    assert!(matches!(client_write.poll_ready(&mut cx()), Poll::Ready(Ok(()))));
    // Until the rings, and what TCP holds, are full.
    let mut sent = 0;
    loop {
        match client_write.poll_ready(&mut cx()) {
            Poll::Ready(ready) => {
                ready.expect("open");
                sent += client_write.write(&bytes(1, sent, 4096)).await.expect("sent");
            }
            // TCP may take more in a moment.
            Poll::Pending
                if tokio::time::timeout(
                    std::time::Duration::from_millis(200),
                    poll_fn(|cx| client_write.poll_ready(cx)),
                )
                .await
                .is_err() =>
            {
                break;
            }
            Poll::Pending => {}
        }
    }
    let mut back = vec![0; sent];
    server_read.read_exact(&mut back).await.expect("received");
    assert!(back == bytes(1, 0, sent));
    poll_fn(|cx| client_write.poll_ready(cx)).await.expect("room");
    // The end of the stream is something to read.
    assert!(server_read.poll_ready(&mut cx()).is_pending());
    drop(client_write);
    poll_fn(|cx| server_read.poll_ready(cx)).await.expect("the end");
    assert_eq!(server_read.read(&mut [0]).await.expect("the end"), 0);
    server_write.write_all(b"unheard").await.expect("sent");
    poll_fn(|cx| client_read.poll_ready(cx)).await.expect("bytes");
    client_read.stop();
    assert!(matches!(client_read.poll_ready(&mut cx()), Poll::Ready(Ok(()))));
    assert_eq!(client_read.read(&mut [0]).await.expect("stopped"), 0);
    drop((client_read, server_read, server_write));
    bench.end().await;
}

pub async fn peeked_bytes_stay(bench: Bench) {
    let (client, mut server) = bench.pair_with(bench.options().with_rings(4096, 4096)).await;
    let (mut read, write) = client.into_split();
    let mut at = 0;
    // Round the ring's end.
    for len in [1, 1000, 3000, 4000] {
        let sent = bytes(2, at, len);
        server.write_all(&sent).await.expect("sent");
        let mut all = Vec::new();
        while all.len() < len {
            let seen = peek(&mut read, len).await;
            assert!(
                !seen.is_empty()
                    && seen == peek(&mut read, seen.len()).await
                    && sent[all.len()..].starts_with(&seen)
            );
            let mut taken = vec![0; seen.len()];
            read.read_exact(&mut taken).await.expect("received");
            all.extend(taken);
        }
        assert!(all == sent);
        at += len;
    }
    server.shutdown().await.expect("shut down");
    assert!(peek(&mut read, 1).await.is_empty(), "the end");
    drop((read, write, server));
    bench.end().await;
}

pub async fn who_waits_to_be_ready_is_woken(bench: Bench) {
    let (client, mut server) = bench.pair().await;
    let (mut read, write) = client.into_split();
    let waits = tokio::spawn(async move {
        for round in 0..50_u8 {
            poll_fn(|cx| read.poll_ready(cx)).await.expect("ready");
            assert_eq!(read.read_u8().await.expect("received"), round);
        }
        read
    });
    for round in 0..50_u8 {
        tokio::task::yield_now().await;
        server.write_u8(round).await.expect("sent");
    }
    drop(waits.await.expect("no panic"));
    drop((write, server));
    bench.end().await;
}
