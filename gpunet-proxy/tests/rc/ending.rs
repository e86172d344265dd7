//! Ends in order and out of it: linger, resets, attachments and proxies that stop in mid-transfer.

use crate::hosts::{Hosts, RC, open, receive, send_error, sending};
use crate::raw_peer::{Shape, connected};
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, bounded, until};
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_device::poll::POLLERR;
use gpunet_device::{Error, Shutdown, Timeout, poll};
use gpunet_proxy::FinishPolicy;
use std::time::Duration;

fn fabric(seed: u64) -> Fabric {
    let delay = Duration::ZERO..=Duration::from_micros(30);
    Fabric::with(FabricSettings { delay, ..FabricSettings::new(seed) })
}

#[test]
fn a_close_delivers_everything_to_a_slow_reader() {
    const LEN: usize = 250_000;
    bounded(|| {
        let hosts = Hosts::new(fabric(81));
        // It begins to read at once, or only after the two seconds that a closed stream waits for
        // its peer's end.
        for pause in [0, 2300] {
            let (mut a, mut b) = hosts.pair(RC.with_rings(1 << 18, 16_384));
            a.send_all(&SOLO, Memory::filled(1, 0, LEN).buffer()).expect("room in the ring");
            a.close(&SOLO).expect("open");
            std::thread::sleep(Duration::from_millis(pause));
            let mut at = 0;
            while at < LEN {
                let (n, end) = receive(&mut b, 1, at, 5000.min(LEN - at));
                assert_eq!(end, None, "after {at} bytes");
                assert!(n > 0, "an end after {at} bytes");
                at += n;
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(b.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
            b.close(&SOLO).expect("open");
            hosts.a.expect_all_free();
        }
        assert_eq!(hosts.a.world.attachment().stats().undelivered, 0);
        hosts.end();
    });
}

/// Each message takes all that the reader grants.
#[test]
fn a_close_delivers_messages_as_large_as_the_ring_to_a_reader_that_comes_later() {
    const RING: usize = 65_536;
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(87));
        let ring = RC.with_rings(RING as u64, RING as u64);
        let (mut a, mut b) = hosts.pair(ring.with_linger_ms(3000));
        a.send_all(&SOLO, Memory::filled(1, 0, 2 * RING).buffer()).expect("room in the ring");
        until("the second one waits", || a.out_queue(&SOLO) == Ok(RING as u64));
        assert_eq!(receive(&mut b, 1, 0, RING), (RING, None));
        a.close(&SOLO).expect("open");
        // The reader goes on when the close has ended: nothing is left to be done for it.
        hosts.a.expect_all_free();
        assert_eq!(receive(&mut b, 1, RING, usize::MAX), (RING, None));
        b.close(&SOLO).expect("open");
        assert_eq!(hosts.a.world.attachment().stats().undelivered, 0);
        hosts.end();
    });
}

#[test]
fn both_ends_close_at_once() {
    bounded(|| {
        let hosts = Hosts::new(fabric(82));
        for turn in 0..40 {
            let (mut a, mut b) = hosts.pair(RC.with_rings(4096, 4096));
            if turn % 2 == 0 {
                a.send_all(&SOLO, b"unread").expect("room");
                b.send_all(&SOLO, b"unread").expect("room");
            }
            a.close(&SOLO).expect("open");
            b.close(&SOLO).expect("open");
        }
        hosts.end();
    });
}

