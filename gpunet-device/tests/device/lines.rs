//! Small messages in lines: what is taken from one, what is left to the ring, and what a line
//! cannot do.

use crate::world::{LARGE, World, buffer, pattern};
use gpunet_device::abi::control::{Descriptor, Reply};
use gpunet_device::abi::line::{self, CHUNK_BYTES, Line};
use gpunet_device::abi::region::{RegionOffset, SHARED};
use gpunet_device::abi::{StreamWord, Word};
use gpunet_device::cpu::watch::Watch;
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::{Error, Group, Handle, RecvHalf, SendHalf, Shutdown, SockAddr, Stream, Timeout};
use gpunet_posix as posix;
use gpunet_posix::send::{MSG_DONTWAIT, MSG_MORE, MSG_PEEK};
use proptest::prelude::*;

const G: Solo = Solo::new(0, 1);

/// A stream whose rings have lines: its two ends, and the line of the ring from the first to the
/// second.
struct Lined {
    world: World,
    a: Handle,
    b: Handle,
}

impl Lined {
    fn new() -> Self {
        let world = World::new();
        let (a, b) = world.open_lined_pair(0, 1);
        Self { world, a, b }
    }

    fn line(&self) -> Line {
        self.world.line_to(self.b.slot())
    }

    fn sender(&self) -> SendHalf {
        SendHalf::from_handle(&G, self.world.net(), self.a).unwrap()
    }

    fn receiver(&self) -> RecvHalf {
        RecvHalf::from_handle(&G, self.world.net(), self.b).unwrap()
    }

    /// The length of the message at a position by the line's header; 0: it is another's.
    fn len_at(&self, position: u64) -> u64 {
        line::len_within(self.line().header().peek(), line::header(position, 0), line::MAX as u64)
    }

    /// What the sender has published.
    fn published(&self) -> Word {
        self.world.own_published(self.a.slot())
    }
}

/// The words of a line that hold something: its header and its units.
fn words(line: Line) -> impl Iterator<Item = Word> {
    let units = (0..line::MAX / CHUNK_BYTES).flat_map(move |chunk| [0, 1].map(|unit| (chunk, unit)));
    // SAFETY: words of the line, which the world keeps.
    let units =
        units.map(move |(chunk, unit)| unsafe { Word::from_ptr(line.chunk(chunk).wrapping_add(unit)) });
    std::iter::once(line.header()).chain(units)
}

/// Writes a message into a line as a sender does.
fn write(line: Line, position: u64, message: &[u8]) {
    line.header().set(line::header(position, message.len()));
    for (unit, bytes) in words(line).skip(1).zip(message.chunks(4)) {
        let mut four = [0; 4];
        four[..bytes.len()].copy_from_slice(bytes);
        unit.set(line::unit(u32::from_le_bytes(four), line::tag(position)));
    }
}

#[test]
fn a_message_is_taken_from_its_line_before_it_has_landed() {
    for len in [1, 3, 4, 5, 8, 31, 64, 255, 256] {
        let stream = Lined::new();
        let (mut receiver, message) = (stream.receiver(), pattern(len));
        write(stream.line(), 0, &message);
        let mut memory = [0; 300];
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(len));
        assert_eq!(memory[..len], message);
        assert!(memory[len..].iter().all(|&byte| byte == 0), "bytes behind a message of {len}");
        // It is not had a second time, whether the word says so or not yet.
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
        stream.published().publish(len as u64);
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
        assert_eq!((receiver.available(&G), receiver.position()), (Ok(0), len as u64));
    }
}

