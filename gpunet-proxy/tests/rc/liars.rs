//! Peers that break the protocol: their own connection ends, nobody else's, and nothing is left.

use crate::hosts::{Bystanders, Host, RC, config, receive, send_error};
use crate::raw_peer::{RawPeer, Shape, connected};
use crate::support::world::listen;
use crate::support::{Memory, SOLO, bounded, until};
use gpunet_core::rc::Hello;
use gpunet_core::verbs::sim::{Fabric, Sim};
use gpunet_core::verbs::{CompletionStatus, Op, Sge, Source};
use gpunet_device::{Error, Listener};
use gpunet_proxy::Config;
use std::time::Duration;

const RING: u32 = 16_384;

/// A device with a listener, streams that have nothing to do with it, and a liar's host.
struct Scene {
    fabric: Fabric,
    host: Host,
    listener: Listener,
    bystanders: Bystanders,
    sim: Sim,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let fabric = Fabric::new(seed);
        // No sign of life is asked for here: what ends a connection is the lie.
        let quiet = Config { rc_keepalive: Duration::from_secs(600), ..config(&fabric) };
        let host = Host::with(&fabric, quiet);
        let bystanders = Bystanders::of(&host);
        let rings = RC.with_rings(u64::from(RING), u64::from(RING));
        let listener = listen(host.net(), rings);
        let sim = fabric.host();
        Self { fabric, host, listener, bystanders, sim }
    }

    /// A connection that said `sent` bytes of the truth before `lie`, and ends with `expected`.
    fn expect(&mut self, what: &str, sent: usize, expected: Error, lie: impl FnOnce(&mut RawPeer)) {
        let (mut peer, mut stream) = connected(&self.sim, &self.listener, Shape::PLAIN);
        if sent > 0 {
            peer.data(7, 0, sent, sent as u32);
            until("the truth has come", || stream.available(&SOLO) == Ok(sent));
        }
        lie(&mut peer);
        // The liar may have written over what it sent itself; else what came before is whole.
        let memory = Memory::new(RING as usize);
        if sent > 0 {
            assert_eq!(stream.recv_exact(&SOLO, memory.buffer().first(sent)), Ok(sent), "{what}");
            assert!(what.starts_with("more than") || memory.holds(0, sent, 7, 0), "{what}");
        }
        let (_, end) = receive(&mut stream, 7, sent, usize::MAX);
        assert_eq!(end, Some(expected), "{what}");
        assert_eq!(stream.recv(&SOLO, memory.buffer()), Err(expected), "{what}");
        assert_eq!(send_error(&mut stream), expected, "{what}");
        stream.close(&SOLO).expect("open");
        self.bystanders.are_well();
        until("the liar is told", || peer.endpoint.is_disconnected());
    }

    fn end(self) {
        self.listener.close(&SOLO).expect("open");
        self.bystanders.end();
        assert_eq!(self.fabric.usage(self.sim.id()).queue_pairs, 0);
        self.host.end();
    }
}

#[test]
fn data_that_was_not_granted() {
    bounded(|| {
        let mut scene = Scene::new(21);
        scene.expect("more than the ring", RING as usize, Error::Protocol, |peer| peer.data(7, 0, 1, 1));
        scene.expect("more than was granted", 16_000, Error::Protocol, |peer| {
            // The whole area's end and its beginning again.
            let pieces = [(peer.send.as_ptr() as u64, 500), (0, 0)];
            let area = peer.theirs.area;
            peer.write(Source::Ring(pieces), area.address, area.rkey, 500);
        });
        scene.expect("more than was written", 100, Error::Protocol, |peer| peer.data(7, 100, 10, 11));
        scene.expect("less than was written", 100, Error::Protocol, |peer| peer.data(7, 100, 10, 9));
        scene.expect("as much as a message can say", 0, Error::Protocol, |peer| {
            peer.message(0x1fff_ffff);
        });
        scene.end();
    });
}

