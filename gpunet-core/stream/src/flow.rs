//! One direction of a proxy-driven stream, seen from the proxy. Pure: words in, words out.

use gpunet_abi::StreamWord;
use gpunet_abi::position::{Violation, advance};

/// Bytes on their way from the device's send ring to the transport.
#[derive(Clone, Copy, Debug)]
pub struct SendFlow {
    capacity: u64,
    published: StreamWord,
    sent: u64,
    released: u64,
    shut: bool,
}

impl SendFlow {
    /// A new, empty flow over a ring of `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, published: StreamWord(0), sent: 0, released: 0, shut: false }
    }

    /// Takes in the device's `published` word.
    ///
    /// # Errors
    /// The [`Violation`], when the word is invalid: the device's memory was overwritten.
    pub fn handle_published(&mut self, word: StreamWord) -> Result<(), Violation> {
        if word.err() {
            return Err(Violation::GaveUp);
        }
        self.published = advance(self.published, word, self.released + self.capacity)?;
        Ok(())
    }

    /// The same once the transport takes nothing more. A CUDA stream that waited for room was
    /// released without it, and publishes more than there is room for: of that, nothing counts.
    /// An end beyond the room counts where the room ended when it was seen, also if bytes that the
    /// transport took before are released later.
    ///
    /// # Errors
    /// As [`SendFlow::handle_published`].
    pub fn handle_published_in_vain(&mut self, word: StreamWord) -> Result<(), Violation> {
        let limit =
            if self.published.end() { self.published.position() } else { self.released + self.capacity };
        self.handle_published(cut(word, limit))
    }

    /// Position and number of the bytes that wait for the transport.
    #[must_use]
    pub const fn pending(&self) -> (u64, u64) {
        (self.sent, self.published.position() - self.sent)
    }

    /// Notes that the transport took `n` bytes. Their ring memory may still be in use.
    pub const fn handle_sent(&mut self, n: u64) {
        self.sent += n;
    }

    /// Notes that the transport has done with the memory of `n` bytes it took; returns the
    /// `released` word to publish.
    pub const fn handle_released(&mut self, n: u64) -> StreamWord {
        self.released += n;
        debug_assert!(self.released <= self.sent);
        StreamWord::at(self.released)
    }

    /// Returns whether all bytes are sent, the device has finished, and the transport was not told
    /// yet.
    #[must_use]
    pub const fn wants_shutdown(&self) -> bool {
        self.published.end() && !self.shut && self.published.position() == self.sent
    }

    /// Makes the position that was last published the final one (the device is gone).
    pub const fn finish(&mut self) {
        self.published = self.published.with_end();
    }

    /// Records that the end was announced to the transport.
    pub const fn handle_shutdown(&mut self) {
        self.shut = true;
    }

    /// Returns whether the end was announced to the transport.
    #[must_use]
    pub const fn is_shut(&self) -> bool {
        self.shut
    }
}

/// Bytes on their way from the transport to the device's receive ring.
#[derive(Clone, Copy, Debug)]
pub struct RecvFlow {
    capacity: u64,
    consumed: StreamWord,
    landed: StreamWord,
}