/// A line holds what a stream before has sent, by tags that repeat: every stream begins at
/// position 0.
#[test]
fn a_stream_finds_nothing_in_the_line_of_the_stream_before() {
    let stream = Lined::new();
    write(stream.line(), 0, b"stale");
    let world = &stream.world;
    let at = |word: u64| RegionOffset::new(SHARED, word - world.net_shared());
    // SAFETY: the entry of a slot that no group uses now.
    let ring = unsafe { (*world.entry(1)).recv };
    let descriptor = Descriptor {
        recv_ring: at(ring.base),
        recv_log2: LARGE.ilog2(),
        recv_line: at(ring.line_at()),
        ..world.direct(1, 0)
    };
    world.give_slots(&[1]);
    let mut reply = Reply::new(0, 0);
    reply.descriptor = descriptor;
    let net = world.net();
    let opened = std::thread::scope(|scope| {
        let address = SockAddr::v4([10, 0, 0, 1], 99);
        let connect = scope.spawn(move || Stream::connect(&G, net, address).map(|stream| stream.handle()));
        world.serve(&mut [0; 4], |_| Some(reply));
        connect.join().unwrap()
    });
    let mut receiver = RecvHalf::from_handle(&G, net, opened.unwrap()).unwrap();
    assert_eq!(receiver.try_recv(&G, buffer(&mut [0; 64])), Err(Error::WouldBlock));
    write(stream.line(), 0, b"new");
    assert_eq!(receiver.try_recv(&G, buffer(&mut [0; 64])), Ok(3));
}

#[test]
fn nobody_is_woken_for_what_a_line_has_brought() {
    let stream = Lined::new();
    let mut receiver = stream.receiver();
    write(stream.line(), 0, b"early");
    assert_eq!(receiver.try_recv(&G, buffer(&mut [0; 64])), Ok(5));
    for (published, is_over) in [(0, false), (4, false), (5, false), (6, true)] {
        stream.published().publish(published);
        assert_eq!(Watch::bytes(&receiver).is_over(), is_over, "{published}");
    }
}

#[test]
fn a_small_send_stores_a_line_and_a_large_one_does_not() {
    let stream = Lined::new();
    let mut sender = stream.sender();
    sender.send_all(&G, buffer(&mut pattern(256))).unwrap();
    assert_eq!(stream.len_at(0), 256);
    sender.send_all(&G, buffer(&mut pattern(257))).unwrap();
    assert_eq!(stream.len_at(0), 256);
    sender.send_all(&G, b"x").unwrap();
    assert_eq!(stream.len_at(513), 1);
    // SAFETY: the entry of the sender's slot.
    let sent = unsafe { (*stream.world.entry(stream.a.slot())).lines_sent };
    assert_eq!(sent, 2);
}

#[test]
fn the_proxy_is_shown_how_many_lines_a_socket_has_sent() {
    let stream = Lined::new();
    let mut one = Stream::from_handle(&G, stream.world.net(), stream.a).unwrap();
    for _ in 0..3 {
        one.send_all(&G, b"small").unwrap();
    }
    // While it waits for an answer, which on a busy machine takes it some time to get to.
    let shown = (0..50).any(|_| {
        assert_eq!(
            one.receiver().recv_timeout(&G, buffer(&mut [0; 8]), Timeout::ms(100)),
            Err(Error::TimedOut)
        );
        stream.world.lines_sent(stream.a.slot()).peek() == 3
    });
    assert!(shown);
}

#[test]
fn lanes_together_send_and_receive_by_lines() {
    let stream = Lined::new();
    let (net, a, b) = (stream.world.net(), stream.a, stream.b);
    let (message, rounds) = (pattern(100), 50);
    std::thread::scope(|scope| {
        for lane in Lanes::group(0, 1, 3) {
            let mut message = message.clone();
            scope.spawn(move || {
                let mut stream = Stream::from_handle(&lane, net, a).unwrap();
                for _ in 0..rounds {
                    stream.send_all(&lane, buffer(&mut message)).unwrap();
                    assert_eq!(stream.recv(&lane, buffer(&mut [0; 4])), Ok(1));
                }
            });
        }
        let memory = vec![0; 300];
        for lane in Lanes::group(1, 2, 2) {
            let (mut memory, message) = (memory.clone(), &message);
            scope.spawn(move || {
                let shared = buffer(&mut memory);
                let mut stream = Stream::from_handle(&lane, net, b).unwrap();
                for _ in 0..rounds {
                    assert_eq!(stream.recv(&lane, shared), Ok(100));
                    lane.sync();
                    if lane.is_leader() {
                        // SAFETY: the leader's own buffer, into which it has received.
                        assert_eq!(unsafe { std::slice::from_raw_parts(shared.as_ptr(), 100) }, message);
                    }
                    stream.send_all(&lane, b"y").unwrap();
                }
            });
        }
    });
}

