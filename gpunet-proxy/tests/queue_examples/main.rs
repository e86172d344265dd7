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
use support::bounded;
use support::place::places;

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn everywhere(example: fn(&Attachment, &Attachment, TransportKind) -> Ended) {
    for place in places() {
        bounded(move || place.run(|near, far| example(near, far, place.kind()).expect("it runs")));
    }
}

#[test]
fn a_message_goes_to_and_fro() {
    everywhere(queue_pingpong::run);
}

#[test]
fn a_consumer_that_stalls_loses_nothing() {
    everywhere(queue_backpressure::run);
}

#[test]
fn puts_are_there_when_their_signal_is() {
    everywhere(queue_puts::run);
}
