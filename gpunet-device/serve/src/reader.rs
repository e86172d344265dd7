//! What a connection has received, parsed where it lies.

use crate::Bytes;

/// A request is longer than the service takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The bytes that a connection has received and not consumed yet.
///
/// A service takes whole requests from it; what it does not take is there in the next turn, with
/// what has come by then. The bytes stay where they are until the turn ends.
///
/// # Cooperation
/// Every lane has a reader of its own over the same bytes; all lanes call the same methods, which
/// need no barrier.
///
/// # Examples
///
/// ```
/// use gpunet_serve::{Bytes, Reader};
///
/// let mut input = Reader::new(Bytes::from(b"first\r\nsecond\nthi"), false);
/// assert!(input.line(100).unwrap().unwrap() == b"first");
/// assert!(input.line(100).unwrap().unwrap() == b"second");
/// assert!(input.line(100).unwrap().is_none(), "there is more to come");
/// assert_eq!(input.rest().len(), 3);
/// assert!(input.line(2).is_err(), "it is longer than this already");
/// ```
#[derive(Debug)]
pub struct Reader<'t> {
    bytes: Bytes<'t>,
    used: usize,
    ended: bool,
    full: bool,
}

impl<'t> Reader<'t> {
    /// A reader of these bytes; `ended`: the peer sends no more.
    #[must_use]
    pub const fn new(bytes: Bytes<'t>, ended: bool) -> Self {
        Self { bytes, used: 0, ended, full: false }
    }

    /// The same reader, of bytes that fill their ring if `full`.
    #[inline(always)]
    pub(crate) const fn filling(self, full: bool) -> Self {
        Self { full, ..self }
    }

