//! The other host's process is killed, or the host loses its power.

use crate::hosts::{Bystanders, Host, Hosts, RC, close, config, open, pair, receive, send_error, sending};
use crate::raw_peer::{RawPeer, Shape, connected};
use crate::support::asleep::spawn_asleep;
use crate::support::world::listen;
use crate::support::{Memory, PollMemory, SOLO, bounded, until};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::poll::{POLLERR, POLLIN};
use gpunet_device::{Error, Stream, Timeout, poll};
use gpunet_proxy::Config;
use std::time::{Duration, Instant};

/// No end of a connection takes nearly so long to be noticed.
const SOON: Duration = Duration::from_secs(20);

/// A sender that gives up: of a host that is dead nobody hears.
fn send_into_silence(host: &Host, stream: &Stream, seed: u64) -> std::thread::JoinHandle<()> {
    let (net, handle) = (host.net(), stream.handle());
    std::thread::spawn(move || {
        let mut stream = open(net, handle);
        let memory = Memory::filled(seed, 0, 16 << 20);
        let mut rest = memory.buffer();
        while let Ok(n) = stream.sender().send_timeout(&SOLO, rest, Timeout::ms(300)) {
            rest = rest.skip(n);
        }
    })
}

#[test]
fn a_killed_peer_is_told_after_the_data_before_it() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(1));
        let mut bystanders = Bystanders::of(&hosts.b);
        let (mut peer, mut stream) = hosts.pair(RC);
        peer.send_all(&SOLO, Memory::filled(1, 0, 1000).buffer()).expect("room");
        until("it has come", || stream.available(&SOLO) == Ok(1000));
        hosts.fabric.kill(hosts.a.id);
        assert_eq!(receive(&mut stream, 1, 0, 1000), (1000, None));
        for _ in 0..3 {
            assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Err(Error::ConnectionReset));
        }
        let set = PollMemory::new(&[(stream.handle().raw(), POLLIN)]);
        assert_eq!(poll(&SOLO, hosts.b.net(), set.set(), Timeout::NEVER), Ok(1));
        assert!(set.found(0) & POLLERR != 0);
        assert_eq!(send_error(&mut stream), Error::ConnectionReset);
        stream.close(&SOLO).expect("open");
        bystanders.are_well();
        bystanders.end();
        hosts.a.bury();
        hosts.b.expect_all_free();
        hosts.b.bury();
    });
}

#[test]
fn a_receiver_that_waits_hears_of_a_killed_peer() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(2));
        let (_peer, stream) = hosts.pair(RC);
        let (net, handle) = (hosts.b.net(), stream.handle());
        let waiting = spawn_asleep(move || open(net, handle).recv(&SOLO, Memory::new(9).buffer()));
        hosts.fabric.kill(hosts.a.id);
        assert_eq!(waiting.join().expect("no panic"), Err(Error::ConnectionReset));
        close(hosts.b.net(), stream);
        hosts.a.bury();
        hosts.b.expect_all_free();
        hosts.b.bury();
    });
}

#[test]
fn a_peer_killed_while_it_sends() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(3));
        let mut bystanders = Bystanders::of(&hosts.b);
        let (peer, mut stream) = hosts.pair(RC);
        let silent = send_into_silence(&hosts.a, &peer, 3);
        assert_eq!(receive(&mut stream, 3, 0, 1 << 20), (1 << 20, None));
        hosts.fabric.kill(hosts.a.id);
        let (_, end) = receive(&mut stream, 3, 1 << 20, usize::MAX);
        assert_eq!(end, Some(Error::ConnectionReset));
        bystanders.are_well();
        stream.close(&SOLO).expect("open");
        bystanders.end();
        silent.join().expect("no panic");
        hosts.a.bury();
        hosts.b.expect_all_free();
        hosts.b.bury();
    });
}

#[test]
fn a_sender_blocked_on_a_full_ring_hears_of_a_killed_peer() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(4));
        let mut bystanders = Bystanders::of(&hosts.b);
        let (_peer, stream) = hosts.pair(RC.with_rings(16_384, 16_384));
        let before = hosts.fabric.counters().bytes;
        let blocked = sending(hosts.b.net(), &stream, 4, 1 << 20);
        until("the peer's ring is full", || hosts.fabric.counters().bytes >= before + 16_384);
        bystanders.are_well();
        hosts.fabric.kill(hosts.a.id);
        assert_eq!(blocked.join().expect("no panic"), Err(Error::ConnectionReset));
        close(hosts.b.net(), stream);
        bystanders.end();
        hosts.a.bury();
        hosts.b.expect_all_free();
        hosts.b.bury();
    });
}

