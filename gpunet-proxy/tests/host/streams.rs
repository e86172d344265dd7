//! What a stream does, whatever carries it.

use crate::bench::{Bench, bytes, errno};
use gpunet_device::TransportKind;
use gpunet_proxy::host::{ReadHalf, Stream, WriteHalf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends back whatever comes, to the end.
pub async fn echo(mut stream: Stream) -> std::io::Result<()> {
    let (read, write) = stream.split();
    tokio::io::copy(read, write).await?;
    write.shutdown().await
}

pub async fn messages_of_all_sizes_come_back(bench: Bench) {
    let (mut client, server) = bench.pair().await;
    let server = tokio::spawn(echo(server));
    let mut seed = 0;
    for size in [1, 2, 3, 15, 16, 17, 1023, 4095, 4096, 4097, 65_535, 65_536] {
        seed += 1;
        let sent = bytes(seed, 0, size);
        client.write_all(&sent).await.expect("sent");
        let mut back = vec![0; size];
        client.read_exact(&mut back).await.expect("received");
        assert!(back == sent, "{size} bytes came back changed");
    }
    client.shutdown().await.expect("shut down");
    assert_eq!(client.read(&mut [0; 1]).await.expect("the end"), 0);
    server.await.expect("no panic").expect("served");
    drop(client);
    bench.end().await;
}

async fn fill(mut write: WriteHalf, seed: u64, len: usize) {
    let all = bytes(seed, 0, len);
    // Pieces that fit neither the ring nor its quarters.
    for piece in all.chunks(50_001) {
        write.write_all(piece).await.expect("sent");
    }
    write.shutdown().await.expect("shut down");
}

async fn check(mut read: ReadHalf, seed: u64, len: usize) {
    let mut all = Vec::new();
    read.read_to_end(&mut all).await.expect("received");
    assert_eq!(all.len(), len);
    assert!(all == bytes(seed, 0, len), "bytes were changed");
}

pub async fn megabytes_flow_both_ways_at_the_same_time(bench: Bench) {
    const LEN: usize = 3 << 20;
    let (a, b) = bench.pair_with(bench.options().with_rings(1 << 15, 1 << 17)).await;
    let ((a_read, a_write), (b_read, b_write)) = (a.into_split(), b.into_split());
    let tasks = [
        tokio::spawn(fill(a_write, 1, LEN)),
        tokio::spawn(fill(b_write, 2, LEN)),
        tokio::spawn(check(a_read, 2, LEN)),
        tokio::spawn(check(b_read, 1, LEN)),
    ];
    for task in tasks {
        task.await.expect("no panic");
    }
    bench.end().await;
}

/// One byte at a time: each round lets every party fall asleep and wake up, in changing order.
pub async fn no_wake_up_is_lost(bench: Bench) {
    let (mut client, server) = bench.pair_with(bench.options().with_rings(4096, 4096)).await;
    let server = tokio::spawn(echo(server));
    let (mut byte, mut slow) = ([0], 0);
    for round in 0..1500u32 {
        if round % 100 == 99 {
            // Long enough for the reactor to park; nothing depends on it.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let start = Instant::now();
        client.write_all(&[round as u8]).await.expect("sent");
        client.read_exact(&mut byte).await.expect("received");
        assert_eq!(byte[0], round as u8);
        slow += u32::from(start.elapsed() > Duration::from_millis(150));
    }
    // A sleep ends after 200 ms in any case, which would hide the loss.
    assert!(slow < 10, "{slow} rounds took as long as a wake-up that was lost");
    drop(client);
    let _ = server.await.expect("no panic");
    bench.end().await;
}

pub async fn the_other_direction_runs_on_after_a_shutdown(bench: Bench) {
    let (mut client, mut server) = bench.pair().await;
    client.write_all(b"question").await.expect("sent");
    client.shutdown().await.expect("shut down");
    client.shutdown().await.expect("once more does no harm");
    let mut question = Vec::new();
    server.read_to_end(&mut question).await.expect("received");
    assert_eq!(question, b"question");
    assert_eq!(server.read(&mut [0; 8]).await.expect("the end stays"), 0);
    let answer = bytes(3, 0, 200_000);
    let (sent, received) = tokio::join!(
        async {
            server.write_all(&answer).await?;
            server.shutdown().await
        },
        async {
            let mut all = Vec::new();
            client.read_to_end(&mut all).await.map(|_| all)
        }
    );
    sent.expect("sent");
    assert!(received.expect("received") == answer);
    assert_eq!(errno(client.write(b"x").await), libc::EPIPE);
    drop((client, server));
    bench.end().await;
}

pub async fn a_dropped_stream_delivers_what_was_written(bench: Bench) {
    let sent = bytes(4, 0, 60_000);
    let (mut client, mut server) = bench.pair().await;
    client.write_all(&sent).await.expect("sent");
    drop(client);
    let mut all = Vec::new();
    server.read_to_end(&mut all).await.expect("received");
    assert!(all == sent);
    drop(server);
    bench.end().await;
}

pub async fn a_dropped_writing_half_ends_the_stream(bench: Bench) {
    let (client, mut server) = bench.pair().await;
    let (read, write) = client.into_split();
    let (other, _) = bench.pair().await;
    let (other_read, other_write) = other.into_split();
    // Halves of different streams are told apart.
    let (read, other_write) = *Stream::reunite(read, other_write).expect_err("two streams");
    let client = Stream::reunite(read, write).expect("one stream");
    let (mut read, mut write) = client.into_split();
    drop((other_read, other_write));

    write.write_all(b"last words").await.expect("sent");
    drop(write);
    let mut all = Vec::new();
    server.read_to_end(&mut all).await.expect("received");
    assert_eq!(all, b"last words");
    server.write_all(b"heard").await.expect("sent");
    drop(server);
    let mut all = Vec::new();
    read.read_to_end(&mut all).await.expect("received");
    assert_eq!(all, b"heard");
    drop(read);
    bench.end().await;
}

pub async fn a_write_to_one_who_left_fails(bench: Bench) {
    let (mut client, server) = bench.pair().await;
    drop(server);
    let scratch = vec![0; 1 << 16];
    // The first writes may find room, and a TCP peer answers them with a reset.
    let error = loop {
        if let Err(error) = client.write(&scratch).await {
            break error;
        }
    };
    let errno = error.raw_os_error().expect("an errno");
    assert!([libc::EPIPE, libc::ECONNRESET].contains(&errno), "{error}");
    drop(client);
    bench.expect_all_free().await;
}

pub async fn a_reset_is_an_error(bench: Bench) {
    let (client, mut server) = bench.pair_with(bench.options().with_linger_ms(0)).await;
    let waits = tokio::spawn(async move { errno(server.read(&mut [0; 1]).await) });
    tokio::task::yield_now().await;
    drop(client);
    assert_eq!(waits.await.expect("no panic"), libc::ECONNRESET);
    bench.expect_all_free().await;
}

pub async fn both_ends_know_both_addresses(bench: Bench) {
    let listener = bench.listen().await;
    let addr = listener.local_addr().expect("an address");
    assert_ne!(addr.port(), 0);
    let (connected, accepted) = tokio::join!(bench.host.connect(addr, bench.options()), listener.accept());
    let (connected, (accepted, peer)) = (connected.expect("connected"), accepted.expect("accepted"));
    let ends =
        |stream: &Stream| (stream.local_addr().expect("bound"), stream.peer_addr().expect("connected"));
    let ((a, b), (c, d)) = (ends(&connected), ends(&accepted));
    assert_eq!((b, c), (addr, addr));
    assert_eq!((d, peer), (a, a));
    let transport: TransportKind = bench.case.transport;
    assert_eq!((connected.transport(), accepted.transport()), (transport, transport));
    drop((connected, accepted, listener));
    bench.end().await;
}

pub async fn a_stream_that_is_always_ready_lets_others_run(bench: Bench) {
    let (client, server) = bench.pair().await;
    let server = tokio::spawn(echo(server));
    let (read, mut write) = client.into_split();
    let back = tokio::spawn(check(read, 5, 1 << 20));
    let all = bytes(5, 0, 1 << 20);
    let work = async {
        for piece in all.chunks(64) {
            write.write_all(piece).await.expect("sent");
        }
        write.shutdown().await.expect("shut down");
    };
    // On one thread the ticks come through only if the streams let go of it.
    let mut ticks = 0;
    let tick = async {
        loop {
            tokio::task::yield_now().await;
            ticks += 1;
        }
    };
    tokio::select! {
        () = work => {}
        () = tick => {}
    }
    assert!(ticks > 10, "{ticks}");
    back.await.expect("no panic");
    server.await.expect("no panic").expect("served");
    drop(write);
    bench.end().await;
}

pub async fn two_hundred_connections_at_the_same_time(bench: Bench) {
    const MANY: u64 = 200;
    // The bench's own is too small.
    let config = gpunet_proxy::Config { sockets: 512, controls: 8, ..bench.case.config() };
    bench
        .end_with(config, async |bench| {
            let options = bench.options().with_rings(4096, 8192);
            let listener = bench.listen_with(options).await;
            let addr = listener.local_addr().expect("an address");
            let server = tokio::spawn(async move {
                let mut served = tokio::task::JoinSet::new();
                for _ in 0..MANY {
                    let (stream, _) = listener.accept().await.expect("accepted");
                    served.spawn(echo(stream));
                }
                while let Some(done) = served.join_next().await {
                    done.expect("no panic").expect("served");
                }
            });
            let mut clients = tokio::task::JoinSet::new();
            for seed in 0..MANY {
                let host = bench.host.clone();
                clients.spawn(async move {
                    let stream = host.connect(addr, options).await.expect("connected");
                    let (read, write) = stream.into_split();
                    tokio::join!(fill(write, seed, 20_000), check(read, seed, 20_000));
                });
            }
            while let Some(done) = clients.join_next().await {
                done.expect("no panic");
            }
            server.await.expect("no panic");
        })
        .await;
}
