//! The parser of RESP2 requests: arrays of bulk strings, and inline commands. It has no state but
//! [`Progress`] and touches nothing but the bytes that it is given, so that all lanes of a block
//! can run it over the same bytes.

use gpunet_serve::Bytes;

/// The longest argument, and so the longest value: 1 MiB.
pub const MAX_BULK: usize = 1 << 20;
/// The most arguments of a request, as Redis has it.
pub const MAX_ARGUMENTS: i64 = 1 << 20;
/// The longest request.
pub const MAX_REQUEST: usize = 4 << 20;
/// The longest inline command, and the longest line with a length, as Redis has them.
pub const MAX_INLINE: usize = 64 << 10;

/// How far a request has been parsed. The next call goes on from there, so bytes that arrive one by
/// one are looked at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that need no second look.
    at: u32,
    /// Arguments that are still to come.
    left: u32,
    /// The number of arguments is known.
    counted: bool,
    /// Bytes in which the line with the next argument's length does not end.
    scanned: u32,
}

/// What a look at the bytes of a request has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// The request is complete and has so many bytes.
    Complete(usize),
    /// It has at least so many bytes.
    Incomplete(usize),
    /// It is no request.
    Invalid(Invalid),
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// The number of arguments is no number, or too large.
    MultibulkLength,
    /// The line with it does not end.
    MultibulkLine,
    /// An argument does not begin with `$` but with that byte.
    NoDollar(u8),
    /// The length of an argument is no number, or too large.
    BulkLength,
    /// The line with it does not end.
    BulkLine,
    /// An inline command does not end.
    InlineLine,
    /// A quote of an inline command does not end, or a word goes on behind it.
    Quotes,
    /// A quoted word of an inline command has an escape, or begins within a word.
    Escapes,
    /// The request has more than [`MAX_REQUEST`] bytes.
    TooLong,
}

impl Invalid {
    /// Redis's words for it.
    #[must_use]
    pub const fn text(self) -> &'static [u8] {
        match self {
            Self::MultibulkLength => b"invalid multibulk length",
            Self::MultibulkLine => b"too big mbulk count string",
            Self::NoDollar(_) => b"expected '$', got '",
            Self::BulkLength => b"invalid bulk length",
            Self::BulkLine => b"too big bulk count string",
            Self::InlineLine => b"too big inline request",
            Self::Quotes => b"unbalanced quotes in request",
            Self::Escapes => b"no escapes in inline requests, and only whole words in quotes",
            Self::TooLong => b"too big request",
        }
    }
}

/// Looks at the bytes of one request, of which more than it may be there.
///
/// `progress` is the default at the beginning of a request; it is changed only if the result is
/// `Incomplete`.
#[must_use]
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn parse(bytes: Bytes<'_>, progress: &mut Progress) -> Parsed {
    if bytes.is_empty() {
        return Parsed::Incomplete(1);
    }
    let mut now = *progress;
    let parsed = if bytes.get(0) == b'*' { array(bytes, &mut now) } else { inline(bytes, &mut now) };
    match parsed {
        Parsed::Incomplete(total) if total > MAX_REQUEST => Parsed::Invalid(Invalid::TooLong),
        Parsed::Incomplete(_) => {
            *progress = now;
            parsed
        }
        _ => parsed,
    }
}