#[test]
fn halves_are_closed_one_after_the_other() {
    bounded(|| {
        let hosts = Hosts::new(fabric(83));
        let (mut a, mut b) = hosts.pair(RC);
        a.send_all(&SOLO, Memory::filled(1, 0, 5000).buffer()).expect("room");
        a.shutdown(&SOLO, Shutdown::Write);
        assert_eq!(receive(&mut b, 1, 0, usize::MAX), (5000, None));
        let back = sending(hosts.b.net(), &b, 2, 1 << 20);
        assert_eq!(receive(&mut a, 2, 0, 1 << 20), (1 << 20, None));
        assert_eq!(back.join().expect("no panic"), Ok(()));
        let mut b = open(hosts.b.net(), b.handle());
        b.shutdown(&SOLO, Shutdown::Write);
        assert_eq!(a.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
        a.close(&SOLO).expect("open");
        b.close(&SOLO).expect("open");
        hosts.end();
    });
}

#[test]
fn a_close_without_linger_resets() {
    bounded(|| {
        let hosts = Hosts::new(fabric(84));
        for _ in 0..10 {
            let (mut a, mut b) = hosts.pair(RC.with_linger_ms(0));
            a.send_all(&SOLO, b"hello").expect("room");
            let memory = Memory::new(5);
            assert_eq!(b.recv_exact(&SOLO, memory.buffer()), Ok(5));
            a.close(&SOLO).expect("open");
            assert_eq!(b.recv(&SOLO, memory.buffer()), Err(Error::ConnectionReset));
            assert_eq!(send_error(&mut b), Error::ConnectionReset);
            b.close(&SOLO).expect("open");
        }
        hosts.a.expect_all_free();
        hosts.b.expect_all_free();
        // A peer that knows no resets just sees it go.
        let sim = hosts.fabric.host();
        let listener = listen(hosts.b.net(), RC.with_linger_ms(0));
        let (mut peer, stream) = connected(&sim, &listener, Shape::PLAIN);
        stream.close(&SOLO).expect("open");
        until("it hears", || peer.endpoint.is_disconnected());
        assert!(peer.endpoint.poll().is_none(), "no message that it would not know");
        listener.close(&SOLO).expect("open");
        hosts.a.bury();
        hosts.b.bury();
    });
}

/// Nothing is read after the end, and a kernel that waits for something else sends nothing either.
#[test]
fn a_reset_after_the_end_is_told_to_who_only_polls() {
    bounded(|| {
        let hosts = Hosts::new(fabric(89));
        let (mut a, mut b) = hosts.pair(RC.with_linger_ms(0));
        a.send_all(&SOLO, b"hello").expect("room");
        a.shutdown(&SOLO, Shutdown::Write);
        let memory = Memory::new(10);
        assert_eq!(b.recv_exact(&SOLO, memory.buffer()), Ok(5));
        a.close(&SOLO).expect("open");
        let set = PollMemory::new(&[(b.handle().raw(), 0)]);
        assert_eq!(poll(&SOLO, hosts.b.net(), set.set(), Timeout::NEVER), Ok(1));
        assert_eq!(set.found(0), POLLERR);
        assert_eq!(b.recv(&SOLO, memory.buffer()), Ok(0), "what was received ended in good order");
        b.close(&SOLO).expect("open");
        hosts.a.expect_all_free();
        hosts.b.expect_all_free();
        hosts.a.bury();
        hosts.b.bury();
    });
}

/// A reader that never reads: what it did not take is counted, and the rings come back.
#[test]
fn linger_ends_and_says_what_was_lost() {
    bounded(|| {
        let hosts = Hosts::new(fabric(85));
        let (mut a, mut b) = hosts.pair(RC.with_rings(65_536, 4096).with_linger_ms(100));
        a.send_all(&SOLO, Memory::filled(1, 0, 40_000).buffer()).expect("room in the ring");
        a.close(&SOLO).expect("open");
        hosts.a.expect_all_free();
        let undelivered = hosts.a.world.attachment().stats().undelivered;
        assert!((1..=40_000 - 4096).contains(&undelivered), "{undelivered}");
        let (read, end) = receive(&mut b, 1, 0, usize::MAX);
        assert_eq!(end, Some(Error::ConnectionReset));
        assert!(read as u64 + undelivered >= 40_000, "{read} + {undelivered}");
        b.close(&SOLO).expect("open");
        hosts.b.expect_all_free();
        hosts.a.bury();
        hosts.b.end();
    });
}

#[test]
fn an_attachment_that_is_closed_in_mid_transfer_delivers_what_it_took() {
    bounded(|| {
        let hosts = Hosts::new(fabric(86));
        let (a, mut b) = hosts.pair(RC.with_rings(65_536, 16_384));
        let sender = sending(hosts.a.net(), &a, 1, 64 << 20);
        assert_eq!(receive(&mut b, 1, 0, 1 << 20), (1 << 20, None));
        let (proxy, attachment, token) = hosts.a.world.apart();
        token.cancel();
        assert_eq!(sender.join().expect("no panic"), Err(Error::Canceled));
        let closing = std::thread::spawn(move || {
            assert_eq!(token.finish(FinishPolicy::Close).left_open, 1);
            attachment.close()
        });
        let (more, end) = receive(&mut b, 1, 1 << 20, usize::MAX);
        assert_eq!(end, None, "after {more} bytes more");
        b.close(&SOLO).expect("open");
        let report = closing.join().expect("no panic");
        assert_eq!((report.undelivered, report.unfinished), (0, 0));
        drop(proxy);
        hosts.b.end();
    });
}

#[test]
fn an_attachment_that_is_dropped_with_all_its_streams() {
    bounded(|| {
        let hosts = Hosts::new(fabric(87));
        let mut ends: Vec<_> = (0..8).map(|_| hosts.pair(RC.with_rings(16_384, 16_384))).collect();
        for (seed, (a, b)) in (0..).zip(&mut ends) {
            a.send_all(&SOLO, Memory::filled(seed, 0, 10_000).buffer()).expect("room");
            b.send_all(&SOLO, b"which nobody reads").expect("room");
        }
        let (proxy, attachment, token) = hosts.a.world.apart();
        drop(token);
        let dropped = std::thread::spawn(move || drop((attachment, proxy)));
        for (seed, (_, b)) in (0..).zip(&mut ends) {
            assert_eq!(receive(b, seed, 0, usize::MAX), (10_000, None));
        }
        for (_, b) in ends {
            b.close(&SOLO).expect("open");
        }
        dropped.join().expect("no panic");
        let usage = hosts.fabric.usage(hosts.a.id);
        assert_eq!((usage.queue_pairs, usage.memory_regions), (0, 0));
        hosts.b.end();
    });
}

#[test]
fn a_proxy_that_stops_resets_its_peers() {
    bounded(|| {
        let hosts = Hosts::new(fabric(88));
        let (a, mut b) = hosts.pair(RC);
        let (_idle, mut other) = hosts.pair(RC);
        let sender = sending(hosts.a.net(), &a, 1, 64 << 20);
        assert_eq!(receive(&mut b, 1, 0, 1 << 20), (1 << 20, None));
        hosts.a.world.proxy.abort();
        assert_eq!(sender.join().expect("no panic"), Err(Error::NetworkDown));
        let (_, end) = receive(&mut b, 1, 1 << 20, usize::MAX);
        assert_eq!(end, Some(Error::ConnectionReset));
        assert_eq!(other.recv(&SOLO, Memory::new(1).buffer()), Err(Error::ConnectionReset));
        b.close(&SOLO).expect("open");
        other.close(&SOLO).expect("open");
        let usage = hosts.fabric.usage(hosts.a.id);
        assert_eq!((usage.queue_pairs, usage.identifiers), (0, 0));
        hosts.a.bury();
        hosts.b.end();
    });
}

/// Both ends stop at once, with everything in flight.
#[test]
fn two_proxies_that_stop_at_once() {
    bounded(|| {
        for seed in 0..5 {
            let hosts = Hosts::new(fabric(seed));
            let (a, b) = hosts.pair(RC.with_rings(16_384, 16_384));
            let there = sending(hosts.a.net(), &a, 1, 64 << 20);
            let back = sending(hosts.b.net(), &b, 2, 64 << 20);
            let (net, handle) = (hosts.b.net(), b.handle());
            let reader = std::thread::spawn(move || receive(&mut open(net, handle), 1, 0, usize::MAX));
            let messages = hosts.fabric.counters().messages;
            until("both rings are under way", || hosts.fabric.counters().messages >= messages + 20);
            std::thread::scope(|scope| {
                scope.spawn(|| hosts.a.world.proxy.abort());
                scope.spawn(|| hosts.b.world.proxy.abort());
            });
            assert!(there.join().expect("no panic").is_err());
            assert!(back.join().expect("no panic").is_err());
            assert!(reader.join().expect("no panic").1.is_some());
            let ids = [hosts.a.id, hosts.b.id];
            hosts.a.bury();
            hosts.b.bury();
            for id in ids {
                assert_eq!(hosts.fabric.usage(id), Default::default());
            }
        }
    });
}
