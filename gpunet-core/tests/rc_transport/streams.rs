//! What a stream reports of the bytes it was offered.

use crate::world::{End, World};
use gpunet_core::verbs::sim::Fabric;
use gpunet_core::verbs::{Op, Source, WorkRequest};
use std::io::ErrorKind;

const RING: u64 = 64 << 10;

/// A stream whose first ring of bytes was read at the other end, and whose second one is offered
/// while the peer's grant has not come yet.
fn with_a_ring_offered_before_its_grant() -> (End, End) {
    let (mut client, mut server) = World::new(&Fabric::new(1)).pair(RING);
    assert!(client.turn(0).writable);
    assert_eq!(client.offer(RING).expect("granted from the start"), RING as usize);
    client.turn(0);
    assert_eq!(client.io.completed(), RING);
    assert_eq!(client.offer(2 * RING).expect_err("not granted").kind(), ErrorKind::WouldBlock);
    assert!(server.turn(0).readable);
    assert_eq!(server.take(RING).expect("it came"), RING as usize);
    // The server's application has consumed all of it: the whole ring is granted again.
    server.turn(RING);
    (client, server)
}

#[test]
fn bytes_posted_in_a_turn_that_uses_up_the_grant_are_counted() {
    let (mut client, mut server) = with_a_ring_offered_before_its_grant();
    client.rings.send.put(0, &[7; RING as usize]);
    let ready = client.turn(0);
    assert!(server.turn(RING).readable, "the turn has posted them");
    assert!(server.rings.recv.get(0, RING as usize) == [7; RING as usize]);
    assert!(ready.writable, "their number can be asked for");
    assert_eq!(client.offer(2 * RING).expect("posted"), RING as usize);
    assert!(!client.turn(0).writable, "nothing is granted and nothing is left to count");
    assert_eq!((client.io.completed(), client.io.unacknowledged()), (RING, 0));
}

#[test]
fn bytes_posted_before_the_peer_went_are_counted_before_its_end_is_told() {
    let (mut client, mut server) = with_a_ring_offered_before_its_grant();
    client.turn(0);
    server.io.close(0);
    server.turn(RING);
    assert!(server.io.close(0), "the client's card has its last message");
    drop(server);
    assert!(client.turn(0).writable);
    assert_eq!(client.offer(2 * RING).expect("posted"), RING as usize);
    assert_eq!(client.io.unacknowledged(), 0, "all of it arrived");
    assert!(client.offer(3 * RING).is_err(), "the peer is gone");
}

const MS: u64 = 1_000_000;

/// "The connection is over."
const DISCONNECT: Op = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: Some(0xe000_0000) };

/// A card shows a message before it has acknowledged it, and librdmacm waits for that before it
/// closes.
#[test]
fn the_last_message_of_a_plain_peer_is_acknowledged_before_its_queue_pair_goes() {
    let world = World::new(&Fabric::new(2));
    let last = WorkRequest { id: 1, op: DISCONNECT };
    let (mut client, mut server) = world.plain_client(RING);
    client.post(&last).expect("room");
    server.turn_at(5 * MS, 0);
    assert!(!server.io.close(5 * MS), "its message came just now");
    assert_eq!(server.io.deadline(), Some(25 * MS));
    server.turn_at(24 * MS, 0);
    assert!(!server.io.close(24 * MS) && server.io.close(25 * MS));
    // One that comes while this end waits for its own to arrive, and is found outside of a turn.
    let (mut client, mut server) = world.plain_client(RING);
    server.io.close(0);
    client.post(&last).expect("room");
    assert!(server.io.poll());
    assert!(!server.io.close(30 * MS) && server.io.close(50 * MS));
    // A peer that has let go of the connection waits for nothing.
    let (mut client, mut server) = world.plain_client(RING);
    client.post(&last).expect("room");
    drop(client);
    server.turn_at(MS, 0);
    assert!(server.io.close(MS));
    // Nor does a gpunet.
    let (mut client, mut server) = world.pair(RING);
    client.io.close(0);
    server.turn_at(MS, 0);
    assert!(server.io.close(MS));
}