#[test]
fn a_part_of_a_message_comes_from_the_ring() {
    let stream = Lined::new();
    let (mut receiver, message) = (stream.receiver(), pattern(64));
    write(stream.line(), 0, &message);
    let mut memory = [0; 64];
    // It is in the line only, so a part of it has not come yet.
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory[..63])), Err(Error::WouldBlock));
    let mut sender = stream.sender();
    sender.send_all(&G, buffer(&mut message.clone())).unwrap();
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory[..63])), Ok(63));
    assert_eq!(memory[..63], message[..63]);
    // What is left of it is no message of its own.
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(1));
    assert_eq!(memory[0], message[63]);
}

#[test]
fn a_torn_line_is_left_to_the_ring() {
    let message = pattern(64);
    for torn in 0..17 {
        let stream = Lined::new();
        write(stream.line(), 0, &message);
        let unit = words(stream.line()).nth(torn).unwrap();
        for stale in [0, line::unit(7, line::tag(64)), unit.peek() ^ 1 << 63] {
            unit.set(stale);
            let mut memory = [0; 64];
            let found = stream.receiver().try_recv(&G, buffer(&mut memory));
            assert_eq!(found, Err(Error::WouldBlock), "unit {torn}: {stale:x}");
        }
        stream.sender().send_all(&G, buffer(&mut message.clone())).unwrap();
        let mut memory = [0; 64];
        assert_eq!(stream.receiver().try_recv(&G, buffer(&mut memory)), Ok(64));
        assert_eq!(memory[..], message);
    }
}

#[test]
fn an_impossible_header_is_no_message() {
    let stream = Lined::new();
    let tag = u64::from(line::tag(0)) << 32;
    write(stream.line(), 0, &pattern(256));
    for lie in [0, 257, 511, 1 << 9 | 64, 1 << 31 | 64] {
        stream.line().header().set(tag | lie);
        let mut memory = [0; 600];
        assert_eq!(stream.receiver().try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock), "{lie:x}");
    }
}

#[test]
fn lines_without_end_bring_no_more_than_the_ring_could_hold() {
    let stream = Lined::new();
    let (mut receiver, message) = (stream.receiver(), pattern(256));
    let mut memory = [0; 256];
    let mut position = 0;
    loop {
        write(stream.line(), position, &message);
        match receiver.try_recv(&G, buffer(&mut memory)) {
            Ok(n) => position += n as u64,
            Err(error) => {
                assert_eq!((error, position), (Error::WouldBlock, LARGE));
                break;
            }
        }
    }
    // A word that is behind is no more than late.
    stream.published().publish(LARGE - 1);
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    stream.published().publish(LARGE + 256);
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(256));
}

#[test]
fn an_end_before_what_a_line_has_brought_is_a_lie() {
    let stream = Lined::new();
    let mut receiver = stream.receiver();
    write(stream.line(), 0, &pattern(64));
    let mut memory = [0; 64];
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(64));
    stream.published().publish(StreamWord::at(63).with_end().0);
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::Protocol));
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::Protocol));
}

#[test]
fn a_receiver_that_is_ahead_finds_the_end_and_stops_where_it_is() {
    let stream = Lined::new();
    let (mut receiver, mut sender) = (stream.receiver(), stream.sender());
    write(stream.line(), 0, b"last");
    let mut memory = [0; 64];
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(4));
    sender.send_all(&G, b"last").unwrap();
    sender.shutdown(&G);
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(0));
    // The same of a receiver that has enough.
    let stream = Lined::new();
    let mut receiver = stream.receiver();
    write(stream.line(), 0, b"last");
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(4));
    receiver.shutdown(&G);
    assert_eq!(receiver.position(), 4);
    assert_eq!(stream.world.own_consumed(stream.b.slot()).peek(), StreamWord::at(4).with_end().0);
}

#[test]
fn a_line_that_passes_a_segment_is_cleared() {
    let stream = Lined::new();
    let at = (1 << 30) - 100;
    stream.world.set_positions(stream.a.slot(), stream.b.slot(), at);
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let mut memory = [0; 64];
    sender.send_all(&G, buffer(&mut pattern(64))).unwrap();
    assert_eq!(stream.len_at(at), 64);
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(64));
    sender.send_all(&G, buffer(&mut pattern(64))).unwrap();
    assert!(words(stream.line()).all(|word| word.peek() == 0));
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(64));
    assert_eq!(memory[..], pattern(64));
}

