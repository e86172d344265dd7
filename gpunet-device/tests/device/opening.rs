//! Streams that the proxy's descriptor opens: in every place they may lie in, and in none that they
//! may not.

use crate::world::{PART, Part, SLOTS, SOCKETS, World, buffer};
use gpunet_device::abi::Link;
use gpunet_device::abi::control::{Descriptor, Reply};
use gpunet_device::abi::region::{Region, RegionOffset, SHARED};
use gpunet_device::group::Solo;
use gpunet_device::poll::POLLIN;
use gpunet_device::{Error, Handle, PollFd, PollSet, SockAddr, Stream, Timeout, TransportKind, poll};

const G: Solo = Solo::new(0, 1);
const ADDR: SockAddr = SockAddr::v4([10, 0, 0, 1], 99);
/// Numbers of regions.
const OWN_PART: u8 = 2;
const REMOTE_PART: u8 = 3;
const VAST: u8 = 4;

/// Connects by the next free slot; the proxy answers with that descriptor.
fn connect(world: &World, seen: &mut [u64; 4], descriptor: Descriptor) -> Result<Handle, Error> {
    let net = world.net();
    let mut reply = Reply::new(0, 0);
    reply.descriptor = descriptor;
    std::thread::scope(|scope| {
        let connect = scope.spawn(move || Stream::connect(&G, net, ADDR).map(|stream| stream.handle()));
        world.serve(seen, |_| Some(reply));
        connect.join().unwrap()
    })
}

/// A region of which only the addresses count: nobody touches it.
fn vast() -> Region {
    Region::new(1 << 40, 1 << 40, Region::VALID)
}

#[test]
fn a_ring_has_a_size_that_options_can_ask_for() {
    let world = World::new();
    world.add_region(VAST, vast());
    world.give_slots(&[1; 6]);
    let mut seen = [0; 4];
    let vast = RegionOffset::new(VAST, 0);
    let driven = Descriptor { send_ring: vast, recv_ring: vast, ..world.driven(1) };
    for (log2, opened) in [(12, true), (24, true), (11, false), (25, false)] {
        let result = connect(&world, &mut seen, Descriptor { send_log2: log2, ..driven });
        assert_eq!(result.is_ok(), opened, "2^{log2} bytes");
        assert!(opened || result == Err(Error::Protocol));
    }
    assert_eq!(connect(&world, &mut seen, Descriptor { recv_log2: 11, ..driven }), Err(Error::Protocol));
    assert_eq!(connect(&world, &mut seen, Descriptor { recv_log2: 25, ..driven }), Err(Error::Protocol));
}

#[test]
fn every_word_of_a_stream_is_aligned() {
    let world = World::new();
    world.give_slots(&[1; 4]);
    let mut seen = [0; 4];
    let (driven, odd) = (world.driven(1), RegionOffset::new(SHARED, 4));
    for descriptor in [
        Descriptor { published: odd, ..driven },
        Descriptor { released: odd, ..driven },
        Descriptor { landed: odd, ..driven },
        Descriptor { consumed: odd, ..driven },
    ] {
        assert_eq!(connect(&world, &mut seen, descriptor), Err(Error::Protocol));
    }
}

#[test]
fn the_other_end_of_a_direct_stream_is_a_slot_of_the_table() {
    let world = World::new();
    world.give_slots(&[0, SOCKETS - 1, 1]);
    let net = world.net();
    let mut seen = [0; 4];
    let one = connect(&world, &mut seen, world.direct(0, SOCKETS - 1)).unwrap();
    let other = connect(&world, &mut seen, world.direct(SOCKETS - 1, 0)).unwrap();
    Stream::from_handle(&G, net, one).unwrap().send_all(&G, b"across").unwrap();
    let mut memory = [0; 8];
    assert_eq!(Stream::from_handle(&G, net, other).unwrap().recv(&G, buffer(&mut memory)), Ok(6));
    assert_eq!(&memory[..6], b"across");
    let outside = Descriptor { link: Link::same_device(SLOTS), ..world.direct(1, 2) };
    assert_eq!(connect(&world, &mut seen, outside), Err(Error::Protocol));
}

#[test]
fn the_data_thread_of_a_driven_stream_is_one_that_exists() {
    let world = World::new();
    world.give_slots(&[1; 4]);
    let mut seen = [0; 4];
    // The world's proxy has one.
    for thread in [1, 15] {
        let elsewhere = Descriptor { link: Link::driven(thread), ..world.driven(1) };
        assert_eq!(connect(&world, &mut seen, elsewhere), Err(Error::Protocol));
    }
    assert!(connect(&world, &mut seen, world.driven(1)).is_ok());
}

