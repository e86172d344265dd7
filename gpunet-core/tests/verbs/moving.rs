//! Conformance: what requests do, in which order, and what they may not do.

use crate::buffer::Rings;
use crate::world::{DEPTH, End, Pair, RING, World};
use gpunet_core::verbs::{Completion, CompletionStatus, Op, Source, WorkRequest};
use std::io::ErrorKind;

/// Bytes that differ everywhere.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

pub fn ring_writes_arrive_byte_for_byte(world: &World) {
    let Pair { mut client, mut server } = world.connect();
    let bytes = pattern(RING, 3);
    client.rings.send.put(0, &bytes);
    let to = server.target();
    for (i, (at, len)) in [(0, 1), (1, 100), (101, 4096), (4197, 8000)].into_iter().enumerate() {
        client.write(i as u64, (at, len), to, i as u32);
        let (message, said) = server.next_message();
        assert_eq!(message, i as u32);
        assert_eq!(said, if client.iwarp { None } else { Some(len) });
        assert_eq!(server.rings.recv.get(at, len as usize), bytes[at..at + len as usize]);
    }
    assert!(server.rings.recv.get(12197, RING - 12197).iter().all(|b| *b == 0), "and nothing else");
}

pub fn two_pieces_arrive_as_one(world: &World) {
    let Pair { mut client, mut server } = world.connect();
    let bytes = pattern(RING, 9);
    server.rings.send.put(0, &bytes);
    let base = server.rings.send.address();
    // A ring's end and its start.
    let from = Source::Ring([(base + RING as u64 - 1000, 1000), (base, 500)]);
    let (to, rkey) = client.target();
    server.write_and_tell(1, from, to + 64, rkey, 77);
    let (message, len) = client.next_message();
    assert_eq!(message, 77);
    assert!(len.is_none_or(|len| len == 1500));
    let expected = [&bytes[RING - 1000..], &bytes[..500]].concat();
    assert_eq!(client.rings.recv.get(64, 1500), expected);
    assert_eq!(server.next_sent().1, CompletionStatus::Success);
}

pub fn descriptors_arrive_in_the_table(world: &World) {
    let Pair { mut client, mut server } = world.connect();
    let (table, rkey) = (server.keys.table_address, server.keys.table_rkey);
    assert_eq!(table, server.endpoint.table().address());
    for round in 1..5_u32 {
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&(u64::from(round) << 33).to_ne_bytes());
        entry[8..12].copy_from_slice(&round.to_ne_bytes());
        entry[12..].copy_from_slice(&(4096 * round).to_ne_bytes());
        let index = (round % 2) as usize;
        client.write_and_tell(1, Source::Inline(entry), table + 16 * index as u64, rkey, round);
        assert_eq!(server.next_message().0, round);
        let sge = server.endpoint.table().take(index).expect("a descriptor");
        assert_eq!((sge.address, sge.rkey, sge.len), (u64::from(round) << 33, round, 4096 * round));
        assert!(server.endpoint.table().take(index).is_none());
    }
}

/// Passes many messages both ways at once and checks the order of messages and of completions.
pub fn messages_and_completions_keep_their_order(world: &World) {
    const COUNT: u32 = 500;
    fn turn(end: &mut End, sent: &mut u32, done: &mut u64, received: &mut u32) {
        while *sent < COUNT && u64::from(*sent) - *done < 8 {
            end.tell(u64::from(*sent), *sent);
            *sent += 1;
        }
        while let Some(completion) = end.endpoint.poll() {
            match completion {
                Completion::Sent { id, status } => {
                    assert_eq!((id, status), (*done, CompletionStatus::Success));
                    *done += 1;
                }
                Completion::Received { message, .. } => {
                    assert_eq!(message, *received);
                    *received += 1;
                    end.endpoint.post_receive().unwrap();
                }
                Completion::Flushed => panic!("flushed"),
            }
        }
    }
    let Pair { mut client, mut server } = world.connect();
    let mut counts = [(0, 0, 0); 2];
    crate::world::until("all messages", || {
        for (end, (sent, done, received)) in [&mut client, &mut server].into_iter().zip(&mut counts) {
            turn(end, sent, done, received);
        }
        counts.iter().all(|c| *c == (COUNT, u64::from(COUNT), COUNT))
    });
}