#[test]
fn a_full_ring_gets_no_lines() {
    let stream = Lined::new();
    let mut sender = stream.sender();
    sender.send_all(&G, buffer(&mut pattern(LARGE as usize / 2 + 1))).unwrap();
    sender.send_all(&G, b"more").unwrap();
    assert!(words(stream.line()).all(|word| word.peek() == 0));
    // Space that was given back is found at the next eighth.
    let mut memory = vec![0; LARGE as usize];
    assert_eq!(stream.receiver().recv(&G, buffer(&mut memory)), Ok(LARGE as usize / 2 + 5));
    let mut sent = 0;
    while stream.line().header().peek() == 0 {
        sender.send_all(&G, b"12345678").unwrap();
        sent += 8;
    }
    assert!(sent <= LARGE / 8 + 8, "{sent}");
}

#[test]
fn bytes_of_which_more_follow_wait_for_the_last() {
    let stream = Lined::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let mut memory = [0; 64];
    assert_eq!(sender.send_more(&G, b"one "), Ok(4));
    assert_eq!(sender.send_more(&G, b"two "), Ok(4));
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    assert_eq!(sender.send(&G, b"three"), Ok(5));
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(13));
    assert_eq!(&memory[..13], b"one two three");
    assert_eq!(sender.send_more(&G, b"four"), Ok(4));
    sender.flush(&G);
    assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(4));
    // An end is the last, too.
    assert_eq!(sender.send_more(&G, b"five"), Ok(4));
    sender.shutdown(&G);
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(4));
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(0));
}

#[test]
fn a_half_that_is_found_again_can_flush() {
    let stream = Lined::new();
    assert_eq!(stream.sender().send_more(&G, b"later"), Ok(5));
    assert_eq!(stream.receiver().available(&G), Ok(0));
    stream.sender().flush(&G);
    assert_eq!(stream.receiver().available(&G), Ok(5));
}

#[test]
fn a_quarter_of_the_ring_does_not_wait_for_more() {
    let stream = Lined::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let (mut piece, mut sent) = (pattern(1000), 0);
    while receiver.available(&G) == Ok(0) {
        sent += sender.send_more(&G, buffer(&mut piece)).unwrap();
    }
    assert!(sent as u64 <= LARGE / 4 + 1000, "{sent}");
    // A ring that is full has something to read: nobody waits for ever.
    while sender.try_send(&G, buffer(&mut piece)) != Err(Error::WouldBlock) {}
    assert!(receiver.available(&G).unwrap() as u64 >= LARGE / 4 * 3);
}

