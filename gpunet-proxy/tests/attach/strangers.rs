//! Programs that do not keep to the protocol: each loses its own connection, and nobody else
//! notices.

use crate::raw::{AgentAnswer, Device, First, Raw, ToDaemon, Want, Wish, bytes, gpu, hello, wish};
use crate::support::daemon::Served;
use crate::support::{bounded, small, until};
use gpunet_device::abi::control::Request;
use gpunet_proxy::{Attachment, DaemonError, attach};
use std::time::{Duration, Instant};

const FIRST_REQUEST: u32 = 1 << 31;

/// A daemon, and a client of it that keeps to the rules.
fn served() -> (Served, Attachment) {
    let served = Served::new(small());
    let attachment = served.attached();
    (served, attachment)
}

/// Checks that the good client is served, and that it is the only one left.
fn undisturbed((served, attachment): (Served, Attachment)) {
    let token = attachment.token().expect("a number");
    let _listener = crate::support::world::listen(token.net(), gpunet_device::Options::DEFAULT);
    assert_eq!(token.finish(Default::default()).left_open, 1);
    served.expect_clients(1);
    assert_eq!(attachment.close().undelivered, 0);
    served.expect_clients(0);
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    bounded(|| {
        let good = served();
        let raw = Raw::connect(&good.0.path);
        let mut other = hello(&Want::Probe);
        other[4] = 6;
        other.extend([1, 2, 3]);
        raw.send(&other);
        let Some(First::Refused { errno, reason }) = raw.first() else { panic!("not refused") };
        assert_eq!(errno, 93, "EPROTONOSUPPORT");
        assert!(reason.contains("version 5 ") && reason.contains("this program 6"), "{reason}");
        raw.expect_closed();
        undisturbed(good);
    });
}

#[test]
fn a_daemon_of_another_version_is_told_from_one_that_is_none() {
    bounded(|| {
        for (answer, version) in [(*b"gpnd\x07\0\0\0\0\x01\0", Some(7)), (*b"hello world", None)] {
            let dir = crate::support::daemon::TempDir::new();
            let path = dir.join("sock");
            let listener = crate::support::daemon::listener(&path);
            let serve = std::thread::spawn(move || {
                let socket = rustix::net::accept(&listener).expect("a program");
                rustix::net::send(&socket, &answer, rustix::net::SendFlags::empty()).expect("sent");
            });
            match (attach(&path, small()).unwrap_err(), version) {
                (DaemonError::Version { daemon, program: 5 }, Some(version)) => assert_eq!(daemon, version),
                (DaemonError::Strange { .. }, None) => {}
                (error, _) => panic!("{error}"),
            }
            serve.join().expect("no panic");
        }
    });
}

#[test]
fn a_hello_must_come_soon() {
    bounded(|| {
        let good = served();
        let raw = Raw::connect(&good.0.path);
        let start = Instant::now();
        raw.expect_closed();
        let took = start.elapsed();
        assert!((4..8).contains(&took.as_secs()), "{took:?}");
        undisturbed(good);
    });
}

#[test]
fn connections_without_a_hello_are_bounded() {
    bounded(|| {
        let good = served();
        let idle: Vec<_> = (0..64).map(|_| Raw::connect(&good.0.path)).collect();
        // One more is closed at once.
        Raw::connect(&good.0.path).expect_closed();
        drop(idle);
        until("there is room again", || attach(&good.0.path, small()).is_ok());
        undisturbed(good);
    });
}

#[test]
fn connections_that_look_are_bounded_and_in_nobodys_way() {
    bounded(|| {
        let good = served();
        let look = || {
            let raw = Raw::connect(&good.0.path);
            raw.send(&hello(&Want::Admin));
            let first = raw.first();
            (raw, first)
        };
        let looking: Vec<_> = (0..8).map(|_| look()).collect();
        assert!(looking.iter().all(|(_, first)| matches!(first, Some(First::Ready { .. }))));
        let Some(First::Refused { errno: 11, reason }) = look().1 else { panic!("not refused") };
        assert!(reason.contains("too many connections that look"), "{reason}");
        // As many snapshots as it likes, one after the other.
        let (raw, _) = &looking[0];
        (0..20).for_each(|_| raw.send(&bytes(&ToDaemon::Snapshot)));
        (0..20).for_each(|_| assert!(raw.next().is_some()));
        drop(looking);
        until("there is room again", || matches!(look().1, Some(First::Ready { .. })));
        undisturbed(good);
    });
}

#[test]
fn garbage_closes_that_connection_only() {
    bounded(|| {
        let good = served();
        let path = good.0.path.clone();
        let want = hello(&Want::Attach(wish()));
        let mut long = want.clone();
        long.push(0);
        let too_long = vec![0; (1 << 16) + 1];
        let first: [&[u8]; 6] = [b"x", b"gpnd", &want[..want.len() - 1], &long, &too_long, &[0xff; 4096]];
        for garbage in first {
            let raw = Raw::connect(&path);
            raw.send(garbage);
            raw.expect_closed();
        }
        let truncated = bytes(&ToDaemon::Usage { call: 300 });
        let then: [&[u8]; 5] = [b"\xff", &[2], &truncated[..2], &too_long, &[0; 1000]];
        for garbage in then {
            let raw = Raw::attached(&path);
            raw.send(garbage);
            raw.expect_closed();
        }
        undisturbed(good);
    });
}

