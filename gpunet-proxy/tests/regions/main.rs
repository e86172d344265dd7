//! What stands in a client's memory is the client's word: whatever it is, the daemon goes on, and
//! so do all other clients.

#[path = "../support/mod.rs"]
mod support;

use gpunet_device::abi::control::ControlSlot;
use gpunet_device::abi::layout::{PAGE, SocketLine};
use gpunet_device::abi::region::Region;
use gpunet_device::{Listener, Net, Options, Stream, TransportKind};
use gpunet_proxy::{Attachment, FinishPolicy, LaunchToken};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use support::daemon::Served;
use support::pair::pair;
use support::world::listen;
use support::{Memory, SOLO, bounded, raw, small, until};

const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(8192, 8192);
const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(8192, 8192);

/// Where a word is written.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// `published` or `consumed` of some slot.
    Published(u32),
    Consumed(u32),
    /// `requests` or `abandons` of some control slot.
    Request(u32),
    Abandon(u32),
    /// Anywhere in the control slots.
    Control(u64),
    /// Anywhere in the sockets' lines: `landed`, `released`, the status, who sleeps.
    Line(u64),
    /// Anywhere in front of the rings.
    Anywhere(u64),
    /// In the header and the lines of a part of an arena, the own or the other's.
    Near(u64),
    Far(u64),
}

fn place() -> impl Strategy<Value = Place> {
    let slot = || prop_oneof![3 => 0..4u32, 1 => 0..64u32];
    prop_oneof![
        slot().prop_map(Place::Published),
        slot().prop_map(Place::Consumed),
        (0..32u32).prop_map(Place::Request),
        (0..32u32).prop_map(Place::Abandon),
        any::<u64>().prop_map(Place::Control),
        any::<u64>().prop_map(Place::Line),
        any::<u64>().prop_map(Place::Anywhere),
        any::<u64>().prop_map(Place::Near),
        any::<u64>().prop_map(Place::Far),
    ]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        // Counts, sequence numbers, opcodes, slots, generations.
        0..10u64,
        0..200_000u64,
        any::<u64>(),
        // END and ERR, and positions that wrap.
        (0..70_000u64, 0..8u64).prop_map(|(position, bits)| position | bits << 61),
        (0..100u64).prop_map(|less| u64::MAX - less),
        (any::<u32>(), 0..100u32).prop_map(|(high, low)| u64::from(high) << 32 | u64::from(low)),
    ]
}

/// An attachment and its launch.
struct Client {
    attachment: Attachment,
    token: LaunchToken,
}

impl Client {
    fn new(served: &Served) -> Self {
        let attachment = served.attached();
        let token = attachment.token().expect("a number");
        Self { attachment, token }
    }

    fn net(&self) -> Net {
        self.token.net()
    }

    fn end(self) {
        let _ = self.token.finish(FinishPolicy::Reset);
        let _ = self.attachment.close();
    }
}

/// The parts of the arenas of an attachment: first byte, and whether it is its own.
fn parts(net: Net) -> Vec<(u64, bool)> {
    let context = raw::context(net);
    let table = context.device + context.device_layout.regions;
    let entry = |number: u64| {
        // SAFETY: the attachment's table of regions, which has that many entries, in its own
        // memory.
        unsafe { ((table + number * size_of::<Region>() as u64) as *const Region).read_volatile() }
    };
    let valid = (0..256).map(entry).filter(|region| region.flags & Region::VALID != 0);
    valid.map(|region| (region.base, region.flags & Region::OWN != 0)).collect()
}

