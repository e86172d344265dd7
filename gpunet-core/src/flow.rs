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

    /// Position and number of the bytes that wait for the transport.
    #[must_use]
    pub const fn pending(&self) -> (u64, u64) {
        (self.sent, self.published.position() - self.sent)
    }

    /// Notes that the transport took `n` bytes. Their ring memory may still be in use.
    pub const fn handle_sent(&mut self, n: u64) {
        self.sent += n;
    }

    /// Notes that the transport has done with the memory of `n` bytes it took; returns the `released`
    /// word to publish.
    pub const fn handle_released(&mut self, n: u64) -> StreamWord {
        self.released += n;
        debug_assert!(self.released <= self.sent);
        StreamWord::at(self.released)
    }

    /// Returns whether all bytes are sent, the device has finished, and the transport was not told yet.
    #[must_use]
    pub const fn wants_shutdown(&self) -> bool {
        self.published.end() && !self.shut && self.published.position() == self.sent
    }

    /// Makes the position that was last published the final one (the device is gone).
    pub const fn finish(&mut self) {
        self.published = self.published.with_end();
    }

    /// Notes that the transport was told of the end.
    pub const fn handle_shutdown(&mut self) {
        self.shut = true;
    }

    /// Returns whether the transport was told of the end.
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
    /// # Errors
    /// The [`Violation`], when the word is invalid.
    pub fn handle_consumed(&mut self, word: StreamWord) -> Result<(), Violation> {
        if word.err() {
            return Err(Violation::GaveUp);
        }
        self.consumed = advance(self.consumed, word, self.landed.position())?;
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

    /// Returns whether the device wants no more data: what comes in is to be discarded.
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
    }
}
