//! The simulated card alone: its timers and limits, and that it repeats itself.

use crate::buffer::Rings;
use crate::world::{DEPTH, End, Pair, RING, World};
use gpunet_core::verbs::sim::{Counters, Fabric, FabricSettings, HostId};
use gpunet_core::verbs::{Completion, CompletionStatus, Depth, Op, RingMemory, Source, Verbs};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const LOCALHOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// What a heartbeat posts.
pub const NOTHING: Op = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };

/// A network, its two hosts (client first), and the world over them.
pub fn world(settings: FabricSettings) -> (Fabric, [HostId; 2], World) {
    let fabric = Fabric::with(settings);
    let (client, server) = (fabric.host(), fabric.host());
    let hosts = [client.id(), server.id()];
    (fabric, hosts, World::new("sim", Box::new(client), Box::new(server), LOCALHOST))
}

pub fn roce() -> FabricSettings {
    FabricSettings::new(1)
}

#[test]
fn the_rnr_timer_decides_how_long_a_message_waits() {
    let mut took = [Duration::ZERO; 2];
    for (shortens, took) in [false, true].into_iter().zip(&mut took) {
        let (fabric, _, world) = world(roce());
        let depth = Depth { sends: 8, receives: 1 };
        let Pair { mut client, mut server } =
            world.connect_with(&Rings::new(RING, 1), &Rings::new(RING, 2), depth);
        if shortens {
            server.endpoint.shorten_rnr_timer().unwrap();
        }
        client.tell(1, 1);
        let start = Instant::now();
        client.tell(2, 2);
        assert!(fabric.counters().rnr > 0);
        assert_eq!(server.next_message().0, 1);
        server.endpoint.post_receive().unwrap();
        assert_eq!(server.next_message().0, 2);
        *took = start.elapsed();
        assert_eq!(client.next_sent(), (1, CompletionStatus::Success));
        assert_eq!(client.next_sent(), (2, CompletionStatus::Success));
    }
    assert!(took[0] >= Duration::from_millis(655), "{took:?}");
    assert!(took[1] < Duration::from_millis(600), "{took:?}");
}

#[test]
fn a_message_without_a_receive_ends_an_iwarp_connection() {
    let (_, _, world) = world(FabricSettings { iwarp: true, ..roce() });
    let depth = Depth { sends: 8, receives: 1 };
    let Pair { mut client, mut server } =
        world.connect_with(&Rings::new(RING, 1), &Rings::new(RING, 2), depth);
    client.tell(1, 1);
    client.tell(2, 2);
    client.wait_for_end();
    server.wait_for_end();
    assert_eq!(server.next_message().0, 1, "what came before is still there");
}

#[test]
fn an_iwarp_card_has_no_immediate_data() {
    let (_, _, world) = world(FabricSettings { iwarp: true, ..roce() });
    let Pair { mut client, server } = world.connect();
    let op = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: Some(1) };
    let error = client.endpoint.post(&gpunet_core::verbs::WorkRequest { id: 1, op }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    drop(server);
}

#[test]
fn the_memory_limit_is_named() {
    let (_, _, world) = world(FabricSettings { memory_limit: 3 * RING as u64, ..roce() });
    let prepare = |handshake: &mut dyn gpunet_core::verbs::Handshake| {
        handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH)
    };
    let (mut first, mut second) = (world.resolve(world.address()), world.resolve(world.address()));
    prepare(&mut *first).unwrap();
    let error = prepare(&mut *second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("locked-memory limit"), "{error}");
    // The first one's registration is kept for later, and goes when there is no room for another.
    drop(first);
    prepare(&mut *second).unwrap();
}

