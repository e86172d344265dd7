//! Streams with units: memory that is used again, and ends without them.

use crate::support::pair::{pair, sockets};
use crate::support::world::small;
use crate::support::{Memory, SOLO, World, bounded};
use gpunet_device::{Options, Shutdown, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::config::Lines;

fn world() -> World {
    World::with(Config { lines: Lines::Units, ..small() })
}

fn options(ring: u64) -> Options {
    Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(ring, ring)
}

/// Small rings lie where the unit ring of a large one was: its slots must not be their words.
#[test]
fn small_rings_take_the_place_of_a_unit_ring() {
    bounded(|| {
        let near = world();
        let far = World::beside(&near);
        for (ring, streams) in [(1 << 20, 1), (64 << 10, 12), (4 << 10, 24), (1 << 20, 1)] {
            let mut open: Vec<_> = (0..streams).map(|_| pair(near.net(), far.net(), options(ring))).collect();
            for round in 0..2000 {
                for [one, other] in &mut open {
                    let len = round % 64 + 1;
                    let (message, received) = (Memory::filled(7, round, len), Memory::new(len));
                    one.send_all(&SOLO, message.buffer()).expect("sent");
                    let n = other.recv_exact(&SOLO, received.buffer());
                    assert_eq!(n, Ok(len), "ring {ring}, round {round}");
                    assert!(received.holds(0, len, 7, round), "ring {ring}, round {round}");
                }
            }
            for [one, other] in open {
                one.close(&SOLO).expect("open");
                other.close(&SOLO).expect("open");
            }
            near.expect_all_free();
            far.expect_all_free();
        }
    });
}

/// The host program's own sockets know no units, and take all messages from the ring.
#[test]
fn the_host_programs_sockets_do_without_units() {
    bounded(|| {
        let world = world();
        let [near, far] = sockets(world.attachment(), world.attachment(), options(1 << 20));
        let stream = |socket: &gpunet_proxy::socket::Socket| {
            gpunet_device::Stream::from_handle(&SOLO, world.net(), socket.handle()).expect("open")
        };
        let (mut one, mut other) = (stream(&near), stream(&far));
        let received = Memory::new(64);
        for round in 0..1000 {
            one.send_all(&SOLO, Memory::filled(3, round, 64).buffer()).expect("sent");
            assert_eq!(other.recv_exact(&SOLO, received.buffer()), Ok(64));
            assert!(received.holds(0, 64, 3, round), "round {round}");
        }
        one.shutdown(&SOLO, Shutdown::Write);
        assert_eq!(other.recv_exact(&SOLO, received.buffer()), Ok(0));
    });
}
