//! The head of a request: checked line by line as it comes.

use crate::method::Method;
use crate::status::Status;
use crate::syntax::{self, Line};
use gpunet_serve::Bytes;

/// The longest head that can be allowed.
const MAX_HEAD: usize = 32 << 10;

/// What requests may have, and how long they may take.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// Bytes of the request line: beyond it, 414.
    pub request_line: u32,
    /// Bytes of the head, at most 32 KiB: beyond it, 431.
    pub head: u32,
    /// Fields of the head: beyond it, 431.
    pub fields: u32,
    /// Bytes of the body: beyond it, 413. With the head they have at most 4 MiB.
    pub body: u32,
    /// From the first byte of a request to its last one, in nanoseconds: beyond it, 408. 0: no
    /// limit.
    pub request_ns: u64,
}

impl Limits {
    /// 8,000 bytes for the request line, 8 KiB and 64 fields for the head, 1 MiB for the body, and
    /// 10 s.
    pub const DEFAULT: Self =
        Self { request_line: 8000, head: 8 << 10, fields: 64, body: 1 << 20, request_ns: 10_000_000_000 };

    pub(crate) const fn head(&self) -> usize {
        let head = self.head as usize;
        if head < MAX_HEAD { head } else { MAX_HEAD }
    }

    pub(crate) const fn body(&self) -> usize {
        let (body, most) = (self.body as usize, gpunet_serve::MAX_CHUNK - MAX_HEAD);
        if body < most { body } else { most }
    }
}

/// What a head says of the connection and of the body.
pub(crate) mod flag {
    /// HTTP/1.1 and not 1.0.
    pub(crate) const IS_11: u16 = 1;
    pub(crate) const HOST: u16 = 1 << 1;
    pub(crate) const LENGTH: u16 = 1 << 2;
    pub(crate) const CHUNKED: u16 = 1 << 3;
    pub(crate) const CLOSE: u16 = 1 << 4;
    pub(crate) const KEEP_ALIVE: u16 = 1 << 5;
    /// `Expect: 100-continue`.
    pub(crate) const EXPECTS: u16 = 1 << 6;
    /// All of it is there.
    pub(crate) const COMPLETE: u16 = 1 << 7;
}

/// How far a head has been parsed, and where its parts are. Plain data, part of the connection's
/// state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Bytes of complete lines.
    pub(crate) at: u16,
    /// Bytes that need no second look.
    scanned: u16,
    /// Where the path begins, the query, and what follows it.
    pub(crate) path: u16,
    pub(crate) query: u16,
    pub(crate) target_end: u16,
    /// Where the fields begin.
    pub(crate) fields: u16,
    count: u16,
    pub(crate) flags: u16,
    /// Bytes of the body, if its length was given.
    pub(crate) length: u32,
    pub(crate) method: Option<Method>,
}

