//! Faults of the simulated network: power, cables, processes, errors by order and by chance.

use crate::buffer::Rings;
use crate::moving::pattern;
use crate::simulated::{LOCALHOST, NOTHING, roce, world};
use crate::world::{DEPTH, Pair, RING, TIMEOUT};
use gpunet_core::verbs::sim::FabricSettings;
use gpunet_core::verbs::{Completion, CompletionStatus, Op, Source};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

#[test]
fn a_host_without_power_is_noticed_by_trying_only() {
    let (fabric, hosts, world) = world(roce());
    let Pair { mut client, server } = world.connect();
    fabric.power_off(hosts[1]);
    assert!(!client.endpoint.is_disconnected());
    let start = Instant::now();
    client.post(1, NOTHING);
    client.tell(2, 2);
    assert_eq!(client.next_sent(), (1, CompletionStatus::RetryExceeded));
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200) && took < TIMEOUT / 2, "{took:?}");
    assert_eq!(client.next_sent(), (2, CompletionStatus::Flushed));
    drop(server);
    assert!(!client.endpoint.is_disconnected(), "a dead host says nothing");
}

#[test]
fn a_host_that_starts_again_knows_no_connection() {
    let (fabric, hosts, world) = world(roce());
    let Pair { mut client, server } = world.connect();
    fabric.power_off(hosts[1]);
    fabric.power_on(hosts[1]);
    client.post(1, NOTHING);
    assert_eq!(client.next_sent(), (1, CompletionStatus::RetryExceeded));
    assert!(!client.endpoint.is_disconnected());
    drop(server);
    drop(world.connect());
}

#[test]
fn a_short_cut_is_survived() {
    let (fabric, _, world) = world(FabricSettings { retry_time: TIMEOUT, ..roce() });
    let Pair { mut client, mut server } = world.connect();
    fabric.partition();
    client.rings.send.put(0, &pattern(4096, 1));
    client.write(1, (0, 4096), server.target(), 9);
    client.tell(2, 10);
    assert_eq!(server.endpoint.poll(), None);
    fabric.partition_for(Duration::from_millis(30));
    assert_eq!(server.next_message(), (9, Some(4096)));
    assert_eq!(server.next_message().0, 10);
    assert_eq!(server.rings.recv.get(0, 4096), pattern(4096, 1));
    assert_eq!(client.next_sent(), (1, CompletionStatus::Success));
    assert_eq!(client.next_sent(), (2, CompletionStatus::Success));
    assert!(fabric.counters().retries > 0);
}

#[test]
fn a_long_cut_ends_the_connection_and_the_word_of_it_comes_late() {
    let (fabric, _, world) = world(roce());
    let Pair { mut client, mut server } = world.connect();
    fabric.partition();
    client.post(1, NOTHING);
    assert_eq!(client.next_sent(), (1, CompletionStatus::RetryExceeded));
    drop(client);
    assert!(!server.endpoint.is_disconnected());
    fabric.restore();
    server.wait_for_end();
}

#[test]
fn a_killed_process_is_announced() {
    for iwarp in [false, true] {
        let (fabric, hosts, world) = world(FabricSettings { iwarp, ..roce() });
        let Pair { mut client, mut server } = world.connect();
        fabric.kill(hosts[1]);
        client.wait_for_end();
        client.post(1, NOTHING);
        let expected = if iwarp { CompletionStatus::Flushed } else { CompletionStatus::RetryExceeded };
        assert_eq!(client.next_sent(), (1, expected));
        assert!(server.endpoint.is_disconnected());
        assert_eq!(server.endpoint.poll(), None);
        drop((client, server));
        drop(world.connect());
    }
}