#[test]
fn frames_out_of_turn_close_the_connection() {
    bounded(|| {
        let good = served();
        let path = good.0.path.clone();
        let request = |number| ToDaemon::Ask { number, request: vec![0; size_of::<Request>()] };
        let out_of_turn: Vec<Vec<Vec<u8>>> = vec![
            // A second hello, an admin's frame, requests and calls under each other's numbers, half
            // a request.
            vec![hello(&Want::Attach(wish()))],
            vec![bytes(&ToDaemon::Snapshot)],
            vec![bytes(&request(3))],
            vec![bytes(&ToDaemon::Abandon { number: 17 })],
            vec![bytes(&ToDaemon::Ask { number: FIRST_REQUEST, request: vec![0; 191] })],
            vec![bytes(&ToDaemon::Usage { call: FIRST_REQUEST })],
            // What its agent was not asked.
            vec![bytes(&ToDaemon::Agent(AgentAnswer::Mapped { arena: 1 }))],
            vec![bytes(&ToDaemon::Agent(AgentAnswer::Failed { arena: 0, reason: "x".repeat(60_000) }))],
        ];
        for frames in out_of_turn {
            let raw = Raw::attached(&path);
            frames.iter().for_each(|frame| raw.try_send(frame));
            raw.expect_closed();
        }
        // What may not come before a hello.
        for frame in [ToDaemon::Detach, ToDaemon::ResetAll, request(FIRST_REQUEST)] {
            let raw = Raw::connect(&path);
            raw.send(&bytes(&frame));
            raw.expect_closed();
        }
        undisturbed(good);
    });
}

#[test]
fn requests_of_garbage_are_answered_with_errors() {
    bounded(|| {
        let good = served();
        let raw = Raw::attached(&good.0.path);
        for at in 0..100u32 {
            let request = (0..size_of::<Request>()).map(|i| (at as usize * 31 + i * 7) as u8).collect();
            raw.send(&bytes(&ToDaemon::Ask { number: FIRST_REQUEST | at, request }));
        }
        for _ in 0..100 {
            let reply = raw.next().expect("still served");
            // Reply is the sixth frame: its number, then its bytes (seq 0, an errno).
            assert_eq!(reply[0], 5);
        }
        // The same number may be used again once it was answered.
        raw.send(&bytes(&ToDaemon::Ask { number: FIRST_REQUEST, request: vec![0; 192] }));
        assert!(raw.next().is_some());
        raw.send(&bytes(&ToDaemon::Abandon { number: FIRST_REQUEST | 170 }));
        raw.send(&bytes(&ToDaemon::Abandon { number: FIRST_REQUEST }));
        raw.send(&bytes(&ToDaemon::FinishLaunch {
            call: 1,
            launch: 99,
            policy: 1,
            fresh: vec![1 << 16, -1],
        }));
        assert_eq!(raw.next().expect("still served")[0], 3);
        raw.send(&bytes(&ToDaemon::ResetAll));
        raw.send(&bytes(&ToDaemon::Detach));
        assert_eq!(raw.next().expect("a goodbye")[0], 6);
        raw.expect_closed();
        undisturbed(good);
    });
}

