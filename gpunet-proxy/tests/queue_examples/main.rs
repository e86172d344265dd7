//! The examples of queues, in every place where two ranks can be.
#![allow(clippy::duplicate_mod, reason = "each example has the module that they share")]

#[path = "../support/mod.rs"]
mod support;

#[path = "../../examples/queue_backpressure.rs"]
#[allow(dead_code, reason = "its `main` is the example's")]
mod queue_backpressure;
#[path = "../../examples/queue_pingpong.rs"]
#[allow(dead_code, reason = "as above")]
mod queue_pingpong;
#[path = "../../examples/queue_puts.rs"]
#[allow(dead_code, reason = "as above")]
mod queue_puts;

use gpunet_device::TransportKind;
use gpunet_proxy::Attachment;
use support::place::places;
use support::{bounded, pauses_seed};

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn everywhere(example: impl Fn(&Attachment, &Attachment, TransportKind) -> Ended + Copy + Send + 'static) {
    for place in places() {
        bounded(move || place.run(|near, far| example(near, far, place.kind()).expect("it runs")));
    }
}

#[test]
fn a_message_goes_to_and_fro() {
    // Pauses make each exchange tens of times as long. So many wrap the ring with 1000 bytes, too.
    let exchanges = if pauses_seed().is_some() { 18 } else { queue_pingpong::EXCHANGES };
    everywhere(move |near, far, transport| queue_pingpong::run(near, far, transport, exchanges));
}

#[test]
fn a_consumer_that_stalls_loses_nothing() {
    everywhere(queue_backpressure::run);
}

#[test]
fn puts_are_there_when_their_signal_is() {
    // As above; each round fills the ring.
    let rounds = if pauses_seed().is_some() { 5 } else { queue_puts::ROUNDS };
    everywhere(move |near, far, transport| queue_puts::run(near, far, transport, rounds));
}