#[test]
fn messages_that_are_none() {
    bounded(|| {
        let mut scene = Scene::new(22);
        scene.expect("data of no bytes", 10, Error::Protocol, |peer| peer.message(0));
        for op in [1, 3, 5] {
            scene.expect("a reserved operation", 10, Error::Protocol, |peer| peer.message(op << 29 | 1));
        }
        let fabric = scene.fabric.clone();
        scene.expect("data after the end", 10, Error::Protocol, |peer| {
            // In one go, so that the device has not read the end before.
            fabric.partition();
            peer.message(7 << 29 | 2);
            peer.data(7, 10, 10, 10);
            fabric.restore();
        });
        scene.end();
    });
}

#[test]
fn credits_that_cannot_be() {
    bounded(|| {
        let mut scene = Scene::new(23);
        scene.expect("credits taken back", 10, Error::Protocol, |peer| peer.message(4 << 29 | 63));
        scene.expect("more credits than receives", 10, Error::Protocol, |peer| {
            peer.message(4 << 29 | 65);
        });
        scene.expect("more, and fewer again", 10, Error::Protocol, |peer| {
            peer.message(4 << 29 | 64);
            peer.message(4 << 29 | 64);
            peer.message(4 << 29 | 0xffff);
        });
        scene.end();
    });
}

#[test]
fn descriptors_that_cannot_be() {
    bounded(|| {
        let mut scene = Scene::new(24);
        scene.expect("an entry overwritten early", 10, Error::Protocol, |peer| {
            let area = peer.area(0, 4096);
            peer.publish(1, area, 64);
            peer.publish(0, area, 64);
        });
        scene.expect("a buffer round the end of memory", 10, Error::Protocol, |peer| {
            peer.publish(1, Sge { address: u64::MAX - 9, rkey: 1, len: 100 }, 64);
        });
        scene.end();
    });
}

/// The card that delivers them is the one that the link's end lets go on all at once, so that no
/// grant comes between them.
#[test]
fn data_without_credit() {
    bounded(|| {
        let mut scene = Scene::new(25);
        let fabric = scene.fabric.clone();
        scene.expect("without credit", 0, Error::Protocol, |peer| {
            fabric.partition();
            let credits = u32::from(peer.theirs.credits);
            for i in 0..credits + 1 {
                peer.data(7, i as usize, 1, 1);
            }
            fabric.restore();
        });
        scene.end();
    });
}

/// What the keys do not open is refused by the card. The device's end learns it by its next sign of
/// life.
#[test]
fn writes_that_the_keys_do_not_open() {
    bounded(|| {
        let mut scene = Scene::new(26);
        let (mut other, mut theirs) = connected(&scene.sim, &scene.listener, Shape::PLAIN);
        other.data(7, 0, 5000, 5000);
        until("it has come", || theirs.available(&SOLO) == Ok(5000));
        // Where, with which key: by what the device told the liar, and what it told another.
        type Target = fn(&Hello, &Hello) -> (u64, u32);
        let end = u64::from(RING);
        let targets: [(&str, u64, Target); 6] = [
            ("behind the ring", end, |own, _| (own.area.address, own.area.rkey)),
            ("across its end", end - 8, |own, _| (own.area.address, own.area.rkey)),
            ("before the ring", 0, |own, _| (own.area.address - 16, own.area.rkey)),
            ("another connection's ring, by its key", 0, |_, other| (other.area.address, other.area.rkey)),
            ("another connection's ring, by its own key", 0, |own, other| {
                (other.area.address, own.area.rkey)
            }),
            ("another connection's table", 16, |_, other| (other.table.address, other.table.rkey)),
        ];
        for (what, offset, target) in targets {
            scene.expect(what, 100, Error::ConnectionReset, |peer| {
                let (to, rkey) = target(&peer.theirs, &other.theirs);
                peer.fill(99, 0, 16);
                while peer.endpoint.poll().is_some() {}
                let from = Source::Ring([(peer.send.as_ptr() as u64, 16), (0, 0)]);
                peer.post(Op::Write { from, to: to + offset, rkey, immediate: None });
                assert_eq!(peer.sent(), CompletionStatus::RemoteRefused, "{what}");
            });
        }
        // Its bytes are what they were, and it works on.
        assert_eq!(receive(&mut theirs, 7, 0, 5000), (5000, None));
        other.data(7, 5000, 100, 100);
        assert_eq!(receive(&mut theirs, 7, 5000, 100), (100, None));
        drop(other);
        theirs.close(&SOLO).expect("open");
        scene.end();
    });
}
