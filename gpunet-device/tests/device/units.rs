//! Small messages in units: what is taken from slots, what is left to the ring, and what slots that
//! lie can do.

use crate::world::{LARGE, Page, World, buffer, pattern};
use gpunet_device::abi::units::{self, UnitRing};
use gpunet_device::abi::{StreamWord, Word};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::{Error, Handle, PollFd, PollSet, RecvHalf, SendHalf, Timeout, poll};
use proptest::prelude::*;

const G: Solo = Solo::new(0, 1);
const POLLIN: i16 = 1;

/// A stream with units, and its two ends.
struct WithUnits {
    world: World,
    a: Handle,
    b: Handle,
}

impl WithUnits {
    fn new() -> Self {
        let world = World::new();
        let (a, b) = world.open_pair_with_units(0, 1);
        Self { world, a, b }
    }

    fn sender(&self) -> SendHalf {
        SendHalf::from_handle(&G, self.world.net(), self.a).unwrap()
    }

    fn receiver(&self) -> RecvHalf {
        RecvHalf::from_handle(&G, self.world.net(), self.b).unwrap()
    }

    fn published(&self) -> StreamWord {
        StreamWord(self.world.own_published(self.a.slot()).observe())
    }

    /// Polls report the second end when so many bytes have come.
    fn want(&self, bytes: u32) {
        // SAFETY: the entry of a slot that no group uses now.
        let options = unsafe { &mut (*self.world.entry(self.b.slot())).options };
        *options = options.with_low_water(1, bytes);
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd { handle: self.b.raw(), events: POLLIN, revents: 0 }];
        // SAFETY: this test's memory.
        let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
        assert!(poll(&G, self.world.net(), set, Timeout::NON_BLOCKING).is_ok());
        fds[0].revents & POLLIN != 0
    }
}

/// The words of a unit ring.
fn words(ring: UnitRing) -> impl Iterator<Item = Word> {
    (0..ring.slots()).flat_map(move |slot| {
        // SAFETY: words of the unit ring, which the test keeps.
        [0, 1].map(|half| unsafe { Word::from_ptr(ring.at(slot).wrapping_add(half)) })
    })
}

/// The longest message that goes by units.
fn longest() -> usize {
    usize::try_from(units::longest(LARGE)).unwrap()
}

#[test]
fn a_small_message_publishes_nothing_and_does_not_touch_the_ring() {
    let stream = WithUnits::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let (mut memory, mut total) = ([0; 512], 0);
    for len in [1, 7, 8, 9, 64, 255, 256, 257, longest()] {
        let mut message = pattern(len);
        assert_eq!(sender.send(&G, buffer(&mut message)), Ok(len));
        total += len;
        assert_eq!((stream.published(), stream.is_readable()), (StreamWord::at(0), true), "{len}");
        assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(len));
        assert_eq!(memory[..len], message, "{len}");
        assert!(!stream.is_readable(), "{len}");
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    }
    // SAFETY: the ring, which nobody writes now.
    let ring = unsafe {
        let recv = (*stream.world.entry(stream.b.slot())).recv;
        std::slice::from_raw_parts(recv.base as *const u8, total)
    };
    assert!(ring.iter().all(|&byte| byte == 0));
    // A long one goes by the ring, and publishes what came before it.
    let mut message = pattern(longest() + 1);
    assert_eq!(sender.send(&G, buffer(&mut message)), Ok(longest() + 1));
    assert_eq!(stream.published().position(), (total + longest() + 1) as u64);
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(longest() + 1));
    assert_eq!(memory[..=longest()], message);
}

#[test]
fn without_credit_a_message_goes_by_the_ring() {
    let stream = WithUnits::new();
    // The receiver has not entered the stream yet.
    stream.world.unit_limit(stream.b.slot()).set(0);
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    sender.send_all(&G, b"by the ring").unwrap();
    assert_eq!(stream.published().position(), 11);
    stream.world.unit_limit(stream.b.slot()).set(stream.world.units_to(1).grant(0));
    sender.send_all(&G, b", by units").unwrap();
    assert_eq!(stream.published().position(), 11);
    let mut memory = [0; 64];
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(11));
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(10));
    assert_eq!(&memory[..10], b", by units");
}

#[test]
fn a_receiver_that_sleeps_gets_a_million_bytes_of_one_each() {
    let stream = WithUnits::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let (mut sent, mut received, mut memory) = (0u64, 0u64, vec![0; 4096]);
    while received < 1_000_000 {
        while sent < 1_000_000 {
            match sender.try_send(&G, buffer(&mut [sent as u8])) {
                Ok(n) => sent += n as u64,
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    break;
                }
            }
        }
        while let Ok(n) = receiver.try_recv(&G, buffer(&mut memory)) {
            for &byte in &memory[..n] {
                assert_eq!(byte, received as u8, "byte {received}");
                received += 1;
            }
        }
    }
}