impl Head {
    pub(crate) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Looks at what has come of a head. Returns whether it is complete.
    ///
    /// The result for a stream of bytes does not depend on how it is divided: the first byte that
    /// is wrong decides.
    ///
    /// # Errors
    /// The status with which it is refused.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn parse(&mut self, bytes: Bytes<'_>, limits: &Limits) -> Result<bool, Status> {
        while !self.has(flag::COMPLETE) {
            let (start, is_first) = (self.at as usize, self.fields == 0);
            let most = if is_first { start + limits.request_line as usize + 2 } else { usize::MAX };
            let most = most.min(limits.head());
            let len = match syntax::line(bytes, start, &mut self.scanned, most) {
                Line::Complete(len) => len,
                Line::Open => return Ok(false),
                Line::Bad => return Err(Status::BadRequest),
                Line::TooLong if is_first => return Err(Status::UriTooLong),
                Line::TooLong => return Err(Status::RequestHeaderFieldsTooLarge),
            };
            self.at = (start + len + 2) as u16;
            let line = bytes.slice(start, len);
            if is_first && len == 0 {
                // Some clients send an empty line behind a body.
            } else if is_first {
                self.request_line(line, start)?;
                self.fields = self.at;
            } else if len == 0 {
                self.check(limits)?;
                self.flags |= flag::COMPLETE;
            } else {
                self.count += 1;
                if u32::from(self.count) > limits.fields {
                    return Err(Status::RequestHeaderFieldsTooLarge);
                }
                self.field(line)?;
            }
        }
        Ok(true)
    }

    fn request_line(&mut self, line: Bytes<'_>, start: usize) -> Result<(), Status> {
        let bad = Status::BadRequest;
        let first = line.find(b' ', 0).ok_or(bad)?;
        let second = line.find(b' ', first + 1).ok_or(bad)?;
        let (method, target) = (line.first(first), line.slice(first + 1, second - first - 1));
        let version = line.skip(second + 1);
        self.method = Method::of(method);
        // A known method is a token.
        let is_token = self.method.is_some() || syntax::is_token(method);
        if !is_token || !syntax::is_target(target) {
            return Err(bad);
        }
        match (version.len(), version.word(0).to_le_bytes()) {
            (8, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0']) => {}
            // What a later minor version adds can be ignored.
            (8, [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'1'..=b'9']) => self.flags |= flag::IS_11,
            (8, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']) => {
                return Err(Status::HttpVersionNotSupported);
            }
            _ => return Err(bad),
        }
        let path = path_of(target, self.method)?;
        let query = target.find(b'?', path).unwrap_or(target.len());
        let target_start = start + first + 1;
        self.path = (target_start + path) as u16;
        self.query = (target_start + query) as u16;
        self.target_end = (target_start + target.len()) as u16;
        Ok(())
    }

    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    fn field(&mut self, line: Bytes<'_>) -> Result<(), Status> {
        // A folded line begins with a blank, which is no part of a name.
        let (name, value) = syntax::field(line).ok_or(Status::BadRequest)?;
        match name.len() {
            4 if name.eq_ignore_case(b"host") => {
                if self.has(flag::HOST) || !syntax::is_host(value) {
                    return Err(Status::BadRequest);
                }
                self.flags |= flag::HOST;
            }
            6 if name.eq_ignore_case(b"expect") => {
                if !value.eq_ignore_case(b"100-continue") {
                    return Err(Status::ExpectationFailed);
                }
                self.flags |= flag::EXPECTS;
            }
            10 if name.eq_ignore_case(b"connection") => {
                let mut list = value;
                while let Some(option) = syntax::element(&mut list) {
                    if option.eq_ignore_case(b"close") {
                        self.flags |= flag::CLOSE;
                    } else if option.eq_ignore_case(b"keep-alive") {
                        self.flags |= flag::KEEP_ALIVE;
                    }
                }
            }
            14 if name.eq_ignore_case(b"content-length") => {
                if self.has(flag::LENGTH) {
                    return Err(Status::BadRequest);
                }
                self.length = length(value).ok_or(Status::BadRequest)?;
                self.flags |= flag::LENGTH;
            }
            17 if name.eq_ignore_case(b"transfer-encoding") => self.coding(value)?,
            _ => {}
        }
        Ok(())
    }

    fn coding(&mut self, value: Bytes<'_>) -> Result<(), Status> {
        let (mut list, mut count, mut is_chunked) = (value, 0, false);
        while let Some(coding) = syntax::element(&mut list) {
            if is_chunked {
                // It is the last one, and applied once.
                return Err(Status::BadRequest);
            }
            is_chunked = coding.eq_ignore_case(b"chunked");
            count += 1;
        }
        match (is_chunked, count) {
            _ if self.has(flag::CHUNKED) => Err(Status::BadRequest),
            // Nobody knows where the body ends.
            (false, _) => Err(Status::BadRequest),
            (true, 1) => {
                self.flags |= flag::CHUNKED;
                Ok(())
            }
            (true, _) => Err(Status::NotImplemented),
        }
    }

    /// What the head says as a whole.
    fn check(&self, limits: &Limits) -> Result<(), Status> {
        let is_11 = self.has(flag::IS_11);
        if self.has(flag::CHUNKED) && (self.has(flag::LENGTH) || !is_11) {
            return Err(Status::BadRequest);
        }
        if is_11 && !self.has(flag::HOST) {
            return Err(Status::BadRequest);
        }
        if self.method.is_none() {
            return Err(Status::NotImplemented);
        }
        if self.length as usize > limits.body() {
            return Err(Status::ContentTooLarge);
        }
        Ok(())
    }

    /// The status for what is longer than memory for it, by how far it has come.
    pub(crate) const fn too_long(&self) -> Status {
        if self.has(flag::COMPLETE) {
            Status::ContentTooLarge
        } else if self.fields == 0 {
            Status::UriTooLong
        } else {
            Status::RequestHeaderFieldsTooLarge
        }
    }

    /// Returns whether the connection is closed after the answer.
    pub(crate) const fn closes(&self) -> bool {
        self.has(flag::CLOSE) || !(self.has(flag::IS_11) || self.has(flag::KEEP_ALIVE))
    }
}

