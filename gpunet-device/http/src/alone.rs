//! A request by itself, for programs that are no services of gpunet-serve: where its parts are, and
//! the head of its answer.
//!
//! What C programs have of this crate stands on it. They share its types, which are plain data.

use crate::head::{Head, Limits, flag};
use crate::method::Method;
use crate::reply::{Framing, Reply, head_parts};
use crate::status::Status;
use crate::syntax;
use gpunet_serve::{Bytes, Digits};

/// A part of a request: `len` bytes from byte `at` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Part {
    /// Where it begins.
    pub at: u32,
    /// How many bytes it has.
    pub len: u32,
}

impl Part {
    const fn between(from: u16, to: u16) -> Self {
        Self { at: from as u32, len: (to - from) as u32 }
    }

    /// Its bytes, if these are the request's.
    #[must_use]
    pub const fn of<'t>(&self, request: &Bytes<'t>) -> Bytes<'t> {
        request.slice(self.at as usize, self.len as usize)
    }
}

/// A whole request: where its parts are.
///
/// # Examples
///
/// ```
/// use gpunet_http::{Limits, alone::{Found, find}};
/// use gpunet_serve::Bytes;
///
/// let bytes = Bytes::from(b"GET /a?b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi, and more");
/// let Ok(Found::Whole(request)) = find(bytes, &Limits::DEFAULT) else { panic!("it is whole") };
/// assert!(request.is(&bytes, b"GET", b"/a") && request.query.of(&bytes) == b"b");
/// assert!(request.body.of(&bytes) == b"hi" && request.field(&bytes, b"host").unwrap().of(&bytes) == b"x");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Parts {
    /// Bytes of the request. The next one follows them.
    pub len: u64,
    /// The path, as it was sent.
    pub path: Part,
    /// What follows the question mark behind the path.
    pub query: Part,
    /// The fields, with the empty line behind them.
    pub fields: Part,
    /// The body.
    pub body: Part,
    /// The method: the number of a [`Method`].
    pub method: u32,
    /// [`IS_11`] and [`CLOSES`].
    pub flags: u32,
}

/// The request is one of HTTP/1.1, and not 1.0.
pub const IS_11: u32 = 1;
/// The connection ends with the answer.
pub const CLOSES: u32 = 2;

/// What has come of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// All of it.
    Whole(Parts),
    /// A part of its head.
    Head,
    /// Its head, and a part of its body.
    Body {
        /// The client waits for `100 Continue`, and nothing of the body has come.
        expects: bool,
    },
}

/// Looks for the request at the beginning of received bytes. A body in chunks is refused: it does
/// not lie in one place.
///
/// What is found depends only on the bytes, not on how often and when it is looked for.
///
/// # Errors
/// The status with which the request is refused.
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn find(bytes: Bytes<'_>, limits: &Limits) -> Result<Found, Status> {
    let mut head = Head::default();
    if !head.parse(bytes, limits)? {
        return Ok(Found::Head);
    }
    if head.has(flag::CHUNKED) {
        return Err(Status::LengthRequired);
    }
    let at = head.at as usize;
    let len = at + head.length as usize;
    if bytes.len() < len {
        let expects = head.has(flag::EXPECTS) && head.has(flag::IS_11) && bytes.len() == at;
        return Ok(Found::Body { expects });
    }
    let query = Part::between(head.query, head.target_end);
    let is_11 = if head.has(flag::IS_11) { IS_11 } else { 0 };
    let closes = if head.closes() { CLOSES } else { 0 };
    Ok(Found::Whole(Parts {
        len: len as u64,
        path: Part::between(head.path, head.query),
        // Without the question mark.
        query: if query.len > 0 { Part { at: query.at + 1, len: query.len - 1 } } else { query },
        fields: Part::between(head.fields, head.at),
        body: Part { at: head.at.into(), len: head.length },
        method: head.method.unwrap_or_default() as u32,
        flags: is_11 | closes,
    }))
}

