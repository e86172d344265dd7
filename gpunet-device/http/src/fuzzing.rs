//! The parsers without a connection, for `utils/fuzz`.

use crate::chunked::{Chunked, Piece};
use crate::head::{Head, Limits, flag};
use gpunet_serve::Bytes;
use std::vec::Vec;

/// What [`read`] allows.
pub const LIMITS: Limits = Limits { request_line: 100, head: 300, fields: 8, body: 200, ..Limits::DEFAULT };

/// A request that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes of it, with its body.
    pub len: usize,
    /// Bytes of its head.
    pub head: usize,
    /// Where its path, its query and what follows them begin.
    pub target: [usize; 3],
    /// Its body.
    pub body: Vec<u8>,
}

/// Reads the request at the beginning of a stream of which `first` bytes come at once and then
/// `stride` more at a time: `None` if it is not complete, else the status with which it is refused.
pub fn read(stream: &[u8], first: usize, stride: usize) -> Result<Option<Read>, u16> {
    let limits = LIMITS;
    let (mut head, mut chunked, mut body) = (Head::default(), Chunked::default(), Vec::new());
    let (mut come, mut at) = (first.min(stream.len()), 0);
    loop {
        // A copy of its own, so that a read beyond it does not find the stream's bytes.
        let here = stream[at..come].to_vec();
        let bytes = Bytes::from(&here[..]);
        let mut whole = None;
        if at == 0 && head.parse(bytes, &limits).map_err(|status| status.code())? {
            let end = head.at as usize + head.length as usize;
            if head.has(flag::CHUNKED) {
                at = head.at as usize;
                continue;
            }
            if here.len() >= end {
                body.extend_from_slice(&here[head.at as usize..end]);
                whole = Some(end);
            }
        } else if at > 0 {
            match chunked.next(bytes, &limits).map_err(|status| status.code())? {
                Piece::Data { skip, len } => {
                    body.extend_from_slice(&here[skip..skip + len]);
                    at += skip + len;
                    continue;
                }
                Piece::Open { skip } => at += skip,
                Piece::End { skip } => whole = Some(at + skip),
            }
        }
        if let Some(len) = whole {
            let target = [head.path, head.query, head.target_end].map(usize::from);
            return Ok(Some(Read { len, head: head.at as usize, target, body }));
        }
        if come == stream.len() {
            return Ok(None);
        }
        come = (come + stride.max(1)).min(stream.len());
    }
}
