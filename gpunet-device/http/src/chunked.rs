//! Bodies in chunks: which bytes of what has come are the body's.

use crate::head::Limits;
use crate::status::Status;
use crate::syntax::{self, Line};
use gpunet_serve::Bytes;

/// The longest line with a chunk's size.
const MAX_SIZE_LINE: usize = 256;
/// Bytes of extensions and trailers of a body at most.
const MAX_EXTRA: usize = 8 << 10;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    /// Before a line with a size.
    #[default]
    Size,
    /// In a chunk.
    Data,
    /// Before the line end behind it.
    DataEnd,
    /// In what follows the last chunk.
    Trailer,
}

/// How far a body has been decoded. Plain data, part of the connection's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunked {
    place: Place,
    /// Of a line that is not complete: bytes that need no second look.
    scanned: u16,
    /// Bytes of extensions and trailers.
    extra: u16,
    /// Bytes that are left of the chunk.
    left: u32,
    /// Bytes of all chunks.
    total: u32,
}

/// What a look at the bytes of a body has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// So many bytes are framing, and so many behind them are the body's.
    Data { skip: usize, len: usize },
    /// So many bytes are framing, and more has to come.
    Open { skip: usize },
    /// So many bytes are framing; the body ends with them.
    End { skip: usize },
}

