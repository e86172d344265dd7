//! Lines and characters.

use gpunet_serve::Bytes;

/// A one in each byte.
const EACH: u64 = u64::MAX / 255;

/// A look for the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// It has so many bytes, and CR LF behind them.
    Complete(usize),
    /// Its end has not come.
    Open,
    /// It has a control character that is no part of its end.
    Bad,
    /// Its end is not within the limit.
    TooLong,
}

/// Looks for the end of the line that begins at `start`, within the first `limit` bytes. No byte
/// before `scanned` is looked at; it is moved on.
///
/// What is found does not depend on how many bytes have come beyond the line.
pub(crate) fn line(bytes: Bytes<'_>, start: usize, scanned: &mut u16, limit: usize) -> Line {
    let window = bytes.first(limit);
    let mut at = (*scanned as usize).max(start);
    while let Some(found) = control(window, at) {
        at = found;
        match (window.get(at), window.get(at + 1)) {
            (b'\t', _) => at += 1,
            (b'\r', b'\n') => {
                *scanned = (at + 2) as u16;
                return Line::Complete(at - start);
            }
            (b'\r', _) if at + 1 == window.len() => break,
            _ => return Line::Bad,
        }
    }
    if bytes.len() >= limit {
        return Line::TooLong;
    }
    let is_open_end = at < window.len() && window.get(at) == b'\r' && at + 1 == window.len();
    *scanned = if is_open_end { at } else { window.len() } as u16;
    Line::Open
}

/// Where the first control character at or after `from` is.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn control(bytes: Bytes<'_>, from: usize) -> Option<usize> {
    let mut at = from;
    while at < bytes.len() {
        let word = bytes.word(at);
        // The lowest bit that is set is right; above it there may be wrong ones.
        let below = word.wrapping_sub(EACH * 0x20) & !word;
        let delete = word ^ (EACH * 0x7f);
        let found = (below | (delete.wrapping_sub(EACH) & !delete)) & EACH << 7;
        if found != 0 {
            let found = at + found.trailing_zeros() as usize / 8;
            // Behind the end there are zeros.
            return if found < bytes.len() { Some(found) } else { None };
        }
        at += 8;
    }
    None
}

/// The characters of a set, as bits: those below 64, and the others below 128.
type Set = [u64; 2];

const fn set(others: &[u8]) -> Set {
    let (mut set, mut byte) = ([0; 2], 0u8);
    while byte < 128 {
        let mut is_in = byte.is_ascii_alphanumeric();
        let mut at = 0;
        while at < others.len() {
            is_in |= others[at] == byte;
            at += 1;
        }
        if is_in {
            set[(byte >> 6) as usize] |= 1 << (byte & 63);
        }
        byte += 1;
    }
    set
}

const TOKEN: Set = set(b"!#$%&'*+-.^_`|~");
const HOST: Set = set(b"-._~%!$&'()*+,;=:[]");

/// Returns whether all of them are of a set.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn are_of(bytes: Bytes<'_>, set: Set) -> bool {
    // Eight at a time, without a branch for each.
    let (mut at, mut are, mut all) = (0, 1, 0);
    while at < bytes.len() {
        let left = bytes.len() - at;
        // Behind the end stands what each set has.
        let behind = if left < 8 { (EACH * b'0' as u64) << (8 * left) } else { 0 };
        let mut word = bytes.word(at) | behind;
        all |= word;
        let mut count = 0;
        while count < 8 {
            let half = if word & 64 == 0 { set[0] } else { set[1] };
            are &= half >> (word & 63);
            word >>= 8;
            count += 1;
        }
        at += 8;
    }
    are & 1 != 0 && all & EACH << 7 == 0
}

/// Returns whether they are a token: a name of a method or of a field.
pub(crate) fn is_token(bytes: Bytes<'_>) -> bool {
    !bytes.is_empty() && are_of(bytes, TOKEN)
}

/// Returns whether they may be a host and a port, or nothing.
pub(crate) fn is_host(bytes: Bytes<'_>) -> bool {
    are_of(bytes, HOST)
}

/// Returns whether a line's bytes may be a target: ASCII, without tabs, and without a fragment.
///
/// A fragment stays with the client: some servers drop it, others take it for a part of the path.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub(crate) fn is_target(bytes: Bytes<'_>) -> bool {
    let (mut at, mut wrong) = (0, 0);
    while at < bytes.len() {
        let word = bytes.word(at);
        let (tabs, fragments) = (word ^ (EACH * b'\t' as u64), word ^ (EACH * b'#' as u64));
        // Without a zero byte there is no bit; above one there may be wrong ones.
        wrong |= word | (tabs.wrapping_sub(EACH) & !tabs) | (fragments.wrapping_sub(EACH) & !fragments);
        at += 8;
    }
    !bytes.is_empty() && wrong & EACH << 7 == 0
}

const fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Without blanks at both ends.
pub(crate) fn trim(mut bytes: Bytes<'_>) -> Bytes<'_> {
    while !bytes.is_empty() && is_blank(bytes.get(0)) {
        bytes = bytes.skip(1);
    }
    bytes.first(bytes.len() - trailing_blanks(bytes))
}

/// How many blanks are at the end.
pub(crate) fn trailing_blanks(bytes: Bytes<'_>) -> usize {
    let mut end = bytes.len();
    while end > 0 && is_blank(bytes.get(end - 1)) {
        end -= 1;
    }
    bytes.len() - end
}

/// Takes the next element of a list that commas separate, trimmed.
pub(crate) fn element<'t>(list: &mut Bytes<'t>) -> Option<Bytes<'t>> {
    while !list.is_empty() {
        let end = list.find(b',', 0).unwrap_or(list.len());
        let found = trim(list.first(end));
        *list = list.skip(end + 1);
        if !found.is_empty() {
            return Some(found);
        }
    }
    None
}

/// The name and the value of a field.
pub(crate) fn field(line: Bytes<'_>) -> Option<(Bytes<'_>, Bytes<'_>)> {
    let colon = line.find(b':', 0)?;
    let name = line.first(colon);
    if is_token(name) { Some((name, trim(line.skip(colon + 1)))) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_control_character_is_found(bytes: Vec<u8>, from in 0usize..40) {
            let expected = bytes.iter().enumerate().skip(from).find(|(_, byte)| byte.is_ascii_control());
            prop_assert_eq!(control(Bytes::from(&bytes[..]), from), expected.map(|(at, _)| at));
        }

        #[test]
        fn sets_and_targets_are_those_of_single_bytes(bytes in prop::collection::vec(prop_oneof![9 => 33u8..127, 1 => any::<u8>()], 0..20)) {
            let here = Bytes::from(&bytes[..]);
            let is_one_of = |others: &'static [u8]| move |byte: &u8| byte.is_ascii_alphanumeric() || others.contains(byte);
            let are = bytes.iter().all(is_one_of(b"!#$%&'*+-.^_`|~"));
            prop_assert_eq!(is_token(here), are && !bytes.is_empty());
            prop_assert_eq!(is_host(here), bytes.iter().all(is_one_of(b"-._~%!$&'()*+,;=:[]")));
            let may_be = bytes.iter().all(|byte| byte.is_ascii() && !b"\t#".contains(byte));
            prop_assert_eq!(is_target(here), may_be && !bytes.is_empty());
        }

        /// Whatever has come at which look, and whatever follows.
        #[test]
        fn a_line_is_the_same_however_it_arrives(
            text in "[a\t\r\n]{0,12}\r\n[a\r\n]{0,5}",
            limit in 0usize..20,
            cuts in prop::collection::vec(0usize..20, 0..8),
        ) {
            let bytes = text.as_bytes();
            let at_once = line(Bytes::from(bytes), 0, &mut 0, limit);
            let (mut cuts, mut scanned) = (cuts, 0);
            cuts.sort_unstable();
            let mut found = Line::Open;
            for cut in cuts.into_iter().chain([bytes.len()]) {
                if found == Line::Open {
                    found = line(Bytes::from(&bytes[..cut.min(bytes.len())]), 0, &mut scanned, limit);
                }
            }
            prop_assert_eq!(found, at_once);
        }
    }

    #[test]
    fn lists_have_elements() {
        let mut list = Bytes::from(b" a ,, b\t,");
        assert_eq!(element(&mut list).unwrap(), b"a");
        assert_eq!(element(&mut list).unwrap(), b"b");
        assert!(element(&mut list).is_none());
    }

    #[test]
    fn names_have_no_blanks() {
        for line in ["a :b", " a:b", "a\t:b", ":b", "ab", "\u{e4}:b", "a b:c"] {
            assert!(field(Bytes::from(line.as_bytes())).is_none(), "{line}");
        }
        let (name, value) = field(Bytes::from(b"A-b:\t c d \t")).unwrap();
        assert!(name == b"A-b" && value == b"c d");
    }
}