#[test]
fn a_message_is_received_in_parts() {
    let stream = WithUnits::new();
    let mut message = pattern(100);
    stream.sender().send_all(&G, buffer(&mut message)).unwrap();
    let (mut memory, mut at) = ([0; 100], 0);
    for len in [1, 6, 8, 20, 3, 62] {
        // Found again each time, as by calls by handle.
        assert_eq!(stream.receiver().recv(&G, buffer(&mut memory[at..at + len])), Ok(len));
        at += len;
    }
    assert_eq!(memory[..], message);
    assert!(!stream.is_readable());
}

#[test]
fn a_peek_shows_units_and_what_follows_them() {
    let stream = WithUnits::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    let mut all = pattern(3 * 40 + 1000);
    let mut memory = [0; 64];
    sender.send_all(&G, buffer(&mut all[..40])).unwrap();
    sender.send_all(&G, buffer(&mut all[40..80])).unwrap();
    // Half of the first message is gone before.
    assert_eq!(receiver.recv(&G, buffer(&mut memory[..15])), Ok(15));
    assert_eq!(receiver.available(&G), Ok(65));
    sender.send_all(&G, buffer(&mut all[80..1080])).unwrap();
    sender.send_all(&G, buffer(&mut all[1080..])).unwrap();
    sender.shutdown(&G);
    assert_eq!(receiver.available(&G), Ok(1120 - 15));
    let span = receiver.peek(&G, 4096).unwrap();
    assert_eq!((span.len(), receiver.ends_after(1120 - 15)), (1120 - 15, true));
    // SAFETY: the span's first piece, which nobody writes.
    let seen = unsafe { std::slice::from_raw_parts(span.first.ptr, span.first.len) };
    assert_eq!(*seen, all[15..]);
    receiver.release(&G, 1000);
    let mut rest = [0; 200];
    assert_eq!(receiver.recv(&G, buffer(&mut rest)), Ok(105));
    assert_eq!(rest[..105], all[1015..]);
    assert_eq!(receiver.recv(&G, buffer(&mut rest)), Ok(0));
}

#[test]
fn an_end_comes_after_the_units() {
    let stream = WithUnits::new();
    let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
    sender.send_all(&G, b"first").unwrap();
    sender.send_all(&G, b"last").unwrap();
    sender.shutdown(&G);
    assert_eq!(stream.published(), StreamWord::at(9).with_end());
    let mut memory = [0; 64];
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(5));
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(4));
    assert_eq!(receiver.recv(&G, buffer(&mut memory)), Ok(0));
    assert_eq!(stream.sender().send(&G, b"more"), Err(Error::BrokenPipe));
}

#[test]
fn low_water_counts_units_and_the_ring() {
    let stream = WithUnits::new();
    let mut sender = stream.sender();
    stream.want(600);
    for (len, enough) in [(64, false), (500, false), (16, false), (19, false), (1, true)] {
        sender.send_all(&G, buffer(&mut pattern(len))).unwrap();
        assert_eq!(stream.is_readable(), enough, "{len}");
    }
    // By the ring between units.
    let stream = WithUnits::new();
    let mut sender = stream.sender();
    stream.want(1100);
    for (len, enough) in [(64, false), (1000, false), (36, true)] {
        sender.send_all(&G, buffer(&mut pattern(len))).unwrap();
        assert_eq!(stream.is_readable(), enough, "{len}");
    }
}

/// A message of which a part was stored by a sender that died, or that will be whole soon.
#[test]
fn a_message_that_is_not_whole_is_not_there() {
    for torn in 1..=8 {
        let stream = WithUnits::new();
        let mut memory = [0; 64];
        stream.sender().send_all(&G, buffer(&mut pattern(64))).unwrap();
        let ring = stream.world.units_to(1);
        // SAFETY: a word of the unit ring.
        let word = unsafe { Word::from_ptr(ring.at(torn).wrapping_add(1)) };
        let whole = word.peek();
        word.set(0);
        let mut receiver = stream.receiver();
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
        let soon = Timeout::ms(5);
        assert_eq!(receiver.recv_timeout(&G, buffer(&mut memory), soon), Err(Error::TimedOut));
        assert_eq!(receiver.available(&G), Ok(0));
        word.set(whole);
        assert_eq!(receiver.try_recv(&G, buffer(&mut memory)), Ok(64));
        assert_eq!(memory[..], pattern(64));
    }
}

#[test]
fn a_first_slot_that_says_what_cannot_be_ends_the_stream() {
    let header = |len: u64, position: u64| len | position << 32;
    for lie in [header(0, 0), header(1 << 20, 0), header(8, u64::from(u32::MAX) - 20), u64::MAX - 1] {
        let stream = WithUnits::new();
        let ring = stream.world.units_to(1);
        let (low, high) = (lie as u32, (lie >> 32) as u32);
        for (at, bytes) in [low, high].into_iter().enumerate() {
            // SAFETY: a word of the unit ring.
            unsafe { Word::from_ptr(ring.at(0).wrapping_add(at)) }.set(units::half(bytes, ring.tag(0)));
        }
        let mut receiver = stream.receiver();
        assert_eq!(receiver.try_recv(&G, buffer(&mut [0; 64])), Err(Error::Protocol), "{lie:x}");
        assert_eq!(receiver.try_recv(&G, buffer(&mut [0; 64])), Err(Error::Protocol), "{lie:x}");
    }
}