impl Chunked {
    /// Looks for the next piece of the body. All bytes of what it returns are to be consumed.
    ///
    /// # Errors
    /// The status with which the request is refused.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn next(&mut self, bytes: Bytes<'_>, limits: &Limits) -> Result<Piece, Status> {
        let mut at = 0;
        loop {
            match self.place {
                Place::Data if self.left > 0 => {
                    let len = (self.left as usize).min(bytes.len() - at);
                    self.left -= len as u32;
                    return Ok(if len > 0 {
                        Piece::Data { skip: at, len }
                    } else {
                        Piece::Open { skip: at }
                    });
                }
                Place::Data => self.place = Place::DataEnd,
                Place::DataEnd => match (bytes.len() - at, bytes.get(at), bytes.get(at + 1)) {
                    (0, ..) | (1, b'\r', _) => return Ok(Piece::Open { skip: at }),
                    (_, b'\r', b'\n') => {
                        at += 2;
                        self.place = Place::Size;
                    }
                    _ => return Err(Status::BadRequest),
                },
                Place::Size | Place::Trailer => {
                    let Some(line) = self.line(bytes.skip(at))? else { return Ok(Piece::Open { skip: at }) };
                    at += line.len() + 2;
                    if let Place::Size = self.place {
                        self.size(line, limits)?;
                    } else if line.is_empty() {
                        return Ok(Piece::End { skip: at });
                    } else {
                        // Nobody asks for trailers.
                        syntax::field(line).ok_or(Status::BadRequest)?;
                        self.count(line.len(), Status::RequestHeaderFieldsTooLarge)?;
                    }
                }
            }
        }
    }

    /// The line at the beginning, if it is complete.
    fn line<'t>(&mut self, bytes: Bytes<'t>) -> Result<Option<Bytes<'t>>, Status> {
        let (limit, beyond) = match self.place {
            Place::Size => (MAX_SIZE_LINE, Status::BadRequest),
            _ => (MAX_EXTRA, Status::RequestHeaderFieldsTooLarge),
        };
        match syntax::line(bytes, 0, &mut self.scanned, limit) {
            Line::Complete(len) => {
                self.scanned = 0;
                Ok(Some(bytes.first(len)))
            }
            Line::Open => Ok(None),
            Line::Bad => Err(Status::BadRequest),
            Line::TooLong => Err(beyond),
        }
    }

    fn size(&mut self, line: Bytes<'_>, limits: &Limits) -> Result<(), Status> {
        let (mut at, mut size) = (0, 0u32);
        while at < line.len() {
            let digit = match line.get(at) {
                byte @ b'0'..=b'9' => byte - b'0',
                byte @ b'a'..=b'f' => byte - b'a' + 10,
                byte @ b'A'..=b'F' => byte - b'A' + 10,
                _ => break,
            };
            size = size.saturating_mul(16).saturating_add(digit.into());
            at += 1;
        }
        let extension = syntax::trim(line.skip(at));
        // Blanks stand before an extension only.
        let is_good = at > 0 && (at == line.len() || extension.get(0) == b';');
        if !is_good {
            return Err(Status::BadRequest);
        }
        self.count(line.len() - at, Status::BadRequest)?;
        self.total = self.total.saturating_add(size);
        if self.total as usize > limits.body() {
            return Err(Status::ContentTooLarge);
        }
        (self.place, self.left) = (if size == 0 { Place::Trailer } else { Place::Data }, size);
        Ok(())
    }

    fn count(&mut self, bytes: usize, beyond: Status) -> Result<(), Status> {
        let extra = self.extra as usize + bytes;
        if extra > MAX_EXTRA {
            return Err(beyond);
        }
        self.extra = extra as u16;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Decodes what comes, in pieces; returns the body, and what follows it.
    fn decode(stream: &[u8], cuts: &[usize]) -> Result<Option<[Vec<u8>; 2]>, Status> {
        let limits = Limits { body: 100, ..Limits::DEFAULT };
        let (mut chunked, mut body, mut start, mut end) = (Chunked::default(), Vec::new(), 0, 0);
        for cut in cuts.iter().copied().chain([stream.len()]) {
            end = (end + cut).min(stream.len());
            loop {
                match chunked.next(Bytes::from(&stream[start..end]), &limits)? {
                    Piece::Data { skip, len } => {
                        body.extend_from_slice(&stream[start + skip..start + skip + len]);
                        start += skip + len;
                    }
                    Piece::Open { skip } => {
                        start += skip;
                        break;
                    }
                    Piece::End { skip } => return Ok(Some([body, stream[start + skip..].to_vec()])),
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_are_put_together() {
        let stream = b"3\r\nabc\r\n0a ; x=\"y\"\r\n0123456789\r\n0\r\nT: u\r\n\r\nGET";
        for piece in 1..stream.len() {
            let cuts: Vec<_> = std::iter::repeat_n(piece, stream.len()).collect();
            let [body, rest] = decode(stream, &cuts).unwrap().unwrap();
            assert_eq!((&body[..], &rest[..]), (&b"abc0123456789"[..], &b"GET"[..]));
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for line in ["", "g", "0x1", "+1", "-1", " 1", "1 ", "1 2", "1\t", ";a", "1\n", "1\r2", "1;\0", "1,"]
        {
            assert_eq!(
                decode(std::format!("{line}\r\na\r\n").as_bytes(), &[]),
                Err(Status::BadRequest),
                "{line:?}"
            );
        }
        for text in
            ["1\r\nab\r\n", "1\r\na\n", "1\r\na\r\r", "0\r\n T: u\r\n", "0\r\nT : u\r\n", "0\r\nT\r\n"]
        {
            assert_eq!(decode(text.as_bytes(), &[]), Err(Status::BadRequest), "{text:?}");
        }
        for size in ["65", "ffffffff", "100000000000000000000000000"] {
            assert_eq!(decode(std::format!("{size}\r\n").as_bytes(), &[]), Err(Status::ContentTooLarge));
        }
        assert_eq!(decode(b"40\r\n", &[]), Ok(None));
        let long = std::format!("1;{}\r\n", "a".repeat(300));
        assert_eq!(decode(long.as_bytes(), &[]), Err(Status::BadRequest));
        let many = std::format!("1;{}\r\na\r\n", "a".repeat(200)).repeat(50);
        assert_eq!(decode(many.as_bytes(), &[]), Err(Status::BadRequest));
        let trailers = std::format!("0\r\n{}", "T: u\r\n".repeat(9000));
        assert_eq!(decode(trailers.as_bytes(), &[]), Err(Status::RequestHeaderFieldsTooLarge));
    }

    proptest! {
        #[test]
        fn a_body_is_the_same_however_it_arrives(
            parts in prop::collection::vec(prop::sample::select(std::vec![
                "1\r\na\r\n", "3;x\r\nabc\r\n", "0\r\n", "T: u\r\n", "\r\n", "\r", "\n", "a", "2\r\n", " ",
            ]), 0..12),
            cuts in prop::collection::vec(0usize..9, 0..40),
        ) {
            let stream = parts.concat();
            prop_assert_eq!(decode(stream.as_bytes(), &cuts), decode(stream.as_bytes(), &[]));
        }
    }
}