#[test]
fn a_stream_knows_what_carries_it() {
    let world = World::new();
    let net = world.net();
    let driven = Stream::from_handle(&G, net, world.open_driven(5)).unwrap();
    let direct = Stream::from_handle(&G, net, world.open_pair(0, 1).0).unwrap();
    assert_eq!((driven.transport(), direct.transport()), (TransportKind::Tcp, TransportKind::Peer));
}

/// Two attachments with an arena between them, and a stream from one to the other.
struct Neighbours {
    worlds: [World; 2],
    /// The parts that they poll.
    parts: [Part; 2],
    ends: [Handle; 2],
}

impl Neighbours {
    fn new() -> Self {
        let (worlds, parts) = ([World::new(), World::new()], [Part::new(), Part::new()]);
        let ends = [(0, 1), (1, 0)].map(|(own, other)| {
            let world = &worlds[own];
            world.add_region(OWN_PART, parts[own].region(PART.len, Region::OWN));
            world.add_region(REMOTE_PART, parts[other].region(PART.len, 0));
            world.give_slots(&[7]);
            connect(world, &mut [0; 4], world.remote(7, [OWN_PART, REMOTE_PART])).unwrap()
        });
        Self { worlds, parts, ends }
    }

    fn stream(&self, end: usize) -> Stream {
        Stream::from_handle(&G, self.worlds[end].net(), self.ends[end]).unwrap()
    }
}

#[test]
fn a_stream_between_two_attachments_lies_in_an_arena() {
    let neighbours = Neighbours::new();
    let (mut one, mut other) = (neighbours.stream(0), neighbours.stream(1));
    let mut memory = [0; 8];
    one.send_all(&G, b"there").unwrap();
    assert_eq!(other.recv(&G, buffer(&mut memory)), Ok(5));
    other.send_all(&G, b"back").unwrap();
    assert_eq!(one.recv(&G, buffer(&mut memory)), Ok(4));
    assert_eq!(&memory[..4], b"back");
}

#[test]
fn those_who_wait_for_another_attachment_sleep_where_it_wakes_them() {
    let neighbours = Neighbours::new();
    let part = &neighbours.parts[1];
    std::thread::scope(|scope| {
        let sleeps = scope.spawn(|| {
            let net = neighbours.worlds[1].net();
            let mut fds = [PollFd { handle: neighbours.ends[1].raw(), events: POLLIN, revents: 0 }];
            // SAFETY: the entry outlives the call.
            let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
            let ready = poll(&G, net, set, Timeout::NEVER);
            let mut stream = neighbours.stream(1);
            let mut memory = [0; 8];
            let received = [(); 2].map(|()| stream.recv(&G, buffer(&mut memory)));
            while stream.try_send(&G, &[7; 4096]).is_ok() {}
            (ready, received, stream.send(&G, b"more"))
        });
        let mut other = neighbours.stream(0);
        part.await_poller();
        other.send_all(&G, b"x").unwrap();
        part.await_receiver();
        other.send_all(&G, b"12345678").unwrap();
        part.await_sender();
        assert_eq!(other.recv_exact(&G, buffer(&mut [0; 4096])), Ok(4096));
        assert_eq!(sleeps.join().unwrap(), (Ok(1), [Ok(1), Ok(8)], Ok(4)));
    });
}

/// Beside the words of such a stream lie the flags of its waiters.
#[test]
fn the_lines_of_a_stream_in_an_arena_lie_wholly_inside() {
    let world = World::new();
    let (own, remote) = (Part::new(), Part::new());
    world.add_region(OWN_PART, own.region(PART.len, Region::OWN));
    let line = PART.line(PART.rings);
    // The words are inside, the rest of their line is not.
    world.add_region(REMOTE_PART, remote.region(line + 16, 0));
    world.give_slots(&[7, 7]);
    let descriptor =
        Descriptor { send_ring: world.driven(7).send_ring, ..world.remote(7, [OWN_PART, REMOTE_PART]) };
    let mut seen = [0; 4];
    assert_eq!(connect(&world, &mut seen, descriptor), Err(Error::Protocol));
    world.add_region(REMOTE_PART, remote.region(line + 64, 0));
    assert!(connect(&world, &mut seen, descriptor).is_ok());
}
