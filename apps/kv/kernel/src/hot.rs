//! The commonest requests, without the table of commands and what the others need: on a GPU, what
//! is known of such a request stays in registers.
//!
//! What is not easy (a new key, a large value, an error) is left to `command`, which does it from
//! the beginning.

use crate::command::FRAME;
use crate::own;
use crate::reply::LINE_END;
use crate::resp::lower;
use crate::store::{MAX_KEY, Store};
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Context, Digits, Key, OWN_COUNTERS, Short, Writer};

const END: Short = Short::of(LINE_END);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ping,
    Get,
    Set,
    Exists,
    Incr,
}

/// A request, and how many bytes it has.
struct Request<'t> {
    kind: Kind,
    key: Bytes<'t>,
    value: Bytes<'t>,
    len: usize,
}

/// Answers a request if it is one of these, there is one, and it is easy. Returns how many bytes it
/// has; 0: nothing was done.
#[inline(always)]
pub(crate) fn serve<G: Group>(
    g: &G,
    context: &Context,
    store: &Store,
    bytes: Bytes<'_>,
    (database, is_resp3): (u8, bool),
    out: &mut Writer<'_>,
    counters: &mut [u64; OWN_COUNTERS],
) -> Result<usize> {
    let Some(Request { kind, key, value, len }) = request(bytes) else { return Ok(0) };
    if kind == Kind::Ping {
        out.put_between(g, Short::of(b"+PONG"), Bytes::EMPTY, END);
        counters[own::COMMANDS] += 1;
        return Ok(len);
    }
    let room = out.room();
    let key = Key::in_space(key, database as u32);
    let Some(mut locked) = store.map.lock_inline(g, context, key)? else { return Ok(0) };
    let (is_there, is_structure) = (locked.value().is_some(), locked.is_structure());
    let digits;
    let answer = match kind {
        Kind::Exists => Some((if is_there { Short::of(b":1") } else { Short::of(b":0") }, Bytes::EMPTY)),
        Kind::Set if locked.overwrite(value, 0) => Some((Short::of(b"+OK"), Bytes::EMPTY)),
        Kind::Incr if is_there && !is_structure => match locked.value().and_then(|old| old.number()) {
            Some(old) if old < i64::MAX => {
                digits = Digits::of(old + 1);
                let expires = locked.expires();
                let is_done = locked.overwrite(digits.bytes(), expires);
                is_done.then(|| (Short::of(b":"), digits.bytes()))
            }
            _ => None,
        },
        Kind::Get if !is_structure => match locked.value() {
            Some(value) if value.len() + FRAME <= room => Some((head(value.len()), value)),
            Some(_) => None,
            None => Some((if is_resp3 { Short::of(b"_") } else { Short::of(b"$-1") }, Bytes::EMPTY)),
        },
        _ => None,
    };
    let is_done = match answer {
        Some((before, bytes)) => out.put_between(g, before, bytes, END),
        None => false,
    };
    locked.unlock_inline()?;
    if !is_done {
        return Ok(0);
    }
    counters[own::COMMANDS] += 1;
    if kind == Kind::Get || kind == Kind::Exists {
        counters[if is_there { own::HITS } else { own::MISSES }] += 1;
    }
    Ok(len)
}

/// The first line of a bulk string of at most 99,999 bytes.
#[inline(always)]
fn head(len: usize) -> Short {
    let (mut rest, mut head) = (len as u32, END);
    loop {
        head = head.behind(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            return head.behind(b'$');
        }
    }
}