pub fn an_empty_write_takes_no_receive(world: &World) {
    let Pair { mut client, mut server } = world.connect();
    let nothing = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };
    for id in 0..2 * u64::from(DEPTH.receives) {
        client.post(id, nothing);
        assert_eq!(client.next(), Completion::Sent { id, status: CompletionStatus::Success });
    }
    assert_eq!(server.endpoint.poll(), None);
    client.tell(1, 5);
    assert_eq!(server.next_message().0, 5);
}

pub fn a_full_send_queue_says_so(world: &World) {
    let Pair { mut client, server } = world.connect();
    let nothing = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };
    // A device may have made the queue deeper than asked, not shallower.
    let mut posted: u64 = 0;
    let error = loop {
        match client.endpoint.post(&WorkRequest { id: posted, op: nothing }) {
            Ok(()) => posted += 1,
            Err(error) => break error,
        }
        assert!(posted < 100_000, "never full");
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(posted >= u64::from(DEPTH.sends));
    for id in 0..posted {
        assert_eq!(client.next(), Completion::Sent { id, status: CompletionStatus::Success });
    }
    client.post(9, nothing);
    assert_eq!(client.next_sent(), (9, CompletionStatus::Success));
    drop(server);
}

/// Writes there and expects the peer's card to refuse it. What becomes of the peer's receives
/// differs among cards.
fn is_refused(mut client: End, server: End, (to, rkey): (u64, u32)) {
    let from = Source::Ring([(client.rings.send.address(), 64), (0, 0)]);
    client.rings.send.put(0, &[0xee; 64]);
    client.post(1, Op::Write { from, to, rkey, immediate: None });
    let (id, status) = client.next_sent();
    assert_eq!(id, 1);
    if client.iwarp {
        // iWARP acknowledges nothing: a card may learn of the refusal after the completion.
        assert!(
            matches!(
                status,
                CompletionStatus::RemoteRefused | CompletionStatus::Success | CompletionStatus::Flushed
            ),
            "{status:?}"
        );
        client.wait_for_end();
    } else {
        assert_eq!(status, CompletionStatus::RemoteRefused);
    }
    client.post(2, Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None });
    assert_eq!(client.next_sent(), (2, CompletionStatus::Flushed));
    assert!(!server.rings.recv.get(0, RING).contains(&0xee), "nothing was written");
}

pub fn a_key_opens_its_own_connection_only(world: &World) {
    let mine = world.connect();
    let other = world.connect();
    let foreign = other.server.target();
    is_refused(mine.client, mine.server, foreign);
    assert!(!other.server.rings.recv.get(0, RING).contains(&0xee), "nor there");
}

pub fn a_key_of_another_connection_does_not_open_this_ring(world: &World) {
    let (mine, other) = (world.connect(), world.connect());
    let target = (mine.server.target().0, other.server.keys.recv_rkey);
    is_refused(mine.client, mine.server, target);
}

pub fn a_write_outside_the_ring_is_refused(world: &World) {
    for offset in [RING as u64 - 63, RING as u64, 0_u64.wrapping_sub(1)] {
        let pair = world.connect();
        let (base, rkey) = pair.server.target();
        is_refused(pair.client, pair.server, (base.wrapping_add(offset), rkey));
    }
}

pub fn the_send_ring_is_not_for_the_peer(world: &World) {
    let pair = world.connect();
    let target = (pair.server.rings.send.address(), pair.server.keys.recv_rkey);
    is_refused(pair.client, pair.server, target);
}

pub fn messages_without_receives_wait_for_them(world: &World) {
    let Pair { mut client, mut server } =
        world.connect_with(&Rings::new(RING, 1), &Rings::new(RING, 2), DEPTH);
    if client.iwarp {
        return;
    }
    server.endpoint.shorten_rnr_timer().unwrap();
    let mut sent = 0;
    for _ in 0..DEPTH.receives {
        client.tell(u64::from(sent), sent);
        assert_eq!(client.next_sent(), (u64::from(sent), CompletionStatus::Success));
        sent += 1;
    }
    client.tell(99, sent);
    // Time for a message that does not wait.
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(client.endpoint.poll(), None, "no receive is posted");
    for expected in 0..=sent {
        assert_eq!(server.next_message().0, expected);
        server.endpoint.post_receive().unwrap();
    }
    assert_eq!(client.next_sent(), (99, CompletionStatus::Success));
}
