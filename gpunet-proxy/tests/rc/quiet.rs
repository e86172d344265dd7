//! Events that come late, connections that say nothing, and many of them at a time.

use crate::hosts::{Host, RC, close, config, exchange, pair, receive, sending};
use crate::support::{SOLO, bounded, until};
use gpu_usermap::placement::{Placement, PlacementChoice};
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_proxy::Config;
use std::time::{Duration, Instant};

/// A card that raises no event for what completes while it is being armed: who does not look once
/// more waits for ever (the signs of life are far apart here).
#[test]
fn what_completes_while_events_are_armed_is_seen() {
    bounded(|| {
        let arm_delay = Duration::ZERO..=Duration::from_micros(200);
        let delay = Duration::ZERO..=Duration::from_micros(100);
        let fabric = Fabric::with(FabricSettings { arm_delay, delay, ..FabricSettings::new(101) });
        let slow = || Config { rc_keepalive: Duration::from_secs(600), ..config(&fabric) };
        let (a, b) = (Host::with(&fabric, slow()), Host::with(&fabric, slow()));
        let (mut near, mut far) = pair(a.net(), b.net(), RC.with_rings(4096, 4096));
        for _ in 0..300 {
            exchange(&mut near, &mut far);
        }
        near.close(&SOLO).expect("open");
        far.close(&SOLO).expect("open");
        a.end();
        b.end();
    });
}

#[test]
fn signs_of_life_keep_an_idle_connection_and_are_no_messages() {
    bounded(|| {
        let fabric = Fabric::new(102);
        let quick = || Config { rc_keepalive: Duration::from_millis(10), ..config(&fabric) };
        let (a, b) = (Host::with(&fabric, quick()), Host::with(&fabric, quick()));
        let (mut near, mut far) = pair(a.net(), b.net(), RC);
        exchange(&mut near, &mut far);
        let (before, start) = (fabric.counters(), Instant::now());
        let requests = || fabric.counters().work_requests - before.work_requests;
        until("there are signs of life", || requests() >= 16);
        // Of two ends, each 10 ms; the first of either may come at once.
        let (requests, passed) = (requests(), start.elapsed());
        assert!(u128::from(requests) <= 4 + passed.as_millis() * 27 / 100, "{requests} in {passed:?}");
        assert_eq!(fabric.counters().messages - before.messages, 0);
        exchange(&mut near, &mut far);
        near.close(&SOLO).expect("open");
        far.close(&SOLO).expect("open");
        a.end();
        b.end();
    });
}

/// On several data threads, over a network that loses a little, with rings in either place.
#[test]
fn many_streams_at_a_time_keep_their_bytes_apart() {
    const LEN: usize = 150_000;
    const COUNT: u64 = 12;
    bounded(|| {
        for placement in [PlacementChoice::Auto, PlacementChoice::Only(Placement::GpuDmaBuf)] {
            let settings = FabricSettings {
                delay: Duration::ZERO..=Duration::from_micros(300),
                loss_per_mille: 3,
                retry_time: Duration::from_secs(20),
                dma_buf: true,
                ..FabricSettings::new(103)
            };
            let fabric = Fabric::with(settings);
            let config = || Config { data_threads: 3, placement, ..config(&fabric) };
            let (a, b) = (Host::with(&fabric, config()), Host::with(&fabric, config()));
            let rings = RC.with_rings(8192, 8192);
            let streams: Vec<_> = (0..COUNT).map(|_| pair(a.net(), b.net(), rings)).collect();
            let threads: Vec<_> = (0..COUNT)
                .zip(&streams)
                .flat_map(|(seed, (near, far))| {
                    let there = sending(a.net(), near, seed, LEN);
                    let back = sending(b.net(), far, seed + 100, LEN);
                    let ends = [(a.net(), near.handle(), seed + 100), (b.net(), far.handle(), seed)];
                    let readers = ends.map(|(net, handle, seed)| {
                        std::thread::spawn(move || {
                            let end = receive(&mut crate::hosts::open(net, handle), seed, 0, LEN);
                            assert_eq!(end, (LEN, None));
                            Ok(())
                        })
                    });
                    [there, back].into_iter().chain(readers)
                })
                .collect();
            for thread in threads {
                assert_eq!(thread.join().expect("no panic"), Ok(()));
            }
            for (near, far) in streams {
                close(a.net(), near);
                close(b.net(), far);
            }
            assert_eq!(fabric.counters().rnr, 0);
            a.end();
            b.end();
        }
    });
}