/// The request at the beginning of these bytes, if all of it is there and it is one of these.
#[inline(always)]
fn request(bytes: Bytes<'_>) -> Option<Request<'_>> {
    // All are arrays whose heads, up to the name, have eight bytes.
    let (head, name) = (bytes.word(0), lower(bytes.word(8)));
    let is = |other: Short, text: Short| head == other.word() && (name ^ text.word()) & mask(text.len()) == 0;
    let (kind, at) = if is(Short::of(b"*2\r\n$3\r\n"), Short::of(b"get\r\n")) {
        (Kind::Get, 13)
    } else if is(Short::of(b"*3\r\n$3\r\n"), Short::of(b"set\r\n")) {
        (Kind::Set, 13)
    } else if is(Short::of(b"*2\r\n$4\r\n"), Short::of(b"incr\r\n")) {
        (Kind::Incr, 14)
    } else if is(Short::of(b"*2\r\n$6\r\n"), Short::of(b"exists\r\n")) {
        (Kind::Exists, 16)
    } else if is(Short::of(b"*1\r\n$4\r\n"), Short::of(b"ping\r\n")) {
        return Some(Request { kind: Kind::Ping, key: Bytes::EMPTY, value: Bytes::EMPTY, len: 14 });
    } else {
        return None;
    };
    let (key, mut len) = argument(bytes, at)?;
    let mut value = Bytes::EMPTY;
    if kind == Kind::Set {
        (value, len) = argument(bytes, len)?;
    }
    if key.len() > MAX_KEY {
        return None;
    }
    Some(Request { kind, key, value, len })
}

/// An argument of at most 99,999 bytes, if it begins there and all of it has come; and where it
/// ends.
#[inline(always)]
fn argument(bytes: Bytes<'_>, at: usize) -> Option<(Bytes<'_>, usize)> {
    let word = bytes.word(at);
    let (mut rest, mut len, mut digits) = (word >> 8, 0, 0);
    while digits < 5 && (rest as u8).wrapping_sub(b'0') <= 9 {
        len = len * 10 + (rest as u8 - b'0') as usize;
        (rest, digits) = (rest >> 8, digits + 1);
    }
    let has_leading_zero = digits > 1 && (word >> 8) as u8 == b'0';
    if word as u8 != b'$' || digits == 0 || has_leading_zero || rest & mask(2) != END.word() {
        return None;
    }
    let start = at + digits + 3;
    let end = start + len + 2;
    if end > bytes.len() { None } else { Some((bytes.slice(start, len), end)) }
}

/// The lowest `len` bytes.
#[inline(always)]
const fn mask(len: usize) -> u64 {
    if len < 8 { (1 << (8 * len)) - 1 } else { u64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{self, Parsed, Progress};
    use proptest::prelude::*;
    use std::vec::Vec;

    fn words(bytes: Bytes<'_>) -> Vec<u8> {
        (0..bytes.len()).map(|at| bytes.get(at)).collect()
    }

    #[test]
    fn a_head_has_the_length() {
        for len in [0, 3, 10, 999, 16_384, 99_999] {
            let head = head(len);
            let text: Vec<u8> = (0..head.len()).map(|at| head.get(at)).collect();
            assert_eq!(text, std::format!("${len}\r\n").into_bytes());
        }
    }

    proptest! {
        /// What is found here the parser finds, too, with the same arguments.
        #[test]
        fn requests_are_those_of_the_parser(
            name in prop::sample::select(std::vec!["GET", "gEt", "SET", "incr", "EXISTS", "PING", "DEL"]),
            arguments in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..4),
            cut in 0usize..200,
            change in prop::option::of((0usize..60, any::<u8>())),
        ) {
            let mut text = std::format!("*{}\r\n${}\r\n{name}\r\n", arguments.len() + 1, name.len()).into_bytes();
            for argument in &arguments {
                text.extend(std::format!("${}\r\n", argument.len()).into_bytes());
                text.extend(argument);
                text.extend(b"\r\n");
            }
            if let Some((at, byte)) = change && let Some(place) = text.get_mut(at) {
                *place = byte;
            }
            text.truncate(cut.max(1));
            let bytes = Bytes::from(&text[..]);
            let parsed = resp::parse(bytes, &mut Progress::default());
            match request(bytes) {
                Some(found) => {
                    prop_assert_eq!(parsed, Parsed::Complete(found.len));
                    let mut rest = resp::Arguments::of(bytes.first(found.len));
                    let name = words(rest.next().unwrap());
                    prop_assert!(name.len() == 3 || name.len() == 4 || name.len() == 6);
                    for argument in [found.key, found.value] {
                        prop_assert_eq!(words(argument), rest.next().map_or(Vec::new(), words));
                    }
                    prop_assert!(rest.is_empty());
                }
                None => {
                    let expected = match name { "SET" => 2, "PING" => 0, "DEL" => 9, _ => 1 };
                    let is_complete = matches!(parsed, Parsed::Complete(_));
                    prop_assert!(change.is_some() || !is_complete || arguments.len() != expected);
                }
            }
        }
    }
}
