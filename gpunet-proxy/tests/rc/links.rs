//! Links that are cut, requests that fail, peers that post no receives.

use crate::hosts::{Bystanders, EIO, Host, Hosts, RC, close, exchange, open, receive, sending};
use crate::raw_peer::{Shape, connected};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, bounded, pattern, until};
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_core::verbs::{Completion, CompletionStatus};
use gpunet_device::{Error, Stream};
use std::time::Duration;

#[test]
fn a_link_that_is_cut_for_a_moment_loses_nothing() {
    const LEN: usize = 4 << 20;
    bounded(|| {
        let settings = FabricSettings { retry_time: Duration::from_secs(20), ..FabricSettings::new(11) };
        let hosts = Hosts::new(Fabric::with(settings));
        let (mut a, mut b) = hosts.pair(RC);
        hosts.fabric.partition();
        let there = sending(hosts.a.net(), &a, 1, LEN);
        let back = sending(hosts.b.net(), &b, 2, LEN);
        let fabric = hosts.fabric.clone();
        let cutter = std::thread::spawn(move || {
            for _ in 0..6 {
                fabric.partition_for(Duration::from_millis(15));
                std::thread::sleep(Duration::from_millis(30));
            }
        });
        std::thread::scope(|scope| {
            let (net, handle) = (hosts.b.net(), b.handle());
            let other = scope.spawn(move || receive(&mut open(net, handle), 1, 0, LEN));
            assert_eq!(receive(&mut a, 2, 0, LEN), (LEN, None));
            assert_eq!(other.join().expect("no panic"), (LEN, None));
        });
        cutter.join().expect("no panic");
        assert_eq!(there.join().expect("no panic"), Ok(()));
        assert_eq!(back.join().expect("no panic"), Ok(()));
        assert!(hosts.fabric.counters().retries > 0);
        (a, b) = (open(hosts.a.net(), a.handle()), open(hosts.b.net(), b.handle()));
        exchange(&mut a, &mut b);
        a.close(&SOLO).expect("open");
        b.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_link_that_is_cut_for_good_ends_both_ends() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(12));
        let (mut a, mut b) = hosts.pair(RC);
        exchange(&mut a, &mut b);
        hosts.fabric.partition();
        // One has something to say, the other asks whether anyone is there.
        a.send_all(&SOLO, b"hello?").expect("room");
        let memory = Memory::new(10);
        assert_eq!(a.recv(&SOLO, memory.buffer()), Err(Error::TimedOut));
        assert_eq!(b.recv(&SOLO, memory.buffer()), Err(Error::TimedOut));
        a.close(&SOLO).expect("open");
        b.close(&SOLO).expect("open");
        hosts.a.expect_all_free();
        hosts.b.expect_all_free();
        // The proxies themselves are none the worse.
        hosts.fabric.restore();
        let (mut a, mut b) = hosts.pair(RC);
        exchange(&mut a, &mut b);
        a.close(&SOLO).expect("open");
        b.close(&SOLO).expect("open");
        hosts.a.bury();
        hosts.b.bury();
    });
}

/// Every way in which a request can end, on a connection that has moved data before.
#[test]
fn a_request_that_fails_ends_its_connection_alone() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(13));
        let mut bystanders = Bystanders::of(&hosts.b);
        let cases = [
            (CompletionStatus::RetryExceeded, Error::TimedOut),
            (CompletionStatus::RnrRetryExceeded, Error::TimedOut),
            (CompletionStatus::RemoteRefused, Error::ConnectionReset),
            (CompletionStatus::Flushed, Error::ConnectionReset),
            (CompletionStatus::Other(4), Error::from_errno(EIO)),
            (CompletionStatus::Other(1), Error::from_errno(EIO)),
        ];
        for (status, expected) in cases {
            let (mut a, mut b) = hosts.pair(RC);
            exchange(&mut a, &mut b);
            // Something that came before and is read after.
            b.send_all(&SOLO, b"before").expect("room");
            until("it has come", || a.available(&SOLO) == Ok(6));
            hosts.fabric.fail_next(hosts.a.id, status);
            a.send_all(&SOLO, b"x").expect("room");
            let memory = Memory::new(10);
            assert_eq!(a.recv_exact(&SOLO, memory.buffer().first(6)), Ok(6), "{status:?}");
            assert_eq!(a.recv(&SOLO, memory.buffer()), Err(expected), "{status:?}");
            a.close(&SOLO).expect("open");
            assert_eq!(b.recv(&SOLO, memory.buffer()), Err(Error::ConnectionReset), "{status:?}");
            b.close(&SOLO).expect("open");
            bystanders.are_well();
            hosts.a.expect_all_free();
        }
        bystanders.end();
        hosts.a.bury();
        hosts.b.bury();
    });
}

