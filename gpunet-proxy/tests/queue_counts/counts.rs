//! How many work requests messages take.

use crate::hosts::{RING, expect_requests, hosts};
use crate::support::{Memory, SOLO};
use gpunet_device::copy::copy_out_of_ring;

/// Bytes that fit into one packet of every network, with the shortest frames that Ethernet has by
/// default.
const PACKET: usize = 1024;

#[test]
fn a_message_costs_one_request_and_what_is_only_prepared_none() {
    const LEN: usize = 900;
    hosts("a_message_costs_one_request_and_what_is_only_prepared_none", |mut hosts| {
        let mut first = None;
        hosts.expect(0, "prepared and filled", |hosts| first = Some(hosts.prepare(1, 0, LEN)));
        let first = first.expect("prepared");
        hosts.expect(1, "posted", |hosts| hosts.post(&first));
        hosts.expect(0, "posted again", |hosts| hosts.post(&first));
        hosts.expect(0, "received", |hosts| hosts.receive(1, 0, LEN));
        let next = Memory::filled(1, LEN, LEN);
        hosts.expect(1, "sent by a queue", |hosts| {
            hosts.here.send(&mut hosts.sender, next.buffer()).expect("a position");
            hosts.receive(1, LEN, LEN);
        });
        hosts.here.synchronize().expect("no failure");
    });
}

#[test]
fn a_later_trigger_publishes_all_before_it_by_one_request() {
    const COUNT: usize = 8;
    const LEN: usize = PACKET / COUNT;
    hosts("a_later_trigger_publishes_all_before_it_by_one_request", |mut hosts| {
        let at = |i: usize| i * LEN;
        let messages: [_; COUNT] = std::array::from_fn(|i| hosts.prepare(2, at(i), LEN));
        hosts.expect(1, "the last of 8 posted", |hosts| hosts.post(&messages[COUNT - 1]));
        hosts.expect(0, "the others posted afterwards", |hosts| {
            messages.iter().for_each(|message| hosts.post(message));
        });
        // Gates of messages that come, and triggers that give them back: less than what is worth a
        // grant.
        hosts.expect(0, "received in place", |hosts| {
            let messages: [_; COUNT] = std::array::from_fn(|_| hosts.receiver.prepare(LEN).expect("room"));
            hosts.there.wait(&messages.map(|message| message.arrived)).expect("open");
            hosts.there.synchronize().expect("all have come");
            for (i, message) in messages.iter().enumerate() {
                let came = Memory::new(LEN);
                // SAFETY: the message has landed, and is not given back; the buffer has room for
                // it.
                unsafe { copy_out_of_ring(&SOLO, came.buffer().as_ptr(), message.span) };
                assert!(came.holds(0, LEN, 2, at(i)), "message {i}");
            }
            hosts.there.post(&messages.map(|message| message.consume)).expect("open");
            hosts.there.synchronize().expect("open");
        });
        let messages: [_; COUNT] = std::array::from_fn(|i| hosts.prepare(3, at(i), LEN));
        hosts.expect(COUNT as u64, "8 posted one by one", |hosts| {
            messages.iter().for_each(|message| hosts.post(message));
            hosts.receive(3, 0, COUNT * LEN);
        });
    });
}

#[test]
fn room_and_credits_come_back_in_few_requests() {
    const LEN: usize = 512;
    const PASSES: usize = 4;
    const COUNT: usize = PASSES * RING / LEN;
    hosts("room_and_credits_come_back_in_few_requests", |mut hosts| {
        let came = Memory::new(COUNT * LEN);
        let counts = hosts.cost("512 messages through a ring of 128", |hosts| {
            for i in 0..COUNT {
                hosts.there.recv(&mut hosts.receiver, came.buffer().slice(i * LEN, LEN)).expect("a position");
            }
            for i in 0..COUNT {
                let message = hosts.prepare(4, i * LEN, LEN);
                hosts.post(&message);
            }
            hosts.there.synchronize().expect("all have come");
        });
        assert!(came.holds(0, COUNT * LEN, 4, 0));
        // The first ring is granted from the start. Then an area is granted when a quarter of the
        // ring, or what is left up to its end, is free; credits alone, when half of the 128 are
        // used up.
        let updates = counts.messages - COUNT as u64;
        let most = 4 * PASSES + COUNT / 64;
        assert!((PASSES as u64 - 1..=most as u64).contains(&updates), "{updates} updates");
        expect_requests("512 messages", counts);
    });
}

#[test]
fn a_long_message_costs_few_requests() {
    const LEN: usize = 1 << 20;
    hosts("a_long_message_costs_few_requests", |mut hosts| {
        let sent = Memory::filled(5, 0, LEN);
        let counts = hosts.cost("a mebibyte through a ring of 64 KiB", |hosts| {
            hosts.here.send(&mut hosts.sender, sent.buffer()).expect("a position");
            hosts.receive(5, 0, LEN);
            hosts.here.synchronize().expect("no failure");
        });
        // At most a quarter of the ring at a time; as often again because an area, or what was
        // published, ended before; and an area for each quarter.
        let quarters = (LEN / (RING / 4)) as u64;
        let expected = quarters..=3 * quarters;
        assert!(expected.contains(&counts.messages), "{} messages", counts.messages);
    });
}