#[test]
fn lanes_share_the_slots_of_a_message() {
    let stream = WithUnits::new();
    let (net, stream) = (stream.world.net(), &stream);
    let message = pattern(longest());
    let mut source = message.clone();
    let (source, mut memory) = (buffer(&mut source), vec![0; 512]);
    let target = buffer(&mut memory);
    std::thread::scope(|scope| {
        for g in Lanes::group(0, 2, 5) {
            scope.spawn(move || {
                for _ in 0..200 {
                    SendHalf::from_handle(&g, net, stream.a).unwrap().send_all(&g, source).unwrap();
                }
            });
        }
        for g in Lanes::group(1, 2, 3) {
            scope.spawn(move || {
                for _ in 0..200 {
                    let mut receiver = RecvHalf::from_handle(&g, net, stream.b).unwrap();
                    assert_eq!(receiver.recv_exact(&g, target.first(source.len())), Ok(source.len()));
                }
            });
        }
    });
    assert_eq!(memory[..message.len()], message);
    // SAFETY: the entry of a slot that no group uses now.
    let sent = unsafe { (*stream.world.entry(stream.a.slot())).lines_sent };
    assert!((1..=200).contains(&sent), "{sent} messages went by units");
}

/// A step of the property test.
#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    More(usize),
    Receive(usize),
    /// Peeks so many bytes and releases some of them.
    Peek(usize, usize),
    Available,
    /// The receiver's copy of the sender's word catches up, and so does all that was stored before.
    Word,
    /// Some words of the receiver's copy of the unit ring catch up: those of the bits, from one on.
    Units(u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = || prop_oneof![4 => 1..=64usize, 2 => 200..=504usize, 1 => 505..=5000usize];
    prop_oneof![
        8 => len().prop_map(Step::Send),
        1 => len().prop_map(Step::More),
        6 => prop_oneof![1..=80usize, 256..=4096usize].prop_map(Step::Receive),
        1 => (1..=4096usize, 0..=4096usize).prop_map(|(len, release)| Step::Peek(len, release)),
        1 => Just(Step::Available),
        2 => Just(Step::Word),
        3 => (any::<u64>(), 0..256usize).prop_map(|(bits, from)| Step::Units(bits, from)),
        2 => Just(Step::Units(u64::MAX, 0)),
    ]
}

proptest! {
    /// Whatever of slots is late, and in whatever order it comes: a receiver gets the sender's
    /// bytes, each once and in order. A word comes after all slots that were stored before it.
    #[test]
    fn a_receiver_gets_the_stream(
        steps in proptest::collection::vec(step(), 1..300),
        before in prop_oneof![Just(0u64), Just((1 << 32) - 300), Just((1 << 40) - 1000)],
    ) {
        let stream = WithUnits::new();
        stream.world.set_positions(0, 1, before);
        let written = stream.world.units_to(1);
        let mut view = vec![Page([0; 512])];
        let (landed, seen) = stream.world.apart(1, &mut view);
        landed.set(before);
        let catch_up = || {
            let word = stream.published().0;
            words(seen).zip(words(written)).for_each(|(own, other)| own.set(other.peek()));
            landed.publish(word);
        };
        let (mut sender, mut receiver) = (stream.sender(), stream.receiver());
        let bytes = pattern(2 << 20);
        let (mut sent, mut received) = (0, 0);
        let mut memory = vec![0; 4096];
        for step in steps {
            match step {
                Step::Send(len) | Step::More(len) => {
                    let mut message = bytes[sent..sent + len].to_vec();
                    let result = match step {
                        Step::More(_) => sender.send_more(&G, buffer(&mut message)),
                        _ => sender.try_send(&G, buffer(&mut message)),
                    };
                    if let Ok(n) = result {
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
                Step::Peek(len, release) => match receiver.try_peek(&G, len) {
                    Ok(span) => {
                        let mut at = received;
                        for piece in span.pieces() {
                            // SAFETY: received bytes of the ring.
                            let seen = unsafe { std::slice::from_raw_parts(piece.ptr, piece.len) };
                            prop_assert!(*seen == bytes[at..at + piece.len]);
                            at += piece.len;
                        }
                        prop_assert!(at <= sent);
                        let release = release.min(span.len());
                        receiver.release(&G, release);
                        received += release;
                    }
                    Err(error) => prop_assert_eq!(error, Error::WouldBlock),
                },
                Step::Available => {
                    let available = receiver.available(&G).unwrap();
                    prop_assert!(received + available <= sent);
                }
                Step::Word => catch_up(),
                Step::Units(bits, from) => {
                    for (at, (own, other)) in words(seen).zip(words(written)).enumerate().skip(from) {
                        if bits >> (at % 64) & 1 == 1 {
                            own.set(other.peek());
                        }
                    }
                }
            }
        }
        sender.shutdown(&G);
        catch_up();
        loop {
            let n = receiver.recv(&G, buffer(&mut memory)).unwrap();
            if n == 0 {
                break;
            }
            prop_assert!(memory[..n] == bytes[received..received + n]);
            received += n;
        }
        prop_assert_eq!(received, sent);
    }
}