/// By chance, among many connections that move data: some fail, and those that do not are whole.
#[test]
fn failures_by_chance_hit_single_connections() {
    const LEN: usize = 200_000;
    bounded(|| {
        let settings = FabricSettings {
            failure_per_million: 20_000,
            loss_per_mille: 5,
            retry_time: Duration::from_millis(20),
            ack_timeout: Duration::from_millis(1),
            ..FabricSettings::new(14)
        };
        let hosts = Hosts::new(Fabric::with(settings));
        let (mut whole, mut broken) = (0, 0);
        for seed in 0..24 {
            let (a, mut b) = hosts.pair(RC.with_rings(16_384, 16_384));
            let sender = sending(hosts.a.net(), &a, seed, LEN);
            match receive(&mut b, seed, 0, LEN) {
                (LEN, None) => whole += 1,
                (_, Some(Error::TimedOut | Error::ConnectionReset)) => broken += 1,
                other => panic!("{other:?}"),
            }
            b.set_options(&SOLO, RC.with_linger_ms(0)).expect("open");
            b.close(&SOLO).expect("open");
            let _ = sender.join().expect("no panic");
            close(hosts.a.net(), a);
        }
        assert!(whole > 0 && broken > 0, "{whole} whole, {broken} broken");
        hosts.a.expect_all_free();
        hosts.b.expect_all_free();
        hosts.a.bury();
        hosts.b.bury();
    });
}

#[test]
fn a_peer_that_posts_receives_late_loses_nothing() {
    bounded(|| {
        let fabric = Fabric::new(15);
        let host = Host::new(&fabric);
        let sim = fabric.host();
        let listener = listen(host.net(), RC);
        let (mut peer, mut stream) = connected(&sim, &listener, Shape { receives: 8, ..Shape::PLAIN });
        const PIECE: usize = 100;
        for i in 0..40 {
            let before = fabric.counters().work_requests;
            stream.send_all(&SOLO, Memory::filled(5, i * PIECE, PIECE).buffer()).expect("room");
            // A message for each.
            until("it is posted", || fabric.counters().work_requests > before);
        }
        until("it storms", || fabric.counters().rnr > 10);
        let mut bytes = 0;
        until("everything has come", || {
            if let Some(Completion::Received { message, .. }) = peer.endpoint.poll() {
                bytes += message as usize;
                peer.endpoint.post_receive().expect("room");
            }
            bytes == 40 * PIECE
        });
        assert!(peer.received(0, bytes).into_iter().enumerate().all(|(i, byte)| byte == pattern(5, i)));
        // It works on.
        peer.data(6, 0, 10, 10);
        assert_eq!(receive(&mut stream, 6, 0, 10), (10, None));
        drop(peer);
        assert_eq!(receive(&mut stream, 6, 0, 10), (0, Some(Error::ConnectionReset)));
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        host.end();
    });
}

/// Between two of ours there is a receive for every message, whatever their sizes and times.
#[test]
fn no_message_between_two_of_ours_finds_no_receive() {
    bounded(|| {
        for (seed, ring, delay) in [(1, 4096, 0), (2, 4096, 300), (3, 65_536, 50), (4, 1 << 18, 200)] {
            let delay = Duration::ZERO..=Duration::from_micros(delay);
            let hosts = Hosts::new(Fabric::with(FabricSettings { delay, ..FabricSettings::new(seed) }));
            let (mut a, b) = hosts.pair(RC.with_rings(ring, ring));
            std::thread::scope(|scope| {
                let ends = [(hosts.a.net(), a.handle()), (hosts.b.net(), b.handle())];
                for (seed, (net, handle)) in (8..).zip(ends) {
                    scope.spawn(move || send_in_pieces(&mut open(net, handle), seed));
                }
                let [_, (net, handle)] = ends;
                scope.spawn(move || assert_eq!(receive(&mut open(net, handle), 8, 0, TOTAL), (TOTAL, None)));
                assert_eq!(receive(&mut a, 9, 0, TOTAL), (TOTAL, None));
            });
            assert_eq!(hosts.fabric.counters().rnr, 0, "rings of {ring}");
            close(hosts.a.net(), a);
            close(hosts.b.net(), b);
            hosts.end();
        }
    });
}

const TOTAL: usize = 300_000;

/// Sends pieces of every size between one byte and three thousand.
fn send_in_pieces(stream: &mut Stream, seed: u64) {
    let memory = Memory::filled(seed, 0, TOTAL);
    let mut at = 0;
    while at < TOTAL {
        let len = (1 + (at * 7 + seed as usize) % 3000).min(TOTAL - at);
        // Some of them so small that messages are many and bytes few.
        let len = if at % 5 == 0 { len.min(3) } else { len };
        stream.send_all(&SOLO, memory.buffer().slice(at, len)).expect("room");
        at += len;
    }
}
