//! Slots come and go: connects that are refused.

use crate::support::client::nobody;
use crate::support::rng::Rng;
use crate::support::{SOLO, World, small};
use gpunet_device::{Error, Options, Stream, TransportKind};
use gpunet_posix as posix;
use gpunet_proxy::{Config, FinishPolicy};
use std::collections::BTreeSet;

const SOCKETS: u32 = 8;

/// Threads connect where nobody listens. Afterwards every slot is free, once.
pub fn play(mut rng: Rng) {
    let mut world = World::with(Config { sockets: SOCKETS, ..small() });
    let net = world.net();
    let addr = nobody();
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let attempts = 40 + rng.below(40);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                for attempt in 0..attempts {
                    let refused = Stream::connect_with(&SOLO, net, addr, tcp).map(|_| ());
                    assert_eq!(refused, Err(Error::ConnectionRefused), "attempt {attempt}");
                }
            });
        }
    });
    world.expect_all_free();
    let make = || posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
    let slots: BTreeSet<i64> = (0..SOCKETS).map(|_| make().expect("a free slot") & 0xffff).collect();
    assert_eq!(slots.len(), SOCKETS as usize, "each slot once: {slots:?}");
    assert_eq!(make(), Err(Error::TooManySockets));
    assert_eq!(world.relaunch(FinishPolicy::Close).left_open, SOCKETS as usize);
    world.end();
}