#[test]
fn descriptors_are_counted_and_looked_at() {
    bounded(|| {
        let good = served();
        let null = std::fs::File::open("/dev/null").expect("/dev/null");
        let path = good.0.path.clone();
        let null = || std::os::fd::AsFd::as_fd(&null);
        // Where the kernel can, it refuses them already.
        let send = |raw: &Raw, bytes: &[u8], count: usize| raw.offer(bytes, &vec![null(); count]);
        for count in [1, 2, 17, 18, 40] {
            let raw = Raw::connect(&path);
            if send(&raw, &hello(&Want::Attach(wish())), count) {
                raw.expect_closed();
            }
            let raw = Raw::attached(&path);
            if send(&raw, &bytes(&ToDaemon::Usage { call: 1 }), count) {
                raw.expect_closed();
            }
        }
        let raw = Raw::attached(&path);
        if send(&raw, &bytes(&ToDaemon::Agent(AgentAnswer::Provided { arena: 0, len: 1 })), 1) {
            raw.expect_closed();
        }
        drop(raw);
        // Of a GPU descriptors are taken: as many as there should be, and of what was asked.
        let provided = bytes(&ToDaemon::Agent(AgentAnswer::Provided { arena: 0, len: 1 }));
        for (frame, counts) in [(&provided, 0..4), (&bytes(&ToDaemon::Usage { call: 1 }), 1..3)] {
            for count in counts {
                let raw = Raw::attached_gpu(&path);
                assert!(send(&raw, frame, count));
                raw.expect_closed();
            }
        }
        // The memory for a network card: none, too many, nothing else, and what is no dma-buf.
        let card = Wish { card: Some((1 << 40, 0, 1 << 30)), device_rings: 1 << 16, ..wish() };
        for device in [Device::Cpu, gpu()] {
            let asked = || {
                let raw = Raw::connect(&path);
                raw.send(&hello(&Want::Attach(Wish { device: device.clone(), ..card.clone() })));
                assert!(matches!(raw.first(), Some(First::SendCard)));
                raw
            };
            for (frame, count) in [(ToDaemon::Card, 0), (ToDaemon::Card, 2), (ToDaemon::ResetAll, 1)] {
                let raw = asked();
                assert!(send(&raw, &bytes(&frame), count));
                raw.expect_closed();
            }
            let raw = asked();
            assert!(send(&raw, &bytes(&ToDaemon::Card), 1));
            let Some(First::Refused { errno: 22, reason }) = raw.first() else { panic!("not refused") };
            assert!(reason.contains("dma-buf"), "{reason}");
        }
        undisturbed(good);
    });
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    bounded(|| {
        let good = served();
        let wishes = [
            Wish { sockets: 0, ..wish() },
            Wish { sockets: 1 << 17, ..wish() },
            Wish { controls: 0, ..wish() },
            Wish { shared_rings: 1, ..wish() },
            Wish { shared_rings: u64::MAX, ..wish() },
            Wish { device_rings: u64::MAX, ..wish() },
            Wish {
                device: Device::Cuda { name: "x".repeat(5000), uuid: [0; 16], shareable: false },
                ..wish()
            },
        ];
        for wish in wishes {
            let raw = Raw::connect(&good.0.path);
            raw.send(&hello(&Want::Attach(wish.clone())));
            let Some(First::Refused { errno: 22, reason }) = raw.first() else { panic!("{wish:?}") };
            assert!(!reason.is_empty());
        }
        undisturbed(good);
    });
}

#[test]
fn a_command_is_shown_to_people_without_what_would_move_their_cursor() {
    bounded(|| {
        let good = served();
        let raw = Raw::connect(&good.0.path);
        let command = format!("\x1b[2J\n{}", "x".repeat(1000));
        raw.send(&hello(&Want::Attach(Wish { command, ..wish() })));
        assert!(matches!(raw.first(), Some(First::Welcome { .. })));
        let clients = good.0.daemon().snapshot().expect("it answers").clients;
        let shown = &clients.iter().find(|client| client.command.contains('x')).expect("a client").command;
        assert!(shown.starts_with("?[2J?x") && shown.len() <= 64, "{shown:?}");
        drop(raw);
        undisturbed(good);
    });
}

#[test]
fn a_client_that_floods_and_does_not_read_is_read_no_more() {
    bounded(|| {
        let good = served();
        let raw = Raw::attached(&good.0.path);
        raw.give_up_after(Duration::from_secs(1));
        // Requests that are answered, whose answers it does not read: what is kept of it is
        // bounded. It is not cut for that: a program that is merely stopped looks the same.
        let mut sent = 0u32;
        let stuck = loop {
            let ask = ToDaemon::Ask { number: FIRST_REQUEST | sent, request: vec![0; 192] };
            match raw.send_with(&bytes(&ask), &[]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            assert!(sent < 100_000);
        };
        let start = Instant::now();
        let _ = good.1.usage();
        assert!(start.elapsed() < Duration::from_secs(5));
        match stuck.kind() {
            // It is served as soon as it reads.
            std::io::ErrorKind::WouldBlock => {
                for _ in 0..sent {
                    assert_eq!(raw.next().expect("still served")[0], 5);
                }
            }
            // Where answers are slow to come, it has asked more than may be without one, and is
            // cut.
            kind => assert_eq!(kind, std::io::ErrorKind::BrokenPipe),
        }
        drop(raw);
        undisturbed(good);
    });
}

#[test]
fn a_client_that_calls_without_end_leaves_the_others_their_turn() {
    bounded(|| {
        let good = served();
        let path = good.0.path.clone();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let stopped = stop.clone();
        let flood = std::thread::spawn(move || {
            let raw = Raw::attached(&path);
            let mut answered = 0u64;
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                for call in 0..16 {
                    raw.send(&bytes(&ToDaemon::Usage { call }));
                }
                (0..16).for_each(|_| drop(raw.next().expect("served, in its time")));
                answered += 16;
            }
            answered
        });
        let start = Instant::now();
        let mut slowest = Duration::ZERO;
        while start.elapsed() < Duration::from_secs(1) {
            let asked = Instant::now();
            let _ = good.1.usage();
            slowest = slowest.max(asked.elapsed());
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let answered = flood.join().expect("no panic");
        let seconds = start.elapsed().as_secs_f64();
        assert!((answered as f64) < 2500.0 * seconds, "{answered} calls in {seconds} s");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        undisturbed(good);
    });
}
