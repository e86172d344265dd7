//! The words that devices share with each other and with the proxy: whatever their values, an end
//! of a ring stays inside it and accepts only valid values, and a closed stream comes to its end.
#![no_main]

use gpunet_abi::ring::{Consumer, Producer, RingEnd};
use gpunet_abi::{Error, Link, RingSpan, StreamWord, Word};
use gpunet_core::connection::{Action, Connection};
use libfuzzer_sys::fuzz_target;

const SIGN: u64 = 1 << 63;
const END: u64 = 1 << 62;
const ERR: u64 = 1 << 61;
const POSITION: u64 = ERR - 1;

fuzz_target!(|data: &[u8]| {
    let Some((&[what, log2], steps)) = data.split_first_chunk::<2>() else { return };
    let (steps, _) = steps.as_chunks::<9>();
    let steps = steps.iter().map(|&[what, ref value @ ..]| (what, u64::from_le_bytes(*value)));
    let capacity = 1 << (log2 % 32);
    match what % 3 {
        0 => ring::<Producer>(capacity, steps),
        1 => ring::<Consumer>(capacity, steps),
        _ => stream(capacity, steps),
    }
});

/// The operations of both ends of a ring.
trait End {
    fn new(end: RingEnd, mine: StreamWord, theirs: StreamWord) -> Self;
    fn accept_what_is_there(&mut self) -> bool;
    fn believed(&self) -> u64;
    /// The largest position that the other end can truthfully claim.
    fn limit(&self) -> u64;
    /// Bytes of the ring that are this end's.
    fn owned(&self) -> u64;
    fn window(&self, len: u64) -> RingSpan;
    fn moved(&mut self, len: u64);
    fn finish(&mut self);
    fn fail(&mut self);
    fn word(&self) -> u64;
}

macro_rules! end {
    ($end:ident, $theirs:ident, $owned:ident, $limit:expr) => {
        impl End for $end {
            fn new(end: RingEnd, mine: StreamWord, theirs: StreamWord) -> Self {
                // SAFETY: `ring` keeps words and ring for as long as this value, and nobody else
                // writes them.
                unsafe { $end::new(end, mine, theirs) }
            }
            fn accept_what_is_there(&mut self) -> bool {
                self.accept(self.poll()).is_ok()
            }
            fn believed(&self) -> u64 {
                self.$theirs().0
            }
            fn limit(&self) -> u64 {
                let limit: fn(&$end) -> u64 = $limit;
                limit(self)
            }
            fn owned(&self) -> u64 {
                self.$owned()
            }
            fn window(&self, len: u64) -> RingSpan {
                self.span(len)
            }
            fn moved(&mut self, len: u64) {
                self.advance(len);
            }
            fn finish(&mut self) {
                self.finish();
            }
            fn fail(&mut self) {
                self.fail();
            }
            fn word(&self) -> u64 {
                self.announce();
                self.end().mine.observe()
            }
        }
    };
}
end!(Producer, released, free, |end| end.position());
end!(Consumer, landed, available, |end| end.position() + end.capacity());

/// Returns whether a word can follow the one that was believed last.
fn can_follow(last: u64, word: u64, limit: u64) -> bool {
    let position = word & POSITION;
    let sane = word & SIGN == 0 && (word & ERR == 0 || word & END != 0);
    let after_end = last & END == 0
        || (position == last & POSITION && word & last & ERR == last & ERR && word & END != 0);
    sane && after_end && position >= last & POSITION && position <= limit
}

/// Runs one end of a ring whose other end writes anything.
fn ring<E: End>(capacity: u64, steps: impl Iterator<Item = (u8, u64)>) {
    let mut words = [0u64; 2];
    let [mine, theirs] = [0, 1].map(|at| {
        // SAFETY: words of this function, which nobody accesses but by these two.
        unsafe { Word::from_ptr(words.as_mut_ptr().wrapping_add(at)) }
    });
    // Nothing is read or written there: spans are addresses.
    let base = std::ptr::without_provenance_mut::<u8>(1 << 40);
    let end = RingEnd {
        base,
        capacity,
        line: std::ptr::null_mut(),
        mine,
        theirs,
        link: Link::driven(0),
        units: false,
    };
    let mut end = E::new(end, StreamWord(0), StreamWord(0));
    for (what, value) in steps {
        let before = end.word();
        match what % 16 {
            step @ 0..8 => {
                let last = end.believed();
                let marks = u64::from(what >> 4) << 60;
                let word = match step {
                    0 | 1 => value,
                    2 | 3 => (last & POSITION).wrapping_add(value % 4096) | marks,
                    4 => end.limit().wrapping_add(value % 3).wrapping_sub(1) | marks,
                    5 => last | marks,
                    6 => end.limit() & POSITION,
                    _ => (last & POSITION).wrapping_sub(value % 3) | marks,
                };
                theirs.publish(word);
                let can_be = can_follow(last, word, end.limit());
                assert_eq!(end.accept_what_is_there(), can_be, "{word:x} after {last:x}");
                assert_eq!(end.believed(), if can_be { word } else { last });
            }
            8..14 => {
                let (owned, span) = (end.owned(), end.window(value));
                assert!(owned <= capacity);
                assert_eq!(span.len() as u64, value.min(owned));
                for piece in span.pieces() {
                    let offset = piece.ptr.addr() - base.addr();
                    assert!((offset + piece.len) as u64 <= capacity);
                }
                end.moved(value);
                assert_eq!(end.word(), before + span.len() as u64, "moved by the span");
                assert_eq!(end.owned(), owned - span.len() as u64);
            }
            14 => end.finish(),
            _ => end.fail(),
        }
        // The marks only grow, and a final position stays.
        let after = end.word();
        assert!(can_follow(before, after, POSITION), "{after:x} after {before:x}");
        if after & END != 0 {
            assert_eq!(end.owned(), 0);
        }
    }
}

