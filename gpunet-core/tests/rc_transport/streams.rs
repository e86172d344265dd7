//! What a stream reports of the bytes it was offered.

use crate::world::{End, World};
use gpunet_core::verbs::sim::Fabric;
use std::io::ErrorKind;

const RING: u64 = 64 << 10;

/// A stream whose first ring of bytes was read at the other end, and whose second one is offered while
/// the peer's grant has not come yet.
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
