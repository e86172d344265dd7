//! What a stream costs in requests and messages.

use crate::hosts::{Hosts, RC, close, receive, sending};
use crate::support::{SOLO, bounded};
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use std::time::Duration;

#[test]
fn a_mebibyte_costs_few_requests() {
    const MIB: u64 = 8;
    const LEN: usize = (MIB as usize) << 20;
    bounded(|| {
        let delay = Duration::from_micros(20)..=Duration::from_micros(60);
        let hosts = Hosts::new(Fabric::with(FabricSettings { delay, ..FabricSettings::new(51) }));
        let (a, mut b) = hosts.pair(RC.with_rings(1 << 18, 1 << 18));
        let before = hosts.fabric.counters();
        let sender = sending(hosts.a.net(), &a, 1, LEN);
        assert_eq!(receive(&mut b, 1, 0, LEN), (LEN, None));
        assert_eq!(sender.join().expect("no panic"), Ok(()));
        let after = hosts.fabric.counters();
        let per_mib = |count: u64| count / MIB;
        let requests = per_mib(after.work_requests - before.work_requests);
        let messages = per_mib(after.messages - before.messages);
        let grants = per_mib(after.table_writes - before.table_writes);
        // Measured: 28 requests, all of them messages, 12 of them grants of a new area. The limits:
        // 16 messages of data in chunks of a quarter of a ring, and again as many where an area or
        // what there is to send ends before the chunk does; a grant for each 64 KiB, and for the
        // end of each ring; credits with the grants.
        assert!(requests <= 64, "{requests} requests per MiB");
        assert!(messages <= requests, "{messages} messages per MiB");
        assert!((4..=24).contains(&grants), "{grants} grants per MiB");
        assert!(after.bytes - before.bytes >= LEN as u64);
        assert_eq!(after.rnr, 0);
        close(hosts.a.net(), a);
        b.close(&SOLO).expect("open");
        hosts.end();
    });
}