#[test]
fn a_dma_buf_is_mapped_where_the_card_can() {
    let rings = Rings::new(RING, 1);
    let fd = rustix::fs::memfd_create("ring", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&fd, 2 * RING as u64).expect("room");
    let fd = Arc::new(fd);
    let mut memory = rings.memory();
    // A GPU's address: the CPU has nothing there.
    memory.recv_ring.address = 0x7f00_0000_0000_0000;
    memory.recv_ring.memory = RingMemory::DmaBuf { fd: fd.clone(), offset: RING as u64 };
    let (_, _, plain) = world(roce());
    let error = plain.resolve(plain.address()).prepare(&memory, DEPTH).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    let (_, _, world) = world(FabricSettings { dma_buf: true, ..roce() });
    let (addr, mut listening) = world.listen(1);
    let mut handshake = world.resolve(addr);
    let keys = handshake.prepare(&memory, DEPTH).unwrap();
    let connecting = handshake.connect(&[]);
    let mut passive = listening.next().expect("a request").handshake;
    let server = Rings::new(RING, 2);
    let server_keys = passive.prepare(&server.memory(), DEPTH).unwrap();
    let accepting = passive.accept(&[]);
    let (accepted, connected) = world.wait(async { tokio::join!(accepting, connecting) });
    let (endpoint, connected) = (accepted.unwrap(), connected.unwrap());
    let mut server =
        End { endpoint, rings: server, keys: server_keys, private_data: Vec::new(), iwarp: false };
    server.rings.send.put(100, b"through the descriptor");
    server.write(1, (100, 22), (memory.recv_ring.address, keys.recv_rkey), 1);
    assert_eq!(server.next_sent(), (1, CompletionStatus::Success));
    let mut bytes = [0; 22];
    rustix::io::pread(&fd, &mut bytes, RING as u64 + 100).expect("read back");
    assert_eq!(&bytes, b"through the descriptor");
    drop(connected);
}

#[test]
fn reconnecting_registers_nothing_new() {
    let fabric = Fabric::new(1);
    let world = World::new("sim", fabric.verbs(), fabric.verbs(), LOCALHOST);
    let rings = (Rings::new(RING, 1), Rings::new(RING, 2));
    drop(world.connect_with(&rings.0, &rings.1, DEPTH));
    let usage = (world.client.usage(), world.server.usage());
    let made = fabric.counters().registrations;
    assert_eq!(made, 6);
    for _ in 0..10 {
        drop(world.connect_with(&rings.0, &rings.1, DEPTH));
    }
    assert_eq!(fabric.counters().registrations, made);
    assert_eq!((world.client.usage(), world.server.usage()), usage);
}

#[test]
fn a_full_backlog_refuses() {
    let (_, _, world) = world(roce());
    let (addr, _listening) = world.listen(1);
    let connect = || {
        let mut handshake = world.resolve(addr);
        handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
        handshake.connect(&[])
    };
    let waiting = connect();
    assert_eq!(world.wait(connect()).err().unwrap().kind(), ErrorKind::ConnectionRefused);
    drop(waiting);
    let waits = tokio::time::Duration::from_millis(20);
    let connecting = connect();
    assert!(
        world.wait(async { tokio::time::timeout(waits, connecting).await }).is_err(),
        "there is room again"
    );
}

