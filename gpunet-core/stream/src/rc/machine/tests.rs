use super::*;
use crate::rc::work::{Op, Source};

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

/// Receives this many messages of one byte.
fn receive(m: &mut Machine, messages: u32) {
    for _ in 0..messages {
        m.handle_message(1, Some(1), 0).unwrap();
    }
}

/// Offers one byte more and posts it, with the message that follows it on iWARP.
fn send(m: &mut Machine) {
    m.offer(m.posted() + 1);
    while m.poll(0).is_some() {}
}

/// A control message as the variant has it.
fn control(variant: Variant, message: u32) -> Option<Op> {
    Some(match variant {
        Variant::Immediate => Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: Some(message) },
        Variant::Send => Op::Send { message },
    })
}

const VARIANTS: [Variant; 2] = [Variant::Immediate, Variant::Send];
const CREDITS: u32 = 0x8000_0000;
const DISCONNECT: u32 = 0xe000_0000;
const SHUTDOWN: u32 = 0xe000_0002;

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

#[test]
fn a_connection_that_vanishes_with_data_under_way_was_reset() {
    let mut m = machine(Variant::Immediate);
    send(&mut m);
    m.handle_disconnected();
    assert_eq!(m.failure(), Some(Failure::Reset));
}

#[test]
fn data_under_way_to_a_peer_that_has_closed_is_lost() {
    for gone in [Machine::handle_disconnected, |m: &mut Machine| m.handle_send_failed(Failure::Unreachable)] {
        let mut m = machine(Variant::Immediate);
        send(&mut m);
        m.handle_message(DISCONNECT, Some(0), 0).unwrap();
        assert_eq!((m.failure(), m.send_failure()), (None, Some(Failure::Closed)));
        gone(&mut m);
        assert_eq!((m.failure(), m.completed()), (Some(Failure::Closed), 0));
    }
    // Its acknowledgement came before the connection went.
    let mut m = machine(Variant::Immediate);
    send(&mut m);
    m.handle_message(DISCONNECT, Some(0), 0).unwrap();
    m.handle_sent(0);
    m.handle_disconnected();
    assert_eq!((m.failure(), m.completed()), (None, 1));
}

#[test]
fn only_data_under_way_is_waited_for_when_the_connection_vanishes_after_the_last_message() {
    let mut m = machine(Variant::Immediate);
    m.disconnect();
    assert_eq!(m.poll(0), control(Variant::Immediate, DISCONNECT));
    m.handle_disconnected();
    assert_eq!((m.is_settled(), m.failure()), (true, None));

    let mut m = machine(Variant::Immediate);
    send(&mut m);
    m.disconnect();
    assert_eq!(m.poll(0), control(Variant::Immediate, DISCONNECT));
    m.handle_disconnected();
    assert!(!m.is_settled(), "its completion shows whether the peer has it");
    m.handle_send_failed(Failure::Reset);
    assert_eq!(m.failure(), Some(Failure::Reset));
}

#[test]
fn a_disconnect_may_fail_and_a_shutdown_may_not() {
    for variant in VARIANTS {
        let mut m = machine(variant);
        m.disconnect();
        assert_eq!(m.poll(0), control(variant, DISCONNECT));
        m.handle_send_failed(Failure::Unreachable);
        assert_eq!(m.failure(), None);
        let mut m = machine(variant);
        m.shutdown();
        assert_eq!(m.poll(0), control(variant, SHUTDOWN));
        m.handle_send_failed(Failure::Unreachable);
        assert_eq!(m.failure(), Some(Failure::Unreachable));
    }
}

#[test]
fn a_sign_of_life_puts_off_the_next_question() {
    let mut m = machine(Variant::Immediate);
    m.handle_alive(7);
    assert_eq!((m.poll(KEEPALIVE + 6), m.deadline()), (None, Some(KEEPALIVE + 7)));
}

#[test]
fn the_wait_for_the_peer_begins_with_a_request_and_anew_with_each_sign_of_life() {
    let mut m = machine(Variant::Immediate);
    assert_eq!((m.poll(3), m.waiting_since()), (None, None));
    m.offer(1);
    assert!(m.poll(5).is_some());
    assert_eq!(m.waiting_since(), Some(5));
    m.offer(2);
    assert!(m.poll(6).is_some());
    assert_eq!(m.waiting_since(), Some(5), "the first request has not been answered");
    m.handle_alive(7);
    assert_eq!(m.waiting_since(), Some(7));
    m.handle_sent(9);
    assert_eq!(m.waiting_since(), Some(9));
    m.handle_sent(11);
    assert_eq!(m.waiting_since(), None);
}

#[test]
fn an_offer_needs_a_credit_and_a_slot() {
    let mut m = machine(Variant::Immediate);
    assert!(m.may_send());
    (0..16).for_each(|_| send(&mut m));
    (0..16).for_each(|_| m.handle_sent(0));
    assert!(!m.may_send(), "all credits are spent");
    m.handle_message(CREDITS | 17, Some(0), 0).unwrap();
    assert!(m.may_send());

    let mut m = machine(Variant::Send);
    (0..8).for_each(|_| send(&mut m));
    assert!(!m.may_send(), "each message takes two of 16 slots");
    m.handle_sent(0);
    assert!(!m.may_send());
    m.handle_sent(0);
    assert!(m.may_send());
}

#[test]
fn no_offer_is_taken_after_the_end() {
    let ends: [fn(&mut Machine); 4] = [
        |m| m.disconnect(),
        |m| m.handle_failure(Failure::Device),
        |m| _ = m.handle_message(DISCONNECT, Some(0), 0),
        |m| {
            m.shutdown();
            assert_eq!(m.poll(0), control(Variant::Immediate, SHUTDOWN));
            m.handle_message(SHUTDOWN, Some(0), 0).unwrap();
        },
    ];
    for end in ends {
        let mut m = machine(Variant::Immediate);
        end(&mut m);
        _ = m.poll(0);
        assert!(!m.may_send());
        m.offer(1);
        assert_eq!((m.poll(0), m.posted()), (None, 0));
    }
}

#[test]
fn no_more_than_four_control_messages_are_under_way() {
    for variant in VARIANTS {
        let mut m = machine(variant);
        for round in 1..=4 {
            receive(&mut m, 8);
            assert_eq!(m.poll(0), control(variant, CREDITS | (16 + 8 * round)));
        }
        receive(&mut m, 8);
        assert_eq!(m.poll(0), None);
        m.handle_sent(0);
        assert_eq!(m.poll(0), control(variant, CREDITS | (16 + 8 * 5)));
    }
}

#[test]
fn an_end_may_be_the_fourth_control_message_but_not_the_fifth() {
    for variant in VARIANTS {
        let mut m = machine(variant);
        for _ in 0..3 {
            receive(&mut m, 8);
            assert!(m.poll(0).is_some());
        }
        m.shutdown();
        assert_eq!(m.poll(0), control(variant, SHUTDOWN));
        m.disconnect();
        assert_eq!(m.poll(0), None);
        m.handle_sent(0);
        assert_eq!(m.poll(0), control(variant, DISCONNECT));
    }
}

#[test]
fn a_peer_that_sends_no_more_is_granted_nothing() {
    let mut m = machine(Variant::Immediate);
    receive(&mut m, 15);
    m.handle_message(4081, Some(4081), 0).unwrap();
    m.handle_consumed(4096);
    m.handle_message(SHUTDOWN, Some(0), 0).unwrap();
    assert_eq!(m.poll(0), None);
}