/// A stream whose peer has room for one message: all that its send ring holds then is under way,
/// and nothing is left to offer that the transport could refuse. `ends` is what its peer does; a
/// block that waits for room gets EPIPE.
fn expect_that_a_full_ring_breaks(seed: u64, ends: impl FnOnce(RawPeer, &mut Stream)) {
    let hosts = Hosts::new(Fabric::new(seed));
    let mut bystanders = Bystanders::of(&hosts.b);
    let listener = listen(hosts.b.net(), RC.with_rings(4096, 4096));
    let one = Shape { receives: 1, ..Shape::PLAIN };
    let (peer, mut stream) = connected(&hosts.fabric.host(), &listener, one);
    // Messages have a quarter of the ring.
    assert_eq!(stream.send_all(&SOLO, Memory::filled(seed, 0, 1024 + 4096).buffer()), Ok(()));
    let (net, handle, more) = (hosts.b.net(), stream.handle(), Memory::new(1));
    let blocked = spawn_asleep(move || open(net, handle).send(&SOLO, more.buffer()));
    ends(peer, &mut stream);
    assert_eq!(blocked.join().expect("no panic"), Err(Error::BrokenPipe));
    bystanders.are_well();
    stream.close(&SOLO).expect("open");
    listener.close(&SOLO).expect("open");
    bystanders.end();
    hosts.b.expect_all_free();
    hosts.b.bury();
    hosts.a.bury();
}

#[test]
fn a_sender_blocked_on_a_full_ring_hears_of_an_orderly_end() {
    const DISCONNECT: u32 = 0xe000_0000;
    bounded(|| {
        expect_that_a_full_ring_breaks(8, |mut peer, stream| {
            peer.message(DISCONNECT);
            assert_eq!(stream.recv(&SOLO, Memory::new(1).buffer()), Ok(0));
        });
    });
}

/// The end of the stream cannot land, and a block that sends does not read.
#[test]
fn a_sender_with_both_rings_full_hears_of_a_killed_peer() {
    bounded(|| {
        expect_that_a_full_ring_breaks(9, |mut peer, stream| {
            peer.data(9, 0, 4096, 4096);
            until("its ring is full", || stream.available(&SOLO) == Ok(4096));
        });
    });
}

#[test]
fn an_idle_connection_notices_that_the_peer_has_no_power() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(5));
        let bystanders = Bystanders::of(&hosts.b);
        let (mut peer, mut stream) = hosts.pair(RC);
        peer.send_all(&SOLO, b"last words").expect("room");
        until("they have come", || stream.available(&SOLO) == Ok(10));
        hosts.fabric.power_off(hosts.a.id);
        let start = Instant::now();
        let memory = Memory::new(10);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(10));
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(Error::TimedOut));
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        stream.close(&SOLO).expect("open");
        bystanders.end();
        hosts.a.bury();
        hosts.b.expect_all_free();
        hosts.b.bury();
    });
}

#[test]
fn power_lost_while_data_is_under_way() {
    bounded(|| {
        let hosts = Hosts::new(Fabric::new(6));
        let mut bystanders = Bystanders::of(&hosts.b);
        let (mut peer, stream) = hosts.pair(RC);
        let sender = sending(hosts.b.net(), &stream, 6, 64 << 20);
        assert_eq!(receive(&mut peer, 6, 0, 1 << 20), (1 << 20, None));
        let start = Instant::now();
        hosts.fabric.power_off(hosts.a.id);
        // It reads on, unaware: only its card is silent.
        let (_, end) = receive(&mut peer, 6, 1 << 20, usize::MAX);
        assert_eq!(end, Some(Error::TimedOut), "its own signs of life go unanswered");
        assert_eq!(sender.join().expect("no panic"), Err(Error::TimedOut));
        assert!(start.elapsed() < SOON);
        bystanders.are_well();
        close(hosts.b.net(), stream);
        bystanders.end();
        hosts.b.expect_all_free();
        hosts.a.bury();
        hosts.b.bury();
    });
}

#[test]
fn a_deadline_is_kept_whatever_became_of_the_peer() {
    bounded(|| {
        let fabric = Fabric::new(7);
        let slow = || Config { rc_keepalive: Duration::from_secs(600), ..config(&fabric) };
        let (a, b) = (Host::with(&fabric, slow()), Host::with(&fabric, slow()));
        let (_peer, mut stream) = pair(a.net(), b.net(), RC);
        fabric.power_off(a.id);
        let memory = Memory::new(10);
        for _ in 0..3 {
            assert_eq!(
                stream.receiver().recv_timeout(&SOLO, memory.buffer(), Timeout::ms(20)),
                Err(Error::TimedOut)
            );
            // That was the caller's limit, not the connection's end.
            assert_eq!(stream.try_recv(&SOLO, memory.buffer()), Err(Error::WouldBlock));
        }
        stream.set_options(&SOLO, RC.with_linger_ms(0)).expect("open");
        stream.close(&SOLO).expect("open");
        b.expect_all_free();
        a.bury();
        b.bury();
    });
}
