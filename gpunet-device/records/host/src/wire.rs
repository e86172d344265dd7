//! The format in which records travel to collectors: docs/telemetry.md has it in prose.
//!
//! ```text
//! stream: "gpunetR1", then frames
//! frame:  0      4      6      8       16     20    22    23    24     28
//!         +------+------+------+-------+------+-----+-----+-----+------+---- - -
//!         |length| kind |payload  time | block| SM  |warp |lane | ring | payload
//!         |      |      |length|  (ns) |      |     |     |     |      |
//!         +------+------+------+-------+------+-----+-----+-----+------+---- - -
//! ```
//!
//! Numbers are little-endian. `length` counts the bytes that follow it.

use gpunet_records::{Head, Kind, NONE_BYTE, NONE_SM};

/// The first bytes of a stream.
pub const MAGIC: [u8; 8] = *b"gpunetR1";
/// Bytes of a frame before its payload, without the length.
const HEAD: usize = 24;
/// The longest payload of a frame.
pub const LONGEST: usize = 4096;
/// The kind of notices.
const NOTICE: u16 = 0;
/// Bytes of a notice: why, and how many.
const NOTICE_LEN: usize = 12;

/// Why records are missing in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// They never left the rings: they were overwritten, or there was no room in time.
    Rings,
    /// This collector did not read fast enough.
    Collector,
    /// Another reason, of a later version.
    Unknown(u32),
}

impl Reason {
    const fn raw(self) -> u32 {
        match self {
            Self::Rings => 1,
            Self::Collector => 2,
            Self::Unknown(raw) => raw,
        }
    }

    const fn of(raw: u32) -> Self {
        match raw {
            1 => Self::Rings,
            2 => Self::Collector,
            raw => Self::Unknown(raw),
        }
    }
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A record.
    Record {
        /// The ring it comes from.
        ring: u32,
        /// What every record says.
        head: Head,
        /// What this one says.
        payload: &'a [u8],
    },
    /// So many records are missing by now, since the stream began.
    Missing {
        /// Why.
        reason: Reason,
        /// How many.
        total: u64,
    },
}

/// Why bytes are no frames: what follows them cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The stream does not begin as it should.
    #[error("the stream does not begin with \"gpunetR1\"")]
    Magic,
    /// A length that cannot be.
    #[error("a frame of {length} bytes with a payload of {payload}")]
    Length {
        /// The frame's.
        length: u32,
        /// The payload's, by the frame.
        payload: u16,
    },
}

/// Appends a frame.
pub fn put(frame: &Frame<'_>, out: &mut Vec<u8>) {
    match *frame {
        Frame::Record { ring, head, payload } => put_parts(ring, &head, payload, out),
        Frame::Missing { reason, total } => {
            let mut payload = [0; NOTICE_LEN];
            payload[..4].copy_from_slice(&reason.raw().to_le_bytes());
            payload[4..].copy_from_slice(&total.to_le_bytes());
            let kind = Kind::from_raw(NOTICE);
            let (len, warp, lane) = (NOTICE_LEN as u16, NONE_BYTE, NONE_BYTE);
            put_parts(
                u32::MAX,
                &Head { kind, len, time_ns: 0, block: 0, sm: NONE_SM, warp, lane },
                &payload,
                out,
            );
        }
    }
}

fn put_parts(ring: u32, head: &Head, payload: &[u8], out: &mut Vec<u8>) {
    let mut bytes = [0; 4 + HEAD];
    bytes[..4].copy_from_slice(&((HEAD + payload.len()) as u32).to_le_bytes());
    bytes[4..6].copy_from_slice(&head.kind.raw().to_le_bytes());
    bytes[6..8].copy_from_slice(&(payload.len() as u16).to_le_bytes());
    bytes[8..16].copy_from_slice(&head.time_ns.to_le_bytes());
    bytes[16..20].copy_from_slice(&head.block.to_le_bytes());
    bytes[20..22].copy_from_slice(&head.sm.to_le_bytes());
    (bytes[22], bytes[23]) = (head.warp, head.lane);
    bytes[24..28].copy_from_slice(&ring.to_le_bytes());
    out.extend_from_slice(&bytes);
    out.extend_from_slice(payload);
}

/// Finds frames in the bytes of a stream, however they are cut.
///
/// # Examples
///
/// ```
/// use gpunet_records_host::wire::{self, Decoder, Frame, Reason};
///
/// let mut bytes = wire::MAGIC.to_vec();
/// wire::put(&Frame::Missing { reason: Reason::Rings, total: 7 }, &mut bytes);
/// let mut decoder = Decoder::new();
/// decoder.push(&bytes[..20]);
/// assert_eq!(decoder.next()?, None, "the rest has not come");
/// decoder.push(&bytes[20..]);
/// assert_eq!(decoder.next()?, Some(Frame::Missing { reason: Reason::Rings, total: 7 }));
/// # Ok::<(), wire::WireError>(())
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
    has_begun: bool,
}