fn array(bytes: Bytes<'_>, progress: &mut Progress) -> Parsed {
    if !progress.counted {
        let (end, count) = match number_line(bytes, 1, progress) {
            Line::Number(end, count) => (end, count),
            Line::Open => return Parsed::Incomplete(bytes.len() + 1),
            Line::Endless => return Parsed::Invalid(Invalid::MultibulkLine),
            Line::NoNumber => return Parsed::Invalid(Invalid::MultibulkLength),
        };
        if count > MAX_ARGUMENTS {
            return Parsed::Invalid(Invalid::MultibulkLength);
        }
        let left = if count < 0 { 0 } else { count as u32 };
        // Refused as soon as it is known, so that the answer does not depend on how many bytes have
        // come.
        if end + MIN_ARGUMENT * left as usize > MAX_REQUEST {
            return Parsed::Invalid(Invalid::TooLong);
        }
        *progress = Progress { at: end as u32, left, counted: true, scanned: 0 };
    }
    while progress.left > 0 {
        let at = progress.at as usize;
        if at >= bytes.len() {
            return Parsed::Incomplete(at + MIN_ARGUMENT * progress.left as usize);
        }
        // Redis looks for the line's end first: an empty line has it here.
        if bytes.get(at) == b'\r' && at + 1 < bytes.len() {
            return Parsed::Invalid(Invalid::NoDollar(b'\r'));
        }
        let mut line = Progress { at: progress.scanned, ..*progress };
        let found = number_line(bytes, at + 1, &mut line);
        progress.scanned = line.at;
        let (end, len) = match found {
            Line::Open if bytes.get(at) == b'$' => return Parsed::Incomplete(bytes.len() + 1),
            Line::Open if bytes.len() - at <= MAX_INLINE => return Parsed::Incomplete(bytes.len() + 1),
            Line::Endless | Line::Open => return Parsed::Invalid(Invalid::BulkLine),
            Line::Number(..) | Line::NoNumber if bytes.get(at) != b'$' => {
                return Parsed::Invalid(Invalid::NoDollar(bytes.get(at)));
            }
            Line::NoNumber => return Parsed::Invalid(Invalid::BulkLength),
            Line::Number(end, len) => (end, len),
        };
        if len < 0 || len > MAX_BULK as i64 {
            return Parsed::Invalid(Invalid::BulkLength);
        }
        let next = end + len as usize + 2;
        if next + MIN_ARGUMENT * (progress.left as usize - 1) > MAX_REQUEST {
            return Parsed::Invalid(Invalid::TooLong);
        }
        if next > bytes.len() {
            return Parsed::Incomplete(next + MIN_ARGUMENT * (progress.left as usize - 1));
        }
        (progress.at, progress.left) = (next as u32, progress.left - 1);
    }
    Parsed::Complete(progress.at as usize)
}

/// `$0`, and two line ends.
const MIN_ARGUMENT: usize = 6;

/// A line with a number, from its second byte on.
enum Line {
    /// Where the next line begins, and the number.
    Number(usize, i64),
    /// There is a line, but no number.
    NoNumber,
    /// Its end has not come.
    Open,
    /// Its end is too far away.
    Endless,
}

fn number_line(bytes: Bytes<'_>, start: usize, progress: &mut Progress) -> Line {
    // No number has more than 20 characters, so a longer line is looked at no further than to find
    // its end.
    let from = if progress.at as usize > start { progress.at as usize } else { start };
    match bytes.find(b'\r', from) {
        Some(end) if end + 1 < bytes.len() => match bytes.slice(start, end - start).number() {
            Some(number) => Line::Number(end + 2, number),
            None => Line::NoNumber,
        },
        Some(end) => {
            progress.at = end as u32;
            Line::Open
        }
        None if bytes.len() - start > MAX_INLINE => Line::Endless,
        None => {
            progress.at = bytes.len() as u32;
            Line::Open
        }
    }
}

fn inline(bytes: Bytes<'_>, progress: &mut Progress) -> Parsed {
    match bytes.find(b'\n', progress.at as usize) {
        Some(end) if end > MAX_INLINE => Parsed::Invalid(Invalid::InlineLine),
        Some(end) => {
            let line = bytes.first(end);
            // To Redis a text ends with a NUL: it goes on to wait for the end of the line.
            if line.find(0, 0).is_some() {
                return match bytes.len() > MAX_INLINE {
                    true => Parsed::Invalid(Invalid::InlineLine),
                    false => Parsed::Incomplete(bytes.len() + 1),
                };
            }
            match wrong_quotes(line) {
                Some(why) => Parsed::Invalid(why),
                None => Parsed::Complete(end + 1),
            }
        }
        None if bytes.len() > MAX_INLINE => Parsed::Invalid(Invalid::InlineLine),
        None => {
            progress.at = bytes.len() as u32;
            Parsed::Incomplete(bytes.len() + 1)
        }
    }
}

