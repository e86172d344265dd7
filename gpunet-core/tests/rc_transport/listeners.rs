//! What a listener reports of its clients.

use crate::buffer::Rings;
use crate::world::World;
use gpunet_core::verbs::sim::Fabric;
use std::io::ErrorKind;

const RING: usize = 16 << 10;

#[test]
fn a_client_is_a_request_until_it_has_completed_the_handshake() {
    let world = World::new(&Fabric::new(2));
    let (bound, mut listening) = world.listen(4);
    assert!(!listening.has_request());
    let connecting = world.connect(bound.addr, &Rings::new(RING, 1));
    // The client asks, and stops.
    let mut connecting = world.start(connecting, || listening.has_request());
    let mut answering = world.answer(&mut *listening, &Rings::new(RING, 2));
    assert!(!listening.has_request() && listening.ready() == 0);
    assert!(world.is_pending(&mut answering), "the client has not taken the answer");
    assert!(listening.accept().is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    let (connected, answered) = world.wait(async { tokio::join!(&mut connecting, &mut answering) });
    assert!(connected.is_ok() && answered.is_ok());
}

#[test]
fn a_client_that_goes_during_the_handshake_ends_its_answer() {
    let world = World::new(&Fabric::new(3));
    let (bound, mut listening) = world.listen(4);
    let connecting = world.connect(bound.addr, &Rings::new(RING, 1));
    let connecting = world.start(connecting, || listening.has_request());
    let mut answering = world.answer(&mut *listening, &Rings::new(RING, 2));
    assert!(world.is_pending(&mut answering));
    drop(connecting);
    assert!(world.wait(answering).is_err());
}