fn write(net: Net, place: Place, value: u64) {
    let context = raw::context(net);
    let layout = context.shared_layout;
    let shared = |from: u64, to: u64, at: u64| Some(context.shared + from + (at % (to - from)) / 8 * 8);
    let part = |own: bool, at: u64| {
        let (base, _) = parts(net).into_iter().find(|part| part.1 == own)?;
        // The header, and the lines of the first rings.
        Some(base + at % (2 * PAGE) / 8 * 8)
    };
    let lines = u64::from(context.sockets) * size_of::<SocketLine>() as u64;
    let controls = u64::from(context.controls) * size_of::<ControlSlot>() as u64;
    let address = match place {
        Place::Published(slot) => Some(context.shared + layout.published + 8 * u64::from(slot)),
        Place::Consumed(slot) => Some(context.shared + layout.consumed + 8 * u64::from(slot)),
        Place::Request(slot) => Some(context.shared + layout.requests + 8 * u64::from(slot)),
        Place::Abandon(slot) => Some(context.shared + layout.abandons + 8 * u64::from(slot)),
        Place::Control(at) => shared(layout.controls, layout.controls + controls, at),
        Place::Line(at) => shared(layout.lines, layout.lines + lines, at),
        Place::Anywhere(at) => shared(0, layout.rings, at),
        Place::Near(at) => part(true, at),
        Place::Far(at) => part(false, at),
    };
    if let Some(address) = address {
        // SAFETY: an aligned word of the client's own region or of its arena, which stay mapped
        // until it is closed; no kernel of it runs.
        unsafe { (address as *mut u64).write_volatile(value) };
    }
}

/// Sends there and back what fits into a ring.
fn echo([one, other]: &mut [Stream; 2], seed: u64) {
    let (sent, got) = (Memory::filled(seed, 0, 1000), Memory::new(1000));
    let pass = |from: &mut Stream, to: &mut Stream| {
        from.send_all(&SOLO, sent.buffer()).expect("sent");
        assert_eq!(to.recv_exact(&SOLO, got.buffer()), Ok(1000));
        assert!(got.holds(0, 1000, seed, 0), "bytes changed on the way");
    };
    pass(one, other);
    pass(other, one);
}

#[test]
fn whatever_stands_in_a_clients_memory() {
    bounded(|| {
        let served = Served::new(small());
        let (here, there, partner) = (Client::new(&served), Client::new(&served), Client::new(&served));
        let mut healthy = [PEER, TCP].map(|options| pair(there.net(), here.net(), options));
        // `PROPTEST_CASES` asks for more.
        let runs = Runs { failure_persistence: None, max_shrink_iters: 0, ..Runs::default() };
        let mut rounds = 0;
        let body = |writes: Vec<(Place, u64)>| {
            let fuzzed = Client::new(&served);
            let net = fuzzed.net();
            let _waits: Listener = listen(net, TCP);
            let [direct, _] = pair(partner.net(), net, PEER);
            let [driven, _] = pair(partner.net(), net, TCP);
            for (at, (place, value)) in writes.into_iter().enumerate() {
                write(net, place, value);
                // Some of it is seen before the next.
                if at % 8 == 7 {
                    std::thread::yield_now();
                    let _ = here.attachment.usage();
                }
            }
            rounds += 1;
            for ends in &mut healthy {
                echo(ends, rounds);
                echo(ends, rounds);
            }
            assert!(served.daemon().is_alive());
            // The partner's ends are the partner's to close.
            for stream in [direct, driven] {
                let _ = stream.close(&SOLO);
            }
            fuzzed.end();
            until("only the others are left", || {
                let clients = served.daemon().snapshot().expect("it answers").clients.len();
                clients == 3 && partner.attachment.usage().sockets == 0
            });
            Ok(())
        };
        let cell = std::cell::RefCell::new(body);
        let writes = prop::collection::vec((place(), value()), 1..80);
        let result = TestRunner::new(runs).run(&writes, |writes| (cell.borrow_mut())(writes));
        result.expect("the daemon and the others go on");
        for [one, other] in healthy {
            one.close(&SOLO).expect("open");
            other.close(&SOLO).expect("open");
        }
        [here, there, partner].into_iter().for_each(Client::end);
        served.expect_clients(0);
    });
}