/// Where the path begins in a request's target.
fn path_of(target: Bytes<'_>, method: Option<Method>) -> Result<usize, Status> {
    match target.get(0) {
        b'/' => Ok(0),
        b'*' if target.len() == 1 && method == Some(Method::Options) => Ok(0),
        // With the name of a host, as proxies are asked.
        b'h' | b'H' => {
            let scheme = if target.first(7).eq_ignore_case(b"http://") {
                7
            } else if target.first(8).eq_ignore_case(b"https://") {
                8
            } else {
                return Err(Status::BadRequest);
            };
            let end = target.find(b'/', scheme).ok_or(Status::BadRequest)?;
            let authority = target.slice(scheme, end - scheme);
            if authority.is_empty() || !syntax::is_host(authority) {
                return Err(Status::BadRequest);
            }
            Ok(end)
        }
        // CONNECT has a host and a port; what the method is not known of is refused for that.
        _ if method.is_none() => Ok(0),
        _ => Err(Status::BadRequest),
    }
}

/// A length: digits only. What is larger than any limit is the largest number.
fn length(value: Bytes<'_>) -> Option<u32> {
    let (mut at, mut length) = (0, 0u32);
    while at < value.len() {
        let digit = value.get(at).wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        length = length.saturating_mul(10).saturating_add(digit as u32);
        at += 1;
    }
    if at == 0 { None } else { Some(length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<Option<Head>, Status> {
        let mut head = Head::default();
        let is_complete = head.parse(Bytes::from(text.as_bytes()), &Limits::DEFAULT)?;
        Ok(is_complete.then_some(head))
    }

    /// The first line of each is right for HTTP/1.1.
    fn fields(fields: &str) -> Result<Option<Head>, Status> {
        parse(&std::format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
    }

    #[test]
    fn request_lines_that_are_none_are_refused() {
        use Status::*;
        for (line, status) in [
            ("GET /", BadRequest),
            ("GET  / HTTP/1.1", BadRequest),
            ("GET / HTTP/1.1 ", BadRequest),
            (" GET / HTTP/1.1", BadRequest),
            ("GET\t/ HTTP/1.1", BadRequest),
            ("GET /\t HTTP/1.1", BadRequest),
            ("GET /\u{e4} HTTP/1.1", BadRequest),
            ("GET / http/1.1", BadRequest),
            ("GET / HTTP/1", BadRequest),
            ("GET / HTTP/1.10", BadRequest),
            ("GET / HTTP/2.0", HttpVersionNotSupported),
            ("PRI * HTTP/2.0", HttpVersionNotSupported),
            ("GET / HTTP/0.9", HttpVersionNotSupported),
            ("G(T / HTTP/1.1", BadRequest),
            ("GET * HTTP/1.1", BadRequest),
            ("GET a HTTP/1.1", BadRequest),
            ("GET http:///a HTTP/1.1", BadRequest),
            ("GET http://a@b/ HTTP/1.1", BadRequest),
            ("CONNECT a:443 HTTP/1.1", NotImplemented),
            ("BREW / HTTP/1.1", NotImplemented),
        ] {
            assert_eq!(parse(&std::format!("{line}\r\nHost: a\r\n\r\n")), Err(status), "{line:?}");
        }
        for (line, path, query) in [
            ("GET /a?b HTTP/1.1", "/a", "?b"),
            ("OPTIONS * HTTP/1.1", "*", ""),
            ("GET http://h:1/p?q HTTP/1.1", "/p", "?q"),
            ("GET / HTTP/1.7", "/", ""),
        ] {
            let text = std::format!("\r\n{line}\r\nHost: a\r\n\r\n");
            let head = parse(&text).unwrap().unwrap();
            let part = |from: u16, to: u16| &text[from as usize..to as usize];
            assert_eq!((part(head.path, head.query), part(head.query, head.target_end)), (path, query));
            assert_eq!(head.at as usize, text.len());
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        use Status::*;
        for (text, status) in [
            ("Content-Length: 1\r\nContent-Length: 1\r\n", BadRequest),
            ("Content-Length: 1\r\nContent-Length: 2\r\n", BadRequest),
            ("Content-Length: 1, 1\r\n", BadRequest),
            ("Content-Length: +1\r\n", BadRequest),
            ("Content-Length: -1\r\n", BadRequest),
            ("Content-Length: 0x1\r\n", BadRequest),
            ("Content-Length: 1 1\r\n", BadRequest),
            ("Content-Length:\r\n", BadRequest),
            ("Content-Length : 1\r\n", BadRequest),
            ("Content-Length: 99999999999999999999999\r\n", ContentTooLarge),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", BadRequest),
            ("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n", BadRequest),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", BadRequest),
            ("Transfer-Encoding: chunked, chunked\r\n", BadRequest),
            ("Transfer-Encoding: chunked, gzip\r\n", BadRequest),
            ("Transfer-Encoding: gzip\r\n", BadRequest),
            ("Transfer-Encoding: identity\r\n", BadRequest),
            ("Transfer-Encoding: xchunked\r\n", BadRequest),
            ("Transfer-Encoding: \"chunked\"\r\n", BadRequest),
            ("Transfer-Encoding:\r\n", BadRequest),
            ("Transfer-Encoding: \x0bchunked\r\n", BadRequest),
            ("Transfer-Encoding: gzip, chunked\r\n", NotImplemented),
            ("Transfer-Encoding\t: chunked\r\n", BadRequest),
            ("A: b\r\n c\r\n", BadRequest),
            ("A: b\r\n\tc\r\n", BadRequest),
            ("A: b\nB: c\r\n", BadRequest),
            ("A: b\rB: c\r\n", BadRequest),
            ("A: b\r\r\n", BadRequest),
            ("A: \0\r\n", BadRequest),
            ("A: \x7f\r\n", BadRequest),
            ("A\r\n", BadRequest),
            (": a\r\n", BadRequest),
            ("Host: a\r\n", BadRequest),
            ("Expect: 200-ok\r\n", ExpectationFailed),
        ] {
            assert_eq!(fields(text), Err(status), "{text:?}");
        }
        assert_eq!(parse("GET / HTTP/1.1\r\n\r\n"), Err(BadRequest));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), Err(BadRequest));
        assert_eq!(parse("GET / HTTP/1.1\r\n Host: a\r\n\r\n"), Err(BadRequest));
        assert_eq!(parse("GET / HTTP/1.1\n"), Err(BadRequest));
        assert_eq!(parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Err(BadRequest));
        let chunked = fields("transfer-encoding:\tCHUNKED \r\n").unwrap().unwrap();
        assert!(chunked.has(flag::CHUNKED) && !chunked.closes());
        assert_eq!(fields("Content-Length: 0012\r\n").unwrap().unwrap().length, 12);
        assert!(fields("Connection: x, Close\r\n").unwrap().unwrap().closes());
        assert!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().unwrap().closes());
        assert!(!parse("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").unwrap().unwrap().closes());
    }

    #[test]
    fn each_length_has_a_limit() {
        let limits = Limits { request_line: 30, head: 100, fields: 3, ..Limits::DEFAULT };
        let status = |text: &str| Head::default().parse(Bytes::from(text.as_bytes()), &limits);
        let line = |len: usize| std::format!("GET /{} HTTP/1.1", "a".repeat(len - 14));
        assert_eq!(status(&line(32)), Err(Status::UriTooLong));
        assert_eq!(status(&line(31)), Ok(false));
        assert_eq!(status(&std::format!("{}\r\nHost: a\r\n\r\n", line(30))), Ok(true));
        assert_eq!(status(&std::format!("{}\r\nHost: a\r\n\r\n", line(31))), Err(Status::UriTooLong));
        let head =
            |len: usize| std::format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(len - 32));
        assert_eq!(status(&head(100)), Ok(true));
        assert_eq!(status(&head(101)), Err(Status::RequestHeaderFieldsTooLarge));
        assert_eq!(status(&head(100)[..99]), Ok(false));
        let fields = "GET / HTTP/1.1\r\nHost: a\r\nA: b\r\nA: b\r\n";
        assert_eq!(status(&std::format!("{fields}\r\n")), Ok(true));
        assert_eq!(status(&std::format!("{fields}A: b\r\n")), Err(Status::RequestHeaderFieldsTooLarge));
        // Empty lines before a request count, too.
        assert_eq!(status(&"\r\n".repeat(50)), Err(Status::UriTooLong));
    }

    proptest! {
        /// Whatever has come at which look.
        #[test]
        fn a_head_is_the_same_however_it_arrives(
            parts in prop::collection::vec(prop::sample::select(std::vec![
                "GET / HTTP/1.1\r\n", "POST /a?b HTTP/1.0\r\n", "Host: a\r\n", "Content-Length: 3\r\n", "A: b\r\n",
                "Transfer-Encoding: chunked\r\n", "Expect: 100-continue\r\n", "\r\n", "\r", "\n", " ", ":", "a",
                "\t", "HTTP/1.1", "\u{e4}",
            ]), 0..12),
            cuts in prop::collection::vec(0usize..120, 0..12),
        ) {
            let limits = Limits { request_line: 40, head: 100, fields: 4, ..Limits::DEFAULT };
            let text = parts.concat();
            let mut at_once = Head::default();
            let expected = at_once.parse(Bytes::from(text.as_bytes()), &limits);
            let (mut head, mut cuts, mut found) = (Head::default(), cuts, Ok(false));
            cuts.sort_unstable();
            for cut in cuts.into_iter().chain([text.len()]) {
                if found == Ok(false) {
                    found = head.parse(Bytes::from(&text.as_bytes()[..cut.min(text.len())]), &limits);
                }
            }
            prop_assert_eq!(found, expected);
            if found == Ok(true) {
                prop_assert_eq!(head, at_once);
            }
        }
    }
}