#[test]
fn a_stream_publishes_before_it_receives() {
    let stream = Lined::new();
    let mut one = Stream::from_handle(&G, stream.world.net(), stream.a).unwrap();
    let mut memory = [0; 64];
    assert_eq!(one.sender().send_more(&G, b"question"), Ok(8));
    assert_eq!(one.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    assert_eq!(stream.receiver().try_recv(&G, buffer(&mut memory)), Ok(8));
    one.shutdown(&G, Shutdown::Both);
}

#[test]
fn a_call_by_handle_that_waits_publishes_what_others_left() {
    let stream = Lined::new();
    let (net, fd) = (stream.world.net(), stream.a.raw());
    let send = |bytes: &[u8], flags| {
        // SAFETY: readable for its length.
        unsafe { posix::send::send(&G, net, fd, bytes.as_ptr(), bytes.len(), flags) }
    };
    let mut memory = [0u8; 64];
    let at = memory.as_mut_ptr();
    // SAFETY: this test's memory.
    let recv = |flags| unsafe { posix::recv::recv(&G, net, fd, at, 64, flags) };
    let arrived = || stream.receiver().available(&G).unwrap();
    for wait in 0..5 {
        let before = arrived();
        assert_eq!(send(b"more", MSG_MORE), Ok(4));
        assert_eq!(send(b"more", MSG_MORE), Ok(4));
        assert_eq!(arrived(), before);
        match wait {
            0 => assert_eq!(recv(MSG_DONTWAIT), Err(Error::WouldBlock)),
            1 => assert_eq!(recv(MSG_DONTWAIT | MSG_PEEK), Err(Error::WouldBlock)),
            2 => assert_eq!(send(b"", 0), Ok(0)),
            3 => {
                // A reserve leaves the note where it is.
                assert!(posix::in_place::reserve(&G, net, fd, 1, 0).is_ok());
                assert_eq!(recv(MSG_DONTWAIT), Err(Error::WouldBlock));
            }
            _ => {
                let mut fds = [gpunet_device::PollFd { handle: fd, events: 1, revents: 0 }];
                // SAFETY: this test's memory.
                let set = unsafe { gpunet_device::PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
                assert_eq!(gpunet_device::poll(&G, net, set, Timeout::ms(1)), Ok(0));
            }
        }
        assert_eq!(arrived(), before + 8, "wait {wait}");
    }
}

/// What calls by handle have left is published before a group goes on without the lock: a poller
/// that publishes it later, too, would take back what follows.
#[test]
fn a_half_that_is_found_again_has_published_what_calls_by_handle_left() {
    let stream = Lined::new();
    let (net, fd) = (stream.world.net(), stream.a.raw());
    for round in 0..3u64 {
        let at = round * 7;
        // SAFETY: readable for its length.
        assert_eq!(unsafe { posix::send::send(&G, net, fd, b"more".as_ptr(), 4, MSG_MORE) }, Ok(4));
        assert_eq!(stream.published().observe(), at);
        let mut one = stream.sender();
        assert_eq!(stream.published().observe(), at + 4);
        assert_eq!(one.send(&G, b"end"), Ok(3));
        assert_eq!(stream.published().observe(), at + 7);
    }
}

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive(usize),
    /// The receiver's copy of the sender's word catches up.
    Word,
    /// Some words of the receiver's line catch up: those of the bits, from one on.
    Line(u64, usize),
    /// A word of the receiver's line gets any value, but for a right tag.
    Forge(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![1..=256usize, 1..=16usize, 200..=3000usize].prop_map(Step::Send),
        4 => prop_oneof![1..=300usize, 256..=4096usize].prop_map(Step::Receive),
        2 => Just(Step::Word),
        3 => (any::<u64>(), 0..65usize).prop_map(|(bits, from)| Step::Line(bits, from)),
        2 => Just(Step::Line(u64::MAX, 0)),
        1 => (0..65usize, any::<u64>()).prop_map(|(at, value)| Step::Forge(at, value)),
    ]
}

proptest! {
    /// Whatever of lines is lost, late, old, torn or forged: a receiver gets the sender's bytes,
    /// each once and in order.
    #[test]
    fn a_receiver_gets_the_stream(steps in proptest::collection::vec(step(), 1..200)) {
        let stream = Lined::new();
        let (landed, seen) = stream.world.part_words(stream.b.slot());
        let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
        let bytes = pattern(1 << 20);
        let (mut sent, mut received) = (0, 0);
        let mut memory = vec![0; 4096];
        for step in steps {
            match step {
                Step::Send(len) => {
                    let mut message = bytes[sent..sent + len].to_vec();
                    if let Ok(n) = sender.try_send(&G, buffer(&mut message)) {
                        sent += n;
                    }
                }
                Step::Receive(len) => match receiver.try_recv(&G, buffer(&mut memory[..len])) {
                    Ok(n) => {
                        prop_assert!(received + n <= sent);
                        prop_assert!(memory[..n] == bytes[received..received + n]);
                        received += n;
                    }
                    Err(error) => prop_assert_eq!(error, Error::WouldBlock),
                },
                Step::Word => landed.publish(stream.published().peek()),
                Step::Line(bits, from) => {
                    for (at, (own, other)) in words(seen).zip(words(stream.line())).enumerate().skip(from) {
                        if bits >> (at % 64) & 1 == 1 {
                            own.set(other.peek());
                        }
                    }
                }
                Step::Forge(at, value) => {
                    // Any tag but those that are in use: a hostile sender could as well have sent
                    // other bytes.
                    let tag = value >> 32 & !1;
                    words(seen).nth(at).unwrap().set(tag << 32 | value & 0xffff_ffff);
                }
            }
        }
        landed.publish(stream.published().peek());
        while received < sent {
            let n = receiver.try_recv(&G, buffer(&mut memory)).unwrap();
            prop_assert!(memory[..n] == bytes[received..received + n]);
            received += n;
        }
    }
}