/// Runs the proxy's end of a stream: the device writes any words, the transport behaves as
/// transports do.
fn stream(capacity: u64, steps: impl Iterator<Item = (u8, u64)>) {
    let mut stream = Connection::new(capacity, capacity);
    let (mut now, mut released) = (0u64, 0);
    for (what, value) in steps {
        let part = |len: u64| if len == 0 { 0 } else { 1 + value % len };
        let counts = stream.counts();
        let marks = u64::from(what >> 4) << 60;
        match what % 16 {
            0 => drop(stream.handle_published(StreamWord::read(value))),
            1 => drop(stream.handle_consumed(StreamWord::read(value))),
            2 | 3 => {
                let position = counts.sent + counts.unsent + value % (capacity + 2);
                if stream.handle_published(StreamWord::read(position | marks)).is_err() {
                    let _ = stream.handle_error(Error::Protocol);
                }
            }
            4 | 5 => {
                let position = stream.consumed() + value % (counts.unread + 2);
                if stream.handle_consumed(StreamWord::read(position | marks)).is_err() {
                    let _ = stream.handle_error(Error::Protocol);
                }
            }
            6 => stream.handle_ready(value & 1 != 0, value & 2 != 0),
            7 => now = now.saturating_add(value >> 20),
            8 => stream.handle_close(now, value >> 30),
            9 if value & 0xff == 0 => stream.handle_gone(now, value >> 30),
            10 if value & 0xf == 0 => drop(stream.handle_error(Error::ConnectionReset)),
            11 if value & 0xf == 0 => drop(stream.handle_send_error(Error::BrokenPipe)),
            // The driver forgets a stream that is over.
            _ if act(&mut stream, capacity, &mut released, now, value, part) => return,
            _ => {}
        }
        let counts = stream.counts();
        assert!(counts.unsent <= capacity && counts.unread <= capacity, "{counts:?}");
    }
    // The device is gone, and the peer is deaf and dumb: it ends by the clock.
    stream.handle_gone(now, 1_000_000_000);
    let limit = now.saturating_add(1_000_000_000);
    for _ in 0..10_000 {
        match stream.poll_action(now) {
            Action::Finish(_) => return,
            Action::Send { .. } => stream.handle_send_blocked(),
            Action::ShutdownWrite => stream.handle_shutdown(now),
            Action::Receive { .. } | Action::Discard => stream.handle_recv_blocked(),
            Action::Settle => stream.handle_unacknowledged(now, 1),
            // A device that has failed, and is gone, is told of nothing any more.
            Action::Idle => match stream.deadline() {
                Some(deadline) => now = deadline.max(now),
                None => panic!("{stream:?} waits for nothing"),
            },
        }
        assert!(now <= limit, "{stream:?} takes longer than it may");
    }
    panic!("{stream:?} goes round in a circle");
}

/// Carries the next action out, as `value` decides; returns whether the stream is over.
fn act(
    stream: &mut Connection,
    capacity: u64,
    released: &mut u64,
    now: u64,
    value: u64,
    part: impl Fn(u64) -> u64,
) -> bool {
    let counts = stream.counts();
    match stream.poll_action(now) {
        Action::Send { position, len } => {
            assert_eq!((position, len), (counts.sent, counts.unsent));
            assert!(len > 0 && position + len <= *released + capacity, "bytes that are free");
            match value & 3 {
                0 => stream.handle_send_blocked(),
                _ => stream.handle_sent(part(len)),
            }
            let done = part(stream.counts().sent - *released);
            *released += done;
            assert_eq!(stream.handle_released(done), StreamWord::at(*released));
        }
        Action::ShutdownWrite => {
            assert_eq!(counts.unsent, 0);
            stream.handle_shutdown(now);
        }
        Action::Receive { position, len } => {
            assert_eq!(position, counts.received);
            assert!(len > 0 && position + len <= stream.consumed() + capacity, "bytes that are not free");
            match value & 7 {
                0 => drop(stream.handle_eof()),
                1 => stream.handle_recv_blocked(),
                _ => assert_eq!(stream.handle_received(part(len)).position(), position + part(len)),
            }
        }
        Action::Discard => match value & 3 {
            0 => drop(stream.handle_eof()),
            1 => stream.handle_discarded(),
            _ => stream.handle_recv_blocked(),
        },
        Action::Settle => stream.handle_unacknowledged(now, value & 1),
        Action::Finish(_) => return true,
        Action::Idle => {}
    }
    false
}