#[test]
fn a_killed_server_refuses_those_who_wait() {
    let (fabric, hosts, world) = world(roce());
    let (addr, mut listening) = world.listen(4);
    let mut handshake = world.resolve(addr);
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    let connecting = handshake.connect(&[1]);
    let request = listening.next().expect("a request");
    fabric.kill(hosts[1]);
    assert_eq!(world.wait(connecting).err().unwrap().kind(), ErrorKind::ConnectionRefused);
    let mut handshake = request.handshake;
    handshake.prepare(&Rings::new(RING, 2).memory(), DEPTH).unwrap();
    assert_eq!(world.wait(handshake.accept(&[])).err().unwrap().kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn a_completion_error_can_be_ordered() {
    for status in [
        CompletionStatus::RetryExceeded,
        CompletionStatus::RnrRetryExceeded,
        CompletionStatus::RemoteRefused,
        CompletionStatus::Other(12),
    ] {
        let (fabric, hosts, world) = world(roce());
        let Pair { mut client, mut server } = world.connect();
        client.tell(1, 1);
        fabric.fail_next(hosts[0], status);
        client.tell(2, 2);
        client.tell(3, 3);
        assert_eq!(client.next_sent(), (1, CompletionStatus::Success));
        assert_eq!(client.next_sent(), (2, status));
        assert_eq!(client.next_sent(), (3, CompletionStatus::Flushed));
        assert_eq!(server.next_message().0, 1);
        if status == CompletionStatus::RemoteRefused {
            assert_eq!(server.next(), Completion::Flushed);
        }
    }
}

#[test]
fn nobody_answers_on_a_cut_network_and_no_device_leads_to_a_hidden_address() {
    let (fabric, _, world) = world(FabricSettings { connect_timeout: Duration::from_millis(50), ..roce() });
    let (addr, _listening) = world.listen(1);
    fabric.partition();
    let mut handshake = world.resolve(addr);
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    assert_eq!(world.wait(handshake.connect(&[])).err().unwrap().kind(), ErrorKind::TimedOut);
    fabric.hide(LOCALHOST);
    let error = world.wait(world.client.resolve(addr, None)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
}

/// Whatever happens, every request completes once, in order, and after an error all are flushed.
#[test]
fn every_request_completes_once_and_in_order() {
    for seed in 0..40_u64 {
        let delay = Duration::ZERO..=Duration::from_micros(100);
        let retry_time = Duration::from_millis(10);
        let (fabric, hosts, world) = world(FabricSettings {
            delay,
            retry_time,
            loss_per_mille: 20,
            iwarp: seed % 4 == 3,
            ..FabricSettings::new(seed)
        });
        let Pair { mut client, mut server } = world.connect();
        let (to, rkey) = server.target();
        let trouble = 20 + seed * 7 % 60;
        let (mut posted, mut completed, mut failed) = (0, 0, false);
        while completed < 150 {
            while posted < 150 && posted - completed < u64::from(DEPTH.sends) {
                let here = to + posted;
                let from = Source::Ring([(client.rings.send.address() + posted, 60), (0, 0)]);
                let bad = Op::Write { from: Source::Inline([0; 16]), to: 1, rkey, immediate: None };
                match seed % 5 {
                    _ if posted != trouble => {}
                    0 => fabric.kill(hosts[1]),
                    1 => fabric.power_off(hosts[1]),
                    2 => fabric.fail_next(hosts[0], CompletionStatus::Other(13)),
                    3 => fabric.partition(),
                    _ => {}
                }
                if seed % 5 == 4 && posted == trouble {
                    client.post(posted, bad);
                } else if posted % 3 == 0 {
                    client.tell(posted, posted as u32);
                } else {
                    client.post(posted, Op::Write { from, to: here, rkey, immediate: None });
                }
                posted += 1;
            }
            while let Some(completion) = server.endpoint.poll() {
                if matches!(completion, Completion::Received { .. }) {
                    // The process may have been killed.
                    let _ = server.endpoint.post_receive();
                }
            }
            match client.endpoint.poll() {
                Some(Completion::Sent { id, status }) => {
                    assert_eq!(id, completed, "seed {seed}");
                    assert!(
                        !failed || status == CompletionStatus::Flushed,
                        "seed {seed}: {status:?} after an error"
                    );
                    failed |= status != CompletionStatus::Success;
                    completed += 1;
                }
                Some(_) => {}
                None => std::thread::yield_now(),
            }
        }
        assert!(failed, "seed {seed}");
    }
}

#[test]
fn requests_fail_by_chance_when_they_are_to() {
    let (_, _, world) = world(FabricSettings { failure_per_million: 1_000_000, ..roce() });
    let Pair { mut client, server } = world.connect();
    client.post(1, NOTHING);
    assert_eq!(client.next_sent(), (1, CompletionStatus::RetryExceeded));
    drop(server);
}
