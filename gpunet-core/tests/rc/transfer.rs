//! Every byte arrives once and in order, whatever the wire, the cards and the applications do; the
//! audit and the rsocket check each request meanwhile.

use crate::ours::Ours;
use crate::reference::Reference;
use crate::shape::Shape;
use crate::size::Size;
use crate::wire::{Node, World};
use gpunet_core::rc::{Config, Variant};
use proptest::prelude::*;

pub fn variant() -> impl Strategy<Value = Variant> {
    prop_oneof![Just(Variant::Immediate), Just(Variant::Send)]
}

pub fn size() -> impl Strategy<Value = Size> {
    (variant(), 6u32..16, 6u32..18, 2u32..40, 1u16..70).prop_map(|(variant, send, recv, sends, receives)| {
        Size { variant, send_ring: 1 << send, recv_ring: 1 << recv, sends, receives }
    })
}

pub fn shape() -> impl Strategy<Value = Shape> {
    let ring = (12u32..16, 2u64..9, prop_oneof![64u32..5000, Just(16_384), Just(65_536)]);
    let ends = (variant(), any::<bool>(), 2u32..6);
    (ends, 2u16..70, 6u32..40, ring).prop_map(|(ends, rq, sq, (send, pieces, piece))| {
        let (variant, big_endian, entries) = ends;
        Shape { variant, big_endian, rq, sq, send_ring: 1 << send, pieces, piece, entries }
    })
}

pub fn against_reference(size: &Size, shape: Shape, wanted: [u64; 2]) -> World {
    let ours = Ours::new(0, size, shape.hello(1));
    let reference = Reference::new(1, shape, size.hello(0));
    World::new([Box::new(ours), Box::new(reference)], wanted)
}

pub fn against_itself(sizes: [&Size; 2], wanted: [u64; 2]) -> World {
    let node = |side: usize| -> Box<dyn Node> {
        Box::new(Ours::new(side, sizes[side], sizes[1 - side].hello(1 - side)))
    };
    World::new([node(0), node(1)], wanted)
}

pub fn steps() -> impl Strategy<Value = Vec<(u8, u16)>> {
    prop::collection::vec(any::<(u8, u16)>(), 0..600)
}

/// Most control messages that `size` may need for so many bytes in so many messages.
fn controls_allowed(size: &Size, bytes: u64, messages: u64) -> u64 {
    let ring = u64::from(size.recv_ring);
    // An area may be cut short by the end of the ring, once a round.
    let areas = bytes / (ring / 4).min(64 * 1024) + bytes / ring;
    let updates = messages / u64::from(size.receives / 2).max(1);
    areas + updates + 2
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn every_byte_arrives_once_and_in_order_with_librdmacm(
        size in size(), shape in shape(), steps in steps(), wanted in [0u64..150_000, 0u64..150_000],
        len in 1u64..70_000,
    ) {
        let mut world = against_reference(&size, shape, wanted);
        steps.iter().for_each(|step| world.step(*step));
        world.drain(len.max(wanted[0].max(wanted[1]) / 400));
        world.assert_delivered();
        prop_assert_eq!(world.not_ready[0], 0, "our receives ran out");
        prop_assert_eq!(world.nodes[0].failure(), None);
    }

    #[test]
    fn every_byte_arrives_once_and_in_order_with_another_machine(
        sizes in [size(), size()], steps in steps(), wanted in [0u64..150_000, 0u64..150_000],
        len in 1u64..70_000,
    ) {
        let mut world = against_itself([&sizes[0], &sizes[1]], wanted);
        steps.iter().for_each(|step| world.step(*step));
        world.drain(len.max(wanted[0].max(wanted[1]) / 400));
        world.assert_delivered();
        prop_assert_eq!(world.not_ready, [0, 0], "receives ran out");
        prop_assert_eq!([world.nodes[0].failure(), world.nodes[1].failure()], [None, None]);
    }

    #[test]
    fn few_control_messages_are_needed(
        variant in variant(), ring in 10u32..19, receives in 16u16..400, rings in 1u64..9, len in 1u64..70_000,
    ) {
        let size = Size { variant, send_ring: 1 << 18, recv_ring: 1 << ring, sends: 64, receives };
        let wanted = rings << ring;
        let len = len.max(wanted / 2000);
        let mut world = against_itself([&size, &size], [wanted, 0]);
        world.drain(len);
        world.assert_delivered();
        // A message ends where the application's write does, the area, or a quarter of the send
        // ring.
        let controls = world.nodes[1].controls();
        let messages = 2 * wanted.div_ceil(len) + wanted / (1 << ring >> 2).min(65_536) + 2 * rings;
        let allowed = controls_allowed(&size, wanted, messages);
        prop_assert!(controls <= allowed, "{} control messages, {} would do", controls, allowed);
    }
}

/// The figure of the design: one grant for each 64 KiB read, and nothing else.
#[test]
fn one_mebibyte_needs_sixteen_control_messages() {
    for variant in [Variant::Immediate, Variant::Send] {
        let size = Size { variant, send_ring: 1 << 18, recv_ring: 1 << 18, sends: 64, receives: 384 };
        let mut world = against_itself([&size, &size], [1 << 20, 0]);
        world.drain(1 << 16);
        world.assert_delivered();
        assert!(world.nodes[1].controls() <= 16, "{} control messages", world.nodes[1].controls());
        assert_eq!(world.nodes[0].controls(), 0, "the sender has nothing to say");
    }
}

/// rsocket's trap 5: the ring is nearly empty, but all credits are taken by messages nobody read.
#[test]
fn many_unread_bytes_in_messages_of_one_do_not_stop_a_stream() {
    let size =
        Size { variant: Variant::Immediate, send_ring: 4096, recv_ring: 4096, sends: 64, receives: 16 };
    let mut world = against_itself([&size, &size], [4096, 0]);
    for _ in 0..4096 {
        assert!(world.write(0, 1));
        world.settle();
    }
    assert!(world.read(1, 4096));
    world.assert_delivered();
}

/// A peer that does not poll, for as long as it may, is not overrun by control messages.
#[test]
fn a_peer_that_sleeps_is_sent_no_more_than_its_spare_receives() {
    for variant in [Variant::Immediate, Variant::Send] {
        let size = Size { variant, send_ring: 1 << 16, recv_ring: 1 << 12, sends: 64, receives: 16 };
        let mut world = against_itself([&size, &size], [1 << 20, 1 << 20]);
        for round in 0..200 {
            world.write(0, 700);
            world.nodes[0].enter(usize::from(round % 16 == 0) * 100);
            for _ in 0..20 {
                (0..2).for_each(|side| _ = world.deliver(side) | world.acknowledge(side));
                world.nodes[1].enter(usize::MAX);
                world.read(1, 256);
                world.write(1, 1);
            }
        }
        world.drain(4096);
        world.assert_delivered();
        assert_eq!(world.not_ready[0], 0);
        assert_eq!(u32::from(size.receives) + Config::SPARE_RECEIVES, 24);
    }
}