impl RecvFlow {
    /// A new, empty flow over a ring of `capacity` bytes.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, consumed: StreamWord(0), landed: StreamWord(0) }
    }

    /// Takes in the device's `consumed` word.
    ///
    /// Once the end of the stream has landed, it may be ahead of what landed. A CUDA stream that
    /// waits for a whole message is released by an end in its middle, cannot look at why, and gives
    /// back the whole message. What never came is not counted.
    ///
    /// # Errors
    /// The [`Violation`], when the word is invalid.
    pub fn handle_consumed(&mut self, word: StreamWord) -> Result<(), Violation> {
        if word.err() {
            return Err(Violation::GaveUp);
        }
        let landed = self.landed.position();
        let word = if self.landed.end() { cut(word, landed) } else { word };
        self.consumed = advance(self.consumed, word, landed)?;
        Ok(())
    }

    /// Position and number of the free bytes; none after the end.
    #[must_use]
    pub const fn space(&self) -> (u64, u64) {
        let landed = self.landed.position();
        if self.landed.end() {
            return (landed, 0);
        }
        (landed, self.capacity - (landed - self.consumed.position()))
    }

    /// Bytes that have landed so far, and how many of them the device has not consumed.
    #[must_use]
    pub const fn landed(&self) -> (u64, u64) {
        let landed = self.landed.position();
        (landed, landed - self.consumed.position())
    }

    /// Position up to which the device has consumed.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.consumed.position()
    }

    /// Returns whether the device has stopped reading: incoming data is then discarded.
    #[must_use]
    pub const fn reader_left(&self) -> bool {
        self.consumed.end()
    }

    /// Notes `n` received bytes; returns the `landed` word to publish.
    pub const fn handle_received(&mut self, n: u64) -> StreamWord {
        self.landed = StreamWord::at(self.landed.position() + n);
        self.landed
    }

    /// Notes the peer's end of stream; returns the `landed` word to publish.
    pub const fn handle_eof(&mut self) -> StreamWord {
        self.landed = self.landed.with_end();
        self.landed
    }

    /// Returns whether the peer's end of stream was seen.
    #[must_use]
    pub const fn is_ended(&self) -> bool {
        self.landed.end()
    }
}

