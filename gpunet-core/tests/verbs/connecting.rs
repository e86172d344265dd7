//! Conformance: how connections are made, refused and ended.

use crate::buffer::Rings;
use crate::world::{DEPTH, RING, World, encode, next, until};
use gpunet_core::verbs::{Depth, Keys, Listening, Request, Usage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::timeout;

pub fn private_data_travels_both_ways(world: &World) {
    let pair = world.connect();
    assert_eq!(pair.server.private_data[..16], encode(&pair.client.keys));
    assert_eq!(pair.client.private_data[..16], encode(&pair.server.keys));
    if pair.client.iwarp {
        assert_eq!((pair.server.private_data.len(), pair.client.private_data.len()), (16, 16));
    } else {
        assert_eq!(pair.server.private_data.len(), 56);
        assert!(pair.client.private_data.len() >= 56);
        assert!(pair.server.private_data[16..].iter().all(|b| *b == 0), "padded with zeros");
    }
}

pub fn too_much_private_data_is_refused_at_once(world: &World) {
    let (addr, _listening) = world.listen(1);
    let mut handshake = world.resolve(addr);
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    let error = world.wait(handshake.connect(&[0; 57])).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

pub fn a_rejected_client_is_refused(world: &World) {
    let (addr, mut listening) = world.listen(4);
    for drops in [false, true] {
        let mut handshake = world.resolve(addr);
        handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
        let answer = async {
            let Request { handshake, .. } = next(&mut *listening).await;
            if drops { drop(handshake) } else { handshake.reject() }
        };
        let (connected, ()) = world.wait(async { tokio::join!(handshake.connect(&[1]), answer) });
        assert_eq!(connected.err().expect("refused").kind(), ErrorKind::ConnectionRefused);
    }
}

pub fn nobody_listens(world: &World) {
    let mut handshake = world.resolve(world.address());
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    let error = world.wait(handshake.connect(&[1])).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

pub fn a_closed_listener_refuses_those_who_wait(world: &World) {
    let (addr, listening) = world.listen(4);
    let mut handshake = world.resolve(addr);
    handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
    let close = async {
        loop {
            let requests = listening.readiness();
            let mut fds = [PollFd::new(&requests, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(listening);
    };
    let (connected, ()) = world.wait(async { tokio::join!(handshake.connect(&[1]), close) });
    assert_eq!(connected.err().expect("refused").kind(), ErrorKind::ConnectionRefused);
}

pub fn an_address_is_listened_at_once(world: &World) {
    let (addr, listening) = world.listen(4);
    assert_eq!(world.server.listen(addr, 4).err().expect("in use").kind(), ErrorKind::AddrInUse);
    drop(listening);
    until("the address to be free", || world.server.listen(addr, 4).is_ok());
}

pub fn requests_come_in_order(world: &World) {
    let (addr, mut listening) = world.listen(8);
    assert_eq!(listening.next().err().expect("empty").kind(), ErrorKind::WouldBlock);
    let rings: Vec<_> = (0..4).map(|i| Rings::new(RING, i)).collect();
    world.wait(async {
        let mut waiting = Vec::new();
        for (i, rings) in rings.iter().enumerate() {
            let mut handshake = world.client.resolve(addr, None).await.unwrap();
            handshake.prepare(&rings.memory(), DEPTH).unwrap();
            let mut connecting = handshake.connect(&[i as u8]);
            // Some steps happen only when the future is polled.
            let poll = timeout(Duration::from_millis(200), &mut connecting).await;
            assert!(poll.is_err(), "nobody has accepted it");
            waiting.push(connecting);
        }
        // One gives up.
        drop(waiting.remove(1));
        tokio::time::sleep(Duration::from_millis(200)).await;
        for expected in [0, 2, 3] {
            let mut request = next(&mut *listening).await;
            if request.private_data[0] == 1 {
                // The kernel forgets what happens to a request before it is fetched, so the
                // client's absence may show only now.
                request.handshake.prepare(&Rings::new(RING, 9).memory(), DEPTH).unwrap();
                assert!(request.handshake.accept(&[]).await.is_err(), "its client has gone");
                request = next(&mut *listening).await;
            }
            assert_eq!(request.private_data[0], expected);
            assert_eq!(request.handshake.local(), addr);
        }
    });
}

/// Clients that have asked and do not take the answer: one that continues later, and one that gives
/// up.
pub fn an_accept_waits_for_its_client(world: &World) {
    // For the steps that lead to where both ends stand still.
    let step = Duration::from_millis(100);
    let (addr, mut listening) = world.listen(4);
    for gives_up in [false, true] {
        let mut handshake = world.resolve(addr);
        if handshake.device().iwarp {
            // There the answer is the last message.
            return;
        }
        handshake.prepare(&Rings::new(RING, 1).memory(), DEPTH).unwrap();
        let mut connecting = handshake.connect(&[1]);
        world.wait(async {
            assert!(timeout(step, &mut connecting).await.is_err(), "nobody has accepted it");
            let mut passive = next(&mut *listening).await.handshake;
            passive.prepare(&Rings::new(RING, 2).memory(), DEPTH).unwrap();
            let mut accepting = passive.accept(&[]);
            assert!(timeout(step, &mut accepting).await.is_err(), "its client has not taken the answer");
            if gives_up {
                drop(connecting);
                assert!(accepting.await.is_err(), "its client has gone");
            } else {
                let (connected, accepted) = tokio::join!(connecting, accepting);
                assert!(connected.is_ok() && accepted.is_ok());
            }
        });
    }
}

pub fn a_drop_ends_the_connection_for_the_peer(world: &World) {
    for server_first in [false, true] {
        let mut pair = world.connect();
        assert!(!pair.client.endpoint.is_disconnected() && !pair.server.endpoint.is_disconnected());
        if server_first {
            drop(pair.server);
            pair.client.wait_for_end();
        } else {
            drop(pair.client);
            pair.server.wait_for_end();
        }
    }
}

pub fn a_hundred_connections_leave_nothing_behind(world: &World) {
    let rings = (Rings::new(RING, 1), Rings::new(RING, 2));
    let (addr, mut listening) = world.listen(8);
    let connect = |listening: &mut dyn Listening| {
        let pair = world.connect_to(addr, listening, (&rings.0, &rings.1), DEPTH);
        (pair.client.keys, pair.server.keys)
    };
    let settled = || world.client.usage().queue_pairs == 0 && world.server.usage().queue_pairs == 0;
    // Before the first connection: an identifier may outlive its queue pair by seconds.
    let identifiers = || (world.client.usage().identifiers, world.server.usage().identifiers);
    let before = identifiers();
    let first = connect(&mut *listening);
    until("the first connection to be gone", settled);
    let baseline = (world.client.usage(), world.server.usage());
    assert!(baseline.0.memory_regions > 0, "its registrations are kept");
    let mut keys = vec![first];
    for _ in 0..100 {
        keys.push(connect(&mut *listening));
        until("a connection to be gone", settled);
    }
    until("identifiers to be as before", || identifiers() == before);
    // Registrations may come back a moment after the queue pair went, and then another set is made
    // for the connection that came too early; never more than that.
    for of in [|k: &(Keys, Keys)| k.0.recv_rkey, |k: &(Keys, Keys)| k.1.recv_rkey] {
        let distinct: HashSet<_> = keys.iter().map(of).collect();
        assert!(distinct.len() <= 2, "registered {} times", distinct.len());
    }
    let regions = |usage: Usage| usage.memory_regions;
    assert!(regions(world.client.usage()) <= 2 * regions(baseline.0));
    assert!(regions(world.server.usage()) <= 2 * regions(baseline.1));
    world.client.forget(1);
    world.server.forget(2);
    until("the registrations to be gone", || {
        world.client.usage().memory_regions == 0 && world.server.usage().memory_regions == 0
    });
}

pub fn memory_forgotten_in_use_goes_with_its_connection(world: &World) {
    let pair = world.connect_with(&Rings::new(RING, 77), &Rings::new(RING, 78), DEPTH);
    world.client.forget(77);
    assert!(world.client.usage().memory_regions > 0, "in use");
    drop(pair);
    until("the registrations to be gone", || world.client.usage().memory_regions == 0);
}

pub fn an_impossible_depth_is_refused(world: &World) {
    let mut handshake = world.resolve(world.address());
    let deep = Depth { sends: handshake.device().max_depth + 1, receives: 16 };
    assert!(handshake.prepare(&Rings::new(RING, 1).memory(), deep).is_err());
}