#[test]
fn a_client_that_has_gone_is_not_shown() {
    let (_, _, world) = world(roce());
    let (addr, mut listening) = world.listen(4);
    let mut handshake = world.resolve(addr);
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    drop(handshake.connect(&[]));
    assert_eq!(listening.next().err().unwrap().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_wildcard_listener_answers_for_every_address() {
    let fabric = Fabric::new(1);
    let host = fabric.host();
    let mut listening = host.listen("[::]:4000".parse().unwrap(), 4).unwrap();
    for to in ["192.0.2.7:4000", "[2001:db8::1]:4000"] {
        let world = World::new("sim", fabric.verbs(), fabric.verbs(), LOCALHOST);
        let mut handshake = world.resolve(to.parse().unwrap());
        handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
        let local = handshake.local();
        let _connecting = handshake.connect(&[]);
        let request = listening.next().expect("a request");
        assert_eq!((request.handshake.local(), request.handshake.peer()), (to.parse().unwrap(), local));
    }
}

#[test]
fn after_a_drop_the_ring_is_left_alone() {
    let delay = Duration::from_millis(100)..=Duration::from_millis(120);
    let (_, _, world) = world(FabricSettings { delay, ..roce() });
    let Pair { mut client, server } = world.connect();
    client.rings.send.put(0, &[7; 1024]);
    for id in 0..10 {
        client.write(id, (0, 1024), server.target(), 1);
    }
    let ring = server.rings.recv.clone();
    drop(server);
    let before = ring.get(0, RING);
    // Longer than the longest delay.
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(ring.get(0, RING), before);
    assert_eq!(client.next_sent().1, CompletionStatus::RetryExceeded);
}

#[test]
fn a_refused_write_puts_both_queue_pairs_into_error() {
    let (_, _, world) = world(roce());
    let Pair { mut client, mut server } = world.connect();
    server.tell(1, 1);
    let from = Source::Ring([(client.rings.send.address(), 1), (0, 0)]);
    client.post(1, Op::Write { from, to: 64, rkey: 64, immediate: None });
    assert_eq!(client.next_message().0, 1);
    assert_eq!(client.next_sent(), (1, CompletionStatus::RemoteRefused));
    assert_eq!(server.next(), Completion::Sent { id: 1, status: CompletionStatus::Success });
    for end in [&mut client, &mut server] {
        end.post(2, NOTHING);
        let mut flushed = 0;
        loop {
            match end.next() {
                Completion::Flushed => flushed += 1,
                other => {
                    break assert_eq!(other, Completion::Sent { id: 2, status: CompletionStatus::Flushed });
                }
            }
        }
        assert!(flushed >= DEPTH.receives - 1, "{flushed}");
        end.endpoint.post_receive().unwrap();
        assert_eq!(end.next(), Completion::Flushed);
        assert!(!end.endpoint.is_disconnected());
    }
}

#[test]
fn the_senders_own_memory_is_checked_too() {
    let (_, _, world) = world(roce());
    let Pair { mut client, server } = world.connect();
    let (to, rkey) = server.target();
    let from = Source::Ring([(client.rings.send.address() + RING as u64 - 1, 2), (0, 0)]);
    client.post(1, Op::Write { from, to, rkey, immediate: None });
    assert_eq!(client.next_sent(), (1, CompletionStatus::Other(4)));
}

#[test]
fn what_completed_before_arming_raises_no_event() {
    let (_, _, world) = world(roce());
    let Pair { mut client, mut server } = world.connect();
    client.tell(1, 1);
    server.endpoint.arm().unwrap();
    assert!(!is_readable(&*server.endpoint), "who does not poll after arming sleeps for ever");
    client.tell(2, 2);
    assert!(is_readable(&*server.endpoint));
}

fn is_readable(endpoint: &dyn gpunet_core::verbs::Endpoint) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fds = endpoint.readiness();
    poll(&mut [PollFd::new(&fds[0], PollFlags::IN)], Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
}

#[test]
fn many_threads_share_a_network() {
    let delay = Duration::ZERO..=Duration::from_micros(30);
    let fabric = Fabric::with(FabricSettings { delay, ..roce() });
    let threads = [1, 2, 3, 4].map(|_| {
        let fabric = fabric.clone();
        std::thread::spawn(move || {
            let world = World::new("sim", fabric.verbs(), fabric.verbs(), LOCALHOST);
            for _ in 0..5 {
                crate::moving::ring_writes_arrive_byte_for_byte(&world);
                crate::moving::descriptors_arrive_in_the_table(&world);
            }
        })
    });
    for thread in threads {
        thread.join().expect("no thread fails");
    }
    assert_eq!(fabric.counters().messages, 4 * 5 * 8);
}

/// Reports how a long exchange on a bad network went.
fn exchange(seed: u64) -> Counters {
    let delay = Duration::ZERO..=Duration::from_micros(200);
    let (fabric, _, world) = world(FabricSettings { delay, loss_per_mille: 30, ..FabricSettings::new(seed) });
    let Pair { mut client, mut server } = world.connect();
    for round in 0..200_u32 {
        let len = 1 + round * 7 % 900;
        client.write(1, (0, len), server.target(), round);
        assert_eq!(server.next_message(), (round, Some(len)));
        assert_eq!(client.next_sent().1, CompletionStatus::Success);
        server.endpoint.post_receive().unwrap();
    }
    fabric.counters()
}

#[test]
fn the_same_seed_does_the_same() {
    let first = exchange(5);
    assert_eq!(first, exchange(5));
    assert!(first.retries > 0);
    assert_ne!(first.retries, exchange(6).retries);
}