/// The word with its position cut to the limit, and its marks as they are.
const fn cut(word: StreamWord, limit: u64) -> StreamWord {
    StreamWord(word.0 - word.position().saturating_sub(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shutdown_follows_the_last_byte() {
        let mut flow = SendFlow::new(16);
        flow.handle_published(StreamWord::at(10).with_end()).unwrap();
        assert!(!flow.wants_shutdown());
        flow.handle_sent(10);
        assert!(flow.wants_shutdown());
        flow.handle_shutdown();
        assert!(!flow.wants_shutdown());
    }

    #[test]
    fn ends_and_positions_are_remembered() {
        let mut send = SendFlow::new(16);
        send.finish();
        assert!(send.wants_shutdown(), "the device is gone, and nothing is left to send");
        assert!(!send.is_shut());
        send.handle_shutdown();
        assert!(send.is_shut());

        let mut recv = RecvFlow::new(16);
        assert_eq!(recv.handle_received(10), StreamWord::at(10));
        recv.handle_consumed(StreamWord::at(4)).unwrap();
        assert_eq!((recv.landed(), recv.consumed()), ((10, 6), 4));
    }

    #[test]
    fn memory_in_use_is_not_space() {
        let mut flow = SendFlow::new(16);
        flow.handle_published(StreamWord::at(16)).unwrap();
        flow.handle_sent(16);
        assert!(flow.handle_published(StreamWord::at(17)).is_err());
        assert_eq!(flow.handle_released(4), StreamWord::at(4));
        flow.handle_published(StreamWord::at(20)).unwrap();
        assert_eq!(flow.pending(), (16, 4));
    }

    #[test]
    fn what_is_given_back_beyond_the_end_of_a_stream_does_not_count() {
        let mut flow = RecvFlow::new(16);
        flow.handle_received(10);
        assert!(flow.handle_consumed(StreamWord::at(11)).is_err(), "it may still come");
        flow.handle_eof();
        for ahead in [11, 1000, 500] {
            flow.handle_consumed(StreamWord::at(ahead)).unwrap();
            assert_eq!((flow.landed(), flow.consumed(), flow.space()), ((10, 0), 10, (10, 0)));
        }
        assert!(!flow.reader_left());
        flow.handle_consumed(StreamWord::at(2000).with_end()).unwrap();
        assert!(flow.reader_left() && flow.consumed() == 10);
        for wrong in [StreamWord::at(9), StreamWord::at(1000).with_err(), StreamWord(1 << 63 | 1000)] {
            assert!(flow.handle_consumed(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_published_in_vain_is_cut_to_the_room() {
        let mut flow = SendFlow::new(16);
        flow.handle_published(StreamWord::at(10)).unwrap();
        assert!(flow.handle_published(StreamWord::at(17)).is_err());
        for ahead in [17, 1000] {
            flow.handle_published_in_vain(StreamWord::at(ahead)).unwrap();
            assert_eq!(flow.pending(), (0, 16));
        }
        for wrong in [StreamWord::at(9), StreamWord::at(1000).with_err(), StreamWord(1 << 63 | 1000)] {
            assert!(flow.handle_published_in_vain(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_end_published_in_vain_stays_where_it_was_seen() {
        let mut flow = SendFlow::new(16);
        flow.handle_published(StreamWord::at(10)).unwrap();
        flow.handle_sent(10);
        let end = StreamWord::at(1000).with_end();
        flow.handle_published_in_vain(end).unwrap();
        assert_eq!(flow.pending(), (10, 6));
        // The transport has done with what it took before.
        flow.handle_released(10);
        flow.handle_published_in_vain(end).unwrap();
        assert_eq!(flow.pending(), (10, 6));
        for wrong in [StreamWord::at(1000), StreamWord::at(15).with_end()] {
            assert!(flow.handle_published_in_vain(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_device_that_claims_more_than_the_ring_is_refused() {
        let mut flow = SendFlow::new(16);
        assert!(flow.handle_published(StreamWord::at(17)).is_err());
        let mut flow = RecvFlow::new(16);
        assert!(flow.handle_consumed(StreamWord::at(1)).is_err());
        assert!(flow.handle_consumed(StreamWord::at(0).with_err()).is_err());
    }

    proptest! {
        #[test]
        fn any_word_is_refused_or_keeps_the_invariant(words in prop::collection::vec(any::<u64>(), 1..50)) {
            let (mut send, mut recv) = (SendFlow::new(64), RecvFlow::new(64));
            for word in words {
                // Small and huge values alike, with and without marks.
                for value in [word, word % 200, (word % 200) | gpunet_abi::position::END] {
                    let _ = send.handle_published(StreamWord(value));
                    let _ = recv.handle_consumed(StreamWord(value));
                    prop_assert!(send.pending().1 <= 64);
                    let half = send.pending().1 / 2;
                    send.handle_sent(half);
                    send.handle_released(half / 2);
                    prop_assert!(recv.space().1 <= 64);
                    recv.handle_received(recv.space().1 / 3);
                }
            }
        }

        /// Whatever a device gives back of a stream that has ended, in whatever order: what came is
        /// given back at most once, nothing else is, and only words that go back below that or are
        /// malformed are refused.
        #[test]
        fn an_ended_stream_gives_back_what_came_and_no_more(
            landed in 0..=64u64, before in 0..=64u64, words in prop::collection::vec((0..200u64, any::<bool>()), 1..50),
        ) {
            let mut flow = RecvFlow::new(64);
            flow.handle_received(landed);
            let before = before.min(landed);
            flow.handle_consumed(StreamWord::at(before)).unwrap();
            flow.handle_eof();
            let (mut consumed, mut has_left) = (before, false);
            for (to, leaves) in words {
                let word = if leaves { StreamWord::at(to).with_end() } else { StreamWord::at(to) };
                let keeps = if has_left { leaves && to.min(landed) == consumed } else { to >= consumed };
                prop_assert_eq!(flow.handle_consumed(word).is_ok(), keeps);
                if keeps {
                    (consumed, has_left) = (to.min(landed), has_left || leaves);
                }
                prop_assert_eq!((flow.consumed(), flow.reader_left()), (consumed, has_left));
                prop_assert_eq!((flow.landed(), flow.space()), ((landed, landed - consumed), (landed, 0)));
            }
        }
    }
}
