//! Requests and answers that no rsocket makes: refused, and the next one is served.

use crate::hosts::{Host, RC, exchange, pair, receive};
use crate::raw_peer::{Shape, accept_with, connect_with, connected};
use crate::support::client::{nobody, std_addr};
use crate::support::world::listen;
use crate::support::{SOLO, bounded};
use gpunet_core::verbs::Verbs;
use gpunet_core::verbs::sim::{Fabric, FabricSettings};
use gpunet_device::{Error, Stream};
use std::io::ErrorKind;

/// A way to spoil private data, and its name.
type Way = (&'static str, fn(&mut Vec<u8>));

/// Ways to spoil private data; the last ones where its length is told.
fn spoilt(iwarp: bool) -> Vec<Way> {
    let mut ways: Vec<Way> = vec![
        ("no private data", Vec::clear),
        ("another version", |data| data[0] = 2),
        ("a table of one entry", |data| data[23] = 1),
        ("no table", |data| data[20..24].fill(0)),
        ("a table round the end of memory", |data| data[8..24].fill(0xff)),
        ("a buffer round the end of memory", |data| data[24..40].fill(0xff)),
    ];
    if iwarp {
        ways.push(("private data too short", |data| data.truncate(39)));
    }
    ways
}

fn fabric(iwarp: bool) -> Fabric {
    Fabric::with(FabricSettings { iwarp, ..FabricSettings::new(31) })
}

#[test]
fn a_request_of_no_rsocket_is_refused_and_the_next_is_served() {
    bounded(|| {
        for iwarp in [false, true] {
            let fabric = fabric(iwarp);
            let host = Host::new(&fabric);
            let listener = listen(host.net(), RC);
            let addr = std_addr(listener.local_addr());
            let sim = fabric.host();
            for (what, spoil) in spoilt(iwarp) {
                let refused = connect_with(&sim, addr, Shape::PLAIN, spoil).map(|_| ());
                assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused), "{what}");
                let (mut peer, mut stream) = connected(&sim, &listener, Shape::PLAIN);
                peer.data(1, 0, 100, 100);
                assert_eq!(receive(&mut stream, 1, 0, 100), (100, None));
                drop(peer);
                stream.close(&SOLO).expect("open");
            }
            listener.close(&SOLO).expect("open");
            host.end();
            let usage = sim.usage();
            assert_eq!((usage.queue_pairs, usage.identifiers), (0, 0));
        }
    });
}

/// They spoil no accept that waits, either.
#[test]
fn an_accept_waits_on_while_others_are_refused() {
    bounded(|| {
        let fabric = fabric(false);
        let host = Host::new(&fabric);
        let other = Host::new(&fabric);
        let listener = listen(host.net(), RC);
        let addr = listener.local_addr();
        let sim = fabric.host();
        let net = other.net();
        let clients = std::thread::spawn(move || {
            for (what, spoil) in spoilt(false) {
                let refused = connect_with(&sim, std_addr(addr), Shape::PLAIN, spoil).map(|_| ());
                assert_eq!(refused.map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused), "{what}");
            }
            Stream::connect_with(&SOLO, net, addr, RC).map(|s| s.handle()).expect("connected")
        });
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let mut client = crate::hosts::open(net, clients.join().expect("no panic"));
        exchange(&mut client, &mut stream);
        client.close(&SOLO).expect("open");
        stream.close(&SOLO).expect("open");
        listener.close(&SOLO).expect("open");
        host.end();
        other.end();
    });
}

#[test]
fn an_answer_of_no_rsocket_is_a_refusal() {
    bounded(|| {
        for iwarp in [false, true] {
            let fabric = fabric(iwarp);
            let host = Host::new(&fabric);
            let sim = fabric.host();
            let addr = nobody();
            let mut listening = sim.listen(std_addr(addr), 8).expect("nobody is there");
            for (what, spoil) in spoilt(iwarp) {
                let net = host.net();
                let connect = move || Stream::connect_with(&SOLO, net, addr, RC).map(|_| ());
                let client = std::thread::spawn(connect);
                // It may be gone by the time that it is accepted.
                let peer = accept_with(&mut *listening, Shape::PLAIN, spoil);
                assert_eq!(client.join().expect("no panic"), Err(Error::ConnectionRefused), "{what}");
                drop(peer);
                host.expect_all_free();
            }
            drop(listening);
            // The host connects to others as before.
            let other = Host::new(&fabric);
            let (mut a, mut b) = pair(host.net(), other.net(), RC);
            exchange(&mut a, &mut b);
            a.close(&SOLO).expect("open");
            b.close(&SOLO).expect("open");
            host.end();
            other.end();
        }
    });
}
