//! Two proxies, a stream from one to the other, and what it costs.

use crate::meter::{Counts, Meter};
use crate::support::pair::sockets;
use crate::support::world::rc_home;
use crate::support::{Memory, SOLO, World, bounded, not_run, small};
use gpunet_core::verbs::sim::Fabric;
use gpunet_device::copy::copy_into_ring;
use gpunet_device::{Options, TransportKind};
use gpunet_proxy::Config;
use gpunet_proxy::config::Rdma;
use gpunet_proxy::queue::Queue;
use gpunet_proxy::socket::{Receiver, SendMessage, Sender};
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Bytes of both rings.
pub const RING: usize = 64 << 10;

/// A stream: what one host sends, the other one receives.
pub struct Hosts<'a> {
    meter: &'a Meter,
    pub sender: Sender,
    pub here: Queue,
    pub receiver: Receiver,
    pub there: Queue,
}

/// Runs a test with a stream between two hosts, while no other test uses the device.
pub fn hosts(test: &'static str, body: impl FnOnce(Hosts<'_>) + Send + 'static) {
    static DEVICE: Mutex<()> = Mutex::new(());
    // A test that has failed is over.
    let _alone = DEVICE.lock().unwrap_or_else(PoisonError::into_inner);
    let (meter, rdma) = match rc_home() {
        None => {
            let fabric = Fabric::new(11);
            (Meter::Simulated(fabric.clone()), Rdma::Simulated(fabric))
        }
        Some(ip) => match Meter::device(ip) {
            Ok(meter) => (meter, Rdma::System),
            Err(why) => return not_run(test, &why),
        },
    };
    bounded(move || {
        // No signs of life, which nobody could tell from other requests.
        let config = Config { rdma, rc_keepalive: Duration::from_secs(600), ..small() };
        let (here, there) = (World::with(config.clone()), World::with(config));
        body(Hosts::new(&meter, &here, &there));
        here.end();
        there.end();
    });
}

impl<'a> Hosts<'a> {
    fn new(meter: &'a Meter, here: &World, there: &World) -> Self {
        let ring = RING as u64;
        let options = Options::DEFAULT.with_transport(TransportKind::Rc).with_rings(ring, ring);
        let [near, far] = sockets(here.attachment(), there.attachment(), options);
        let queue = |world: &World| Queue::cpu(world.attachment()).expect("a queue");
        Self {
            meter,
            sender: near.take_send().expect("nobody uses it"),
            here: queue(here),
            receiver: far.take_recv().expect("nobody uses it"),
            there: queue(there),
        }
    }

    /// Counts what an action costs, and says so.
    pub fn cost(&mut self, what: &str, action: impl FnOnce(&mut Self)) -> Counts {
        let meter = self.meter;
        let counts = meter.cost(|| action(self));
        // The test harness keeps what `println` prints to itself.
        let _ = writeln!(std::io::stderr(), "{what}: {counts}, counted by {meter}");
        counts
    }

    /// Checks that an action costs so many requests, each with a message.
    #[track_caller]
    pub fn expect(&mut self, messages: u64, what: &str, action: impl FnOnce(&mut Self)) {
        let counts = self.cost(what, action);
        assert_eq!(counts.messages, messages, "{what}: messages");
        expect_requests(what, counts);
    }

    /// Places a message with bytes `start..start + len` of the stream number `seed`, once there is
    /// room.
    pub fn prepare(&mut self, seed: u64, start: usize, len: usize) -> SendMessage {
        let message = self.sender.prepare(len).expect("room");
        self.here.wait(&[message.room]).expect("open");
        self.here.synchronize().expect("it is read");
        let bytes = Memory::filled(seed, start, len);
        // SAFETY: the ring has room for the message, which nobody else writes; the buffer holds it.
        unsafe { copy_into_ring(&SOLO, message.span, bytes.buffer().as_ptr()) };
        message
    }

    /// Publishes what is prepared up to a message, and waits until it has arrived.
    pub fn post(&mut self, message: &SendMessage) {
        self.here.post(&[message.post]).expect("open");
        self.here.wait(&[message.done]).expect("open");
        self.here.synchronize().expect("it arrives");
    }

    /// Receives so many bytes, and compares each.
    #[track_caller]
    pub fn receive(&mut self, seed: u64, start: usize, len: usize) {
        let came = Memory::new(len);
        self.there.recv(&mut self.receiver, came.buffer()).expect("a position");
        self.there.synchronize().expect("it comes");
        assert!(came.holds(0, len, seed, start), "the bytes at {start}");
    }
}

/// Checks that each request had a message, as far as that can be told.
#[track_caller]
pub fn expect_requests(what: &str, counts: Counts) {
    match counts.requests() {
        Some(requests) => assert_eq!(requests, counts.messages, "{what}: requests without a message"),
        // A machine under load: messages are counted all the same.
        None => {
            let _ = writeln!(std::io::stderr(), "NOT COMPARED: {what}: requests, since some were sent again");
        }
    }
}
