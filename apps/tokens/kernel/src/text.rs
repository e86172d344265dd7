//! Which part of an answer may be sent: not what may be the beginning of a stop sequence, and no
//! part of a character.

use crate::slots::Stops;
use gpunet_serve::Bytes;

/// How far an answer's text is final.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    /// Bytes of the text that will not change.
    pub(crate) len: usize,
    /// Tokens up to the end of a stop sequence, if there is one; the text ends before it.
    pub(crate) stopped: Option<usize>,
}

/// Finds how much of `output` is final. The first `from` bytes are, and `is_whole` tells that
/// nothing more comes.
///
/// The result for a text does not depend on how it comes: of several stop sequences that one
/// counts which ends first, and of those that end there the longest.
pub(crate) fn settle(output: Bytes<'_>, from: usize, is_whole: bool, stops: Stops) -> Settled {
    let mut end = from + 1;
    while end <= output.len() && stops.len() > 0 {
        let (mut longest, mut which) = (0, 0);
        while which < stops.len() {
            let stop = stops.get(which);
            let is_there = stop.len() <= end - from && output.slice(end - stop.len(), stop.len()) == stop;
            if is_there && stop.len() > longest {
                longest = stop.len();
            }
            which += 1;
        }
        if longest > 0 {
            return Settled { len: end - longest, stopped: Some(end) };
        }
        end += 1;
    }
    if is_whole {
        return Settled { len: output.len(), stopped: None };
    }
    let held = held(output.skip(from), stops);
    let len = output.len() - held;
    Settled { len: from + whole_characters(output.slice(from, len - from)), stopped: None }
}

/// How many bytes at the end of the text may be the beginning of a stop sequence.
fn held(text: Bytes<'_>, stops: Stops) -> usize {
    let (mut held, mut which) = (0, 0);
    while which < stops.len() {
        let stop = stops.get(which);
        let mut len = text.len().min(stop.len().saturating_sub(1));
        while len > held && text.skip(text.len() - len) != stop.first(len) {
            len -= 1;
        }
        held = held.max(len);
        which += 1;
    }
    held
}

/// How many bytes there are without the beginning of a character at the end.
fn whole_characters(text: Bytes<'_>) -> usize {
    let mut back = 1;
    while back <= 3 && back <= text.len() {
        let byte = text.get(text.len() - back);
        let len = match byte {
            0x80..0xc0 => 0,
            0xc2..0xe0 => 2,
            0xe0..0xf0 => 3,
            0xf0..0xf5 => 4,
            _ => 1,
        };
        if len > 0 {
            return if len > back { text.len() - back } else { text.len() };
        }
        back += 1;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots;
    use gpunet_device::group::Solo;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn stops(texts: &[&[u8]]) -> Stops {
        let (g, slot) = (Solo::new(0, 1), slots::for_test());
        for (which, text) in texts.iter().enumerate() {
            slot.put_stop(&g, which, Bytes::from(*text));
        }
        slot.stops(texts.len())
    }

    #[test]
    fn what_may_become_a_stop_sequence_waits() {
        let settled =
            |text: &[u8], is_whole| settle(Bytes::from(text), 0, is_whole, stops(&[b"END", b"\n\n"]));
        assert_eq!(settled(b"abEN", false), Settled { len: 2, stopped: None });
        assert_eq!(settled(b"abEN", true), Settled { len: 4, stopped: None });
        assert_eq!(settled(b"abENDc", false), Settled { len: 2, stopped: Some(5) });
        assert_eq!(settled(b"a\n", false), Settled { len: 1, stopped: None });
        assert_eq!(settled(b"ENDE\n\n", true), Settled { len: 0, stopped: Some(3) });
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "aé€😀".as_bytes();
        let lens: Vec<_> =
            (0..=text.len()).map(|len| settle(Bytes::from(&text[..len]), 0, false, stops(&[])).len).collect();
        assert_eq!(lens, [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10]);
        // Bytes that no character begins with wait for nothing.
        assert_eq!(settle(Bytes::from(b"a\x80\xff"), 0, false, stops(&[])).len, 3);
    }

    proptest! {
        /// A text that comes in pieces is sent as far as one that comes at once.
        #[test]
        fn pieces_do_not_matter(
            text in prop::collection::vec(prop::sample::select(std::vec![b'a', b'b', b'c', 0xc3, 0xa9]), 0..30),
            texts in prop::collection::vec("[abc]{1,4}", 0..4),
            steps in prop::collection::vec(1usize..6, 30),
        ) {
            let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
            let stops = stops(&texts);
            let whole = settle(Bytes::from(&text[..]), 0, true, stops);
            let (mut len, mut end, mut found) = (0, 0, None);
            for step in steps {
                end = (end + step).min(text.len());
                let settled = settle(Bytes::from(&text[..end]), len, end == text.len(), stops);
                prop_assert!(settled.len >= len, "nothing is taken back");
                len = settled.len;
                if settled.stopped.is_some() || end == text.len() {
                    found = Some(settled);
                    break;
                }
            }
            if let Some(found) = found {
                prop_assert_eq!(found, whole);
            }
            // An occurrence is found if there is one.
            let first = (0..text.len()).filter(|at| texts.iter().any(|stop| text[*at..].starts_with(stop))).count();
            prop_assert_eq!(first > 0, whole.stopped.is_some());
        }
    }
}