impl Parts {
    /// Returns whether the request has this method and this path. GET is HEAD, too.
    #[must_use]
    pub fn is(&self, request: &Bytes<'_>, method: &[u8], path: &[u8]) -> bool {
        let (method, is_head) = (Method::of(method.into()), self.is_head());
        let is_method = method.is_some_and(|method| method as u32 == self.method);
        (is_method || (is_head && method == Some(Method::Get))) && self.path.of(request) == path
    }

    /// Where the value of the first field of this name is, which is given in lower case.
    #[must_use]
    pub fn field(&self, request: &Bytes<'_>, lower: &[u8]) -> Option<Part> {
        let fields = self.fields.of(request);
        let mut at = 0;
        loop {
            let end = fields.find(b'\r', at)?;
            let line = fields.slice(at, end - at);
            let (name, value) = syntax::field(line)?;
            if name.eq_ignore_case(lower) {
                // It ends where the line does, but for blanks.
                let behind = syntax::trailing_blanks(line);
                let from = end - behind - value.len();
                return Some(Part { at: self.fields.at + from as u32, len: value.len() as u32 });
            }
            at = end + 2;
        }
    }

    /// Returns whether the method is HEAD, which is answered without a body.
    #[must_use]
    pub const fn is_head(&self) -> bool {
        self.method == Method::Head as u32
    }

    /// The head of an answer with a body of a length, in pieces. `digits` are those of the length.
    #[must_use]
    #[inline(always)]
    pub fn answer<'p>(&self, reply: &Reply<'p>, digits: &'p Digits) -> [Bytes<'p>; 10] {
        head_parts(reply, Framing::Length, digits, self.flags & CLOSES != 0, self.flags & IS_11 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Parts, Bytes<'_>) {
        let bytes = Bytes::from(text.as_bytes());
        match find(bytes, &Limits::DEFAULT) {
            Ok(Found::Whole(parts)) => (parts, bytes),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_are_found_without_their_blanks() {
        let (parts, bytes) = parts("GET / HTTP/1.1\r\nHost:a\r\nA: \t b c\t \r\nB:\r\nC:  \r\na: d\r\n\r\n");
        for (name, value) in [(&b"host"[..], &b"a"[..]), (b"a", b"b c"), (b"b", b""), (b"c", b"")] {
            assert!(parts.field(&bytes, name).expect("a field").of(&bytes) == value);
        }
        assert_eq!(parts.field(&bytes, b"d"), None);
    }

    #[test]
    fn methods_and_paths_are_told_apart() {
        let (head, bytes) = parts("HEAD /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(head.is(&bytes, b"GET", b"/a") && head.is(&bytes, b"HEAD", b"/a") && head.is_head());
        assert!(
            !head.is(&bytes, b"POST", b"/a")
                && !head.is(&bytes, b"GET", b"/")
                && !head.is(&bytes, b"", b"/a")
        );
        assert_eq!(head.flags, IS_11 | CLOSES);
        let (old, bytes) = parts("POST /?a=b HTTP/1.0\r\nContent-Length: 1\r\n\r\nxy");
        assert_eq!((old.len, old.flags), (bytes.len() as u64 - 1, CLOSES));
        assert!(old.query.of(&bytes) == b"a=b" && old.body.of(&bytes) == b"x");
    }

    #[test]
    fn what_is_not_whole_says_what_is_missing() {
        let find = |text: &str| find(Bytes::from(text.as_bytes()), &Limits::DEFAULT);
        let post = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n";
        assert_eq!(find(post), Ok(Found::Head));
        assert_eq!(find(&format!("{post}\r\n")), Ok(Found::Body { expects: true }));
        assert_eq!(find(&format!("{post}\r\na")), Ok(Found::Body { expects: false }));
        let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(find(chunked), Err(Status::LengthRequired));
    }
}
