use super::*;
use crate::verbs::{Op, Source};

const KEEPALIVE: u64 = 2_000_000_000;

fn config(variant: Variant) -> Config {
    Config {
        variant,
        send_ring: (0x10_0000, 4096),
        recv_ring: Remote { address: 0x20_0000, rkey: 1, len: 4096 },
        sends: 16,
        receives: 16,
        keepalive: KEEPALIVE,
    }
}

fn machine(variant: Variant) -> Machine {
    let config = config(variant);
    let peer = config.hello(Remote { address: 0x30_0000, rkey: 2, len: 2 });
    Machine::new(&config, peer, 0)
}

#[test]
fn data_takes_a_credit_and_its_memory_until_it_has_arrived() {
    let mut m = machine(Variant::Immediate);
    assert_eq!(m.poll(0), None, "nothing to say");
    m.offer(10);
    let Some(Op::Write { to: 0x20_0000, rkey: 1, immediate: Some(10), .. }) = m.poll(0) else {
        panic!("no data message");
    };
    assert_eq!((m.posted(), m.completed(), m.poll(0)), (10, 0, None));
    m.handle_sent(0);
    assert_eq!(m.completed(), 10);
}

#[test]
fn iwarp_messages_follow_their_write() {
    let mut m = machine(Variant::Send);
    m.offer(10);
    assert!(matches!(m.poll(0), Some(Op::Write { immediate: None, .. })));
    assert_eq!(m.poll(0), Some(Op::Send { message: 10 }));
    m.shutdown();
    assert_eq!(m.poll(0), Some(Op::Send { message: 0xe000_0002 }));
    for _ in 0..3 {
        m.handle_sent(0);
    }
    assert!(m.is_settled());
}

#[test]
fn an_idle_connection_asks_whether_the_host_lives() {
    let mut m = machine(Variant::Immediate);
    assert_eq!(m.deadline(), Some(KEEPALIVE));
    let alive = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };
    assert_eq!(m.poll(KEEPALIVE), Some(alive));
    assert_eq!((m.poll(2 * KEEPALIVE), m.deadline()), (None, None), "one at a time");
    m.handle_send_failed(Failure::Unreachable);
    assert_eq!(m.failure(), Some(Failure::Unreachable));
}

#[test]
fn the_second_end_disconnects() {
    let mut m = machine(Variant::Immediate);
    m.handle_message(0xe000_0002, Some(0), 0).unwrap();
    assert!(m.is_peer_shut());
    m.shutdown();
    assert!(matches!(m.poll(0), Some(Op::Write { immediate: Some(0xe000_0000), .. })));
    m.handle_send_failed(Failure::Device);
    assert_eq!(m.failure(), None, "the peer may be gone by then");
}

#[test]
fn a_connection_that_vanishes_was_reset() {
    let mut m = machine(Variant::Immediate);
    m.handle_disconnected();
    assert_eq!(m.send_failure(), Some(Failure::Reset));
    let mut m = machine(Variant::Immediate);
    m.handle_message(0xe000_0000, Some(0), 0).unwrap();
    m.handle_disconnected();
    assert_eq!((m.failure(), m.send_failure()), (None, Some(Failure::Closed)));
}