impl Decoder {
    /// A decoder at the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, or `None` until more bytes have come.
    ///
    /// # Errors
    /// [`WireError`]: the stream cannot be read on.
    #[expect(clippy::should_implement_trait, reason = "a frame borrows the decoder")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, WireError> {
        if !self.has_begun {
            let Some(first) = self.bytes[self.at..].first_chunk::<8>() else { return Ok(None) };
            if *first != MAGIC {
                return Err(WireError::Magic);
            }
            (self.has_begun, self.at) = (true, self.at + MAGIC.len());
        }
        let rest = &self.bytes[self.at..];
        let Some(bytes) = rest.first_chunk::<{ 4 + HEAD }>() else { return Ok(None) };
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from(u16_at(at)) | u32::from(u16_at(at + 2)) << 16;
        let (length, payload) = (u32_at(0), u16_at(6));
        let len = usize::from(payload);
        if length as usize != HEAD + len || len > LONGEST || (u16_at(4) == NOTICE && len != NOTICE_LEN) {
            return Err(WireError::Length { length, payload });
        }
        let Some(payload) = rest.get(4 + HEAD..4 + HEAD + len) else { return Ok(None) };
        self.at += 4 + HEAD + len;
        let head = Head {
            kind: Kind::from_raw(u16_at(4)),
            len: u16_at(6),
            time_ns: u64::from(u32_at(8)) | u64::from(u32_at(12)) << 32,
            block: u32_at(16),
            sm: u16_at(20),
            warp: bytes[22],
            lane: bytes[23],
        };
        if let (NOTICE, Some((reason, total))) = (head.kind.raw(), payload.split_first_chunk::<4>()) {
            let total = total.first_chunk::<8>().map_or(0, |total| u64::from_le_bytes(*total));
            return Ok(Some(Frame::Missing { reason: Reason::of(u32::from_le_bytes(*reason)), total }));
        }
        Ok(Some(Frame::Record { ring: u32_at(24), head, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Sent {
        Record(u32, Head, Vec<u8>),
        Missing(Reason, u64),
    }

    impl Sent {
        fn frame(&self) -> Frame<'_> {
            match self {
                Self::Record(ring, head, payload) => Frame::Record { ring: *ring, head: *head, payload },
                Self::Missing(reason, total) => Frame::Missing { reason: *reason, total: *total },
            }
        }
    }

    fn sent() -> impl Strategy<Value = Sent> {
        let place = (any::<u32>(), any::<u16>(), any::<u8>(), any::<u8>());
        let payload = prop::collection::vec(any::<u8>(), 0..600);
        prop_oneof![
            (any::<u32>(), 1..=u16::MAX, any::<u64>(), place, payload).prop_map(
                |(ring, kind, time_ns, (block, sm, warp, lane), payload)| {
                    let (kind, len) = (Kind::from_raw(kind), payload.len() as u16);
                    Sent::Record(ring, Head { kind, len, time_ns, block, sm, warp, lane }, payload)
                }
            ),
            (any::<u32>(), any::<u64>()).prop_map(|(raw, total)| Sent::Missing(Reason::of(raw), total)),
        ]
    }

    proptest! {
        /// Frames come back, however their bytes are cut.
        #[test]
        fn frames_come_back(frames in prop::collection::vec(sent(), 0..20), piece in 1usize..200) {
            let mut bytes = MAGIC.to_vec();
            frames.iter().for_each(|sent| put(&sent.frame(), &mut bytes));
            let (mut decoder, mut expected) = (Decoder::new(), frames.iter());
            for piece in bytes.chunks(piece) {
                decoder.push(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    prop_assert_eq!(Some(frame), expected.next().map(Sent::frame));
                }
            }
            prop_assert!(expected.next().is_none());
        }

        /// Any bytes are frames, or wait for more, or are refused.
        #[test]
        fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::new();
            decoder.push(&MAGIC);
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next() {}
        }
    }

    #[test]
    fn a_stream_of_something_else_is_refused() {
        let mut decoder = Decoder::new();
        decoder.push(b"HTTP/1.1 200 OK");
        assert_eq!(decoder.next(), Err(WireError::Magic));
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_before_its_bytes_come() {
        let mut decoder = Decoder::new();
        decoder.push(&MAGIC);
        let mut frame = [0; 28];
        frame[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        decoder.push(&frame);
        assert_eq!(decoder.next(), Err(WireError::Length { length: u32::MAX, payload: 0 }));
    }
}