    /// The bytes that are not consumed.
    #[inline(always)]
    #[must_use]
    pub const fn rest(&self) -> Bytes<'t> {
        self.bytes.skip(self.used)
    }

    /// Returns whether nothing is left.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used == self.bytes.len()
    }

    /// Returns whether the peer has ended its stream: no more will come after [`Reader::rest`].
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether [`Reader::rest`] fills the ring: no more comes before some is consumed.
    ///
    /// A service that waits for the rest of a request waits in vain then, and refuses it. It is
    /// told in a call of its own, after one that has left the same bytes.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full && self.used == 0
    }

    /// How many bytes were consumed in this turn.
    #[inline(always)]
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Consumes `len` bytes, or what is there.
    #[inline(always)]
    pub const fn consume(&mut self, len: usize) {
        let left = self.bytes.len() - self.used;
        self.used += if len < left { len } else { left };
    }

    /// Takes exactly `len` bytes once they are there.
    pub const fn exact(&mut self, len: usize) -> Option<Bytes<'t>> {
        if self.bytes.len() - self.used < len {
            return None;
        }
        let taken = self.rest().first(len);
        self.used += len;
        Some(taken)
    }

    /// Takes the bytes before the next `end`, and consumes that, too.
    ///
    /// # Errors
    /// There are more than `most` bytes before it. Nothing is consumed.
    pub fn until(&mut self, end: u8, most: usize) -> Result<Option<Bytes<'t>>, TooLong> {
        let rest = self.rest();
        // One byte more may be the end.
        match rest.first(most.saturating_add(1)).find(end, 0) {
            Some(len) => {
                self.used += len + 1;
                Ok(Some(rest.first(len)))
            }
            None if rest.len() > most => Err(TooLong),
            None => Ok(None),
        }
    }

    /// Takes the next line, without its end: LF or CR LF.
    ///
    /// # Errors
    /// It has more than `most` bytes. Nothing is consumed: [`Reader::consume`] skips as much of it
    /// as has come.
    pub fn line(&mut self, most: usize) -> Result<Option<Bytes<'t>>, TooLong> {
        let line = self.until(b'\n', most)?;
        Ok(line.map(|line| match line.len().checked_sub(1) {
            Some(last) if line.get(last) == b'\r' => line.first(last),
            _ => line,
        }))
    }

    /// Takes bytes that follow their length, a number of 32 bits in network order.
    ///
    /// # Errors
    /// It is larger than `most`. Nothing is consumed.
    pub fn prefixed(&mut self, most: usize) -> Result<Option<Bytes<'t>>, TooLong> {
        const PREFIX: usize = 4;
        let rest = self.rest();
        if rest.len() < PREFIX {
            return Ok(None);
        }
        let len = u32::from_be_bytes([rest.get(0), rest.get(1), rest.get(2), rest.get(3)]) as usize;
        if len > most {
            return Err(TooLong);
        }
        if rest.len() - PREFIX < len {
            return Ok(None);
        }
        self.used += PREFIX + len;
        Ok(Some(rest.slice(PREFIX, len)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Feeds a stream in pieces to a reader of requests, as turns do; returns the requests.
    fn in_pieces(
        stream: &[u8],
        cuts: &[usize],
        next: impl for<'t> Fn(&mut Reader<'t>) -> Option<Bytes<'t>>,
    ) -> Vec<Vec<u8>> {
        let (mut found, mut start, mut end) = (Vec::new(), 0, 0);
        for cut in cuts.iter().copied().chain([stream.len()]) {
            end = (end + cut).min(stream.len());
            let mut input = Reader::new(Bytes::from(&stream[start..end]), false);
            while let Some(one) = next(&mut input) {
                found.push((0..one.len()).map(|at| one.get(at)).collect());
            }
            start += input.used();
        }
        found
    }

    proptest! {
        #[test]
        fn lines_are_the_same_however_they_arrive(lines in prop::collection::vec("[a-z]{0,9}", 0..9), cuts in prop::collection::vec(0usize..9, 0..30)) {
            let stream = lines.join("\n") + "\n";
            let found = in_pieces(stream.as_bytes(), &cuts, |input| input.line(9).unwrap());
            let lines = if lines.is_empty() { std::vec![std::string::String::new()] } else { lines };
            prop_assert_eq!(found, lines.iter().map(|line| line.as_bytes().to_vec()).collect::<Vec<_>>());
        }

        #[test]
        fn prefixed_bytes_are_the_same_however_they_arrive(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..9), cuts in prop::collection::vec(0usize..9, 0..60)) {
            let stream: Vec<u8> = all.iter().flat_map(|one| [&(one.len() as u32).to_be_bytes()[..], one].concat()).collect();
            prop_assert_eq!(in_pieces(&stream, &cuts, |input| input.prefixed(20).unwrap()), all);
        }
    }

    #[test]
    fn what_is_too_long_is_found_before_it_has_come() {
        assert_eq!(Reader::new(Bytes::from(b"\0\0\x01\0"), false).prefixed(255).unwrap_err(), TooLong);
        assert_eq!(Reader::new(Bytes::from(b"0123"), false).until(b';', 3).unwrap_err(), TooLong);
        assert!(Reader::new(Bytes::from(b"012"), false).until(b';', 3).unwrap().is_none());
        assert!(Reader::new(Bytes::from(b"012;"), false).until(b';', 3).unwrap().is_some());
    }

    #[test]
    fn exactly_what_was_asked_for_is_taken() {
        let mut input = Reader::new(Bytes::from(b"abcd"), true);
        assert_eq!(input.exact(3).unwrap(), b"abc");
        assert!(input.exact(2).is_none() && input.has_ended() && !input.is_empty());
        input.consume(99);
        assert!(input.is_empty() && input.used() == 4);
    }

    #[test]
    fn a_ring_is_full_until_something_is_consumed() {
        let input = || Reader::new(Bytes::from(b"abcd"), false);
        assert!(!input().is_full() && !input().filling(false).is_full());
        let mut full = input().filling(true);
        assert!(full.is_full());
        full.consume(1);
        assert!(!full.is_full());
    }
}