/// What is wrong with the quotes of a line. A word is used where it lies, so it is in quotes as a
/// whole, and has no escapes.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
fn wrong_quotes(line: Bytes<'_>) -> Option<Invalid> {
    if line.find(b'"', 0).is_none() && line.find(b'\'', 0).is_none() {
        return None;
    }
    let (mut at, mut is_escaped) = (0, false);
    while at < line.len() {
        let (byte, start) = (line.get(at), at);
        at += 1;
        if is_quote(byte) {
            // Where it ends, as Redis has it.
            while at < line.len() && line.get(at) != byte {
                let escapes = line.get(at) == b'\\'
                    && (byte == b'"' || (at + 1 < line.len() && line.get(at + 1) == byte));
                is_escaped |= escapes;
                at += if escapes { 2 } else { 1 };
            }
            if at >= line.len() || (at + 1 < line.len() && !is_space(line.get(at + 1))) {
                return Some(Invalid::Quotes);
            }
            is_escaped |= start > 0 && !ends_word(line.get(start - 1));
            at += 1;
        }
    }
    if is_escaped { Some(Invalid::Escapes) } else { None }
}

const fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'')
}

/// A place among the arguments of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Bytes and arguments that are left. Small, because it is part of a connection's state.
    rest: u32,
    left: u32,
}

/// The arguments of a complete request, the command's name first.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'t> {
    rest: Bytes<'t>,
    left: usize,
    is_inline: bool,
}

impl<'t> Arguments<'t> {
    /// The arguments of the bytes of a request that [`parse`] has found complete.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn of(request: Bytes<'t>) -> Self {
        if request.get(0) != b'*' {
            let mut arguments = Self { rest: request, left: usize::MAX, is_inline: true };
            arguments.left = arguments.count_words();
            return arguments;
        }
        let end = match request.find(b'\r', 1) {
            Some(end) => end,
            None => request.len(),
        };
        let left = match request.slice(1, end - 1).number() {
            Some(count) if count > 0 => count as usize,
            _ => 0,
        };
        Self { rest: request.skip(end + 2), left, is_inline: false }
    }

    /// How many are left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.left
    }

    /// Returns whether none is left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Takes the next one.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator of core brings code that the kernel does not need"
    )]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn next(&mut self) -> Option<Bytes<'t>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        if self.is_inline { self.word() } else { self.bulk() }
    }

    /// The present place.
    pub(crate) const fn mark(&self) -> Mark {
        Mark { rest: self.rest.len() as u32, left: self.left as u32 }
    }

    /// Goes on from a place of the same request.
    pub(crate) const fn go_on(&mut self, mark: Mark) {
        self.rest = self.rest.skip(self.rest.len() - mark.rest as usize);
        self.left = mark.left as usize;
    }

    /// Skips so many.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        let mut at = 0;
        while at < count {
            let _ = self.next();
            at += 1;
        }
        self
    }

    fn bulk(&mut self) -> Option<Bytes<'t>> {
        let end = self.rest.find(b'\r', 1)?;
        let len = self.rest.slice(1, end - 1).number()? as usize;
        let found = self.rest.slice(end + 2, len);
        self.rest = self.rest.skip(end + 2 + len + 2);
        Some(found)
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn word(&mut self) -> Option<Bytes<'t>> {
        let mut start = 0;
        while start < self.rest.len() && is_space(self.rest.get(start)) {
            start += 1;
        }
        if start == self.rest.len() {
            self.rest = Bytes::EMPTY;
            return None;
        }
        let quote = self.rest.get(start);
        if is_quote(quote) {
            let end = self.rest.find(quote, start + 1)?;
            let found = self.rest.slice(start + 1, end - start - 1);
            self.rest = self.rest.skip(end + 1);
            return Some(found);
        }
        let mut end = start;
        while end < self.rest.len() && !ends_word(self.rest.get(end)) {
            end += 1;
        }
        let found = self.rest.slice(start, end - start);
        self.rest = self.rest.skip(end);
        Some(found)
    }

    fn count_words(self) -> usize {
        let (mut words, mut count) = (self, 0);
        while words.word().is_some() {
            count += 1;
        }
        count
    }
}

/// Vertical tabs and form feeds are between words, but end none.
const fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | 0x0b | 0x0c)
}

/// Letters of ASCII in lower case, and the other bytes as they are.
#[inline(always)]
pub(crate) const fn lower(word: u64) -> u64 {
    const EACH: u64 = u64::MAX / 255;
    let seven = word & (EACH * 0x7f);
    // The highest bit of each byte: it is at least `A`, and not above `Z`.
    let from_a = seven + EACH * (0x80 - b'A' as u64);
    let above_z = seven + EACH * (0x7f - b'Z' as u64);
    word | ((from_a & !above_z & !word & (EACH * 0x80)) >> 2)
}

#[cfg(test)]
mod tests;
