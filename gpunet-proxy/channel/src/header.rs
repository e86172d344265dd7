//! What travels, as bytes: the header of a transfer, the frames of its pieces, the receiver's
//! answers. All numbers are little-endian. Nothing that arrives is believed before it was judged,
//! and nothing is allocated for it before: a header is at most [`MAX_BODY`] bytes.
//!
//! ```text
//! transfer  magic u32 | kind u8 | flags u8 | streams u16 | number u64 | body u32 | crc of the body u32
//!           body: total u64 | piece u32 | crc of a small payload u32 | arrays u32 | arrays.. | offer
//!           array: name u16 + bytes | code u8 | bits u8 | lanes u16 | device u8 | dims u8 | dims u64..
//!           small payload
//! piece     magic u32 | kind u8 | 0 u8 | 0 u16 | number u64 | offset u64 | length u32 | crc u32
//! answer    magic u32 | kind u8 | reason u8 | errno u16 | number u64 | text u32 | 0 u32 | text
//! ```

use crate::array::Description;
use crate::dtype::{Dtype, MAX_DIMS, bytes_of};
use crate::error::Reason;

const MAGIC: u32 = u32::from_le_bytes(*b"gpch");
/// The first bytes of each frame; those of pieces have eight more.
pub(crate) const PROLOGUE: usize = 24;
pub(crate) const PIECE: usize = 32;
/// A header's body is not longer: all names and shapes, and what is offered.
pub(crate) const MAX_BODY: usize = 4 << 20;
/// The most arrays of a transfer.
pub const MAX_ARRAYS: usize = 1 << 16;
/// The longest name of an array, in bytes.
pub const MAX_NAME: usize = 1024;
pub(crate) const MAX_TEXT: usize = 1024;
/// The sizes between which a piece lies, unless the transfer is smaller.
pub(crate) const PIECES: std::ops::RangeInclusive<u32> = 4096..=64 << 20;
/// The longest payload that travels behind its header.
pub(crate) const SMALL: u64 = 1 << 20;
/// The most transfers of one direction that have begun and not ended, and the most bytes of headers
/// and small payloads that travel while an earlier one is under way.
pub(crate) const MAX_AHEAD: usize = 32;
pub(crate) const MAX_AHEAD_BYTES: usize = MAX_BODY;

const TRANSFER: u8 = 1;
const PIECE_KIND: u8 = 2;
const LAST: u8 = 3;
const BYE: u8 = 4;

/// Each piece has a checksum.
pub(crate) const CHECKED: u8 = 1;
/// The payload follows the header.
pub(crate) const INLINE: u8 = 2;

/// Where the sender's memory is, for a receiver of the same machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It is not offered.
    None(Reason),
    /// Where each array is.
    Places(Vec<Place>),
}

/// Where the sender has an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At an address of the sender's process.
    Process(u64),
    /// In memory of a GPU.
    Gpu(GpuOffer),
}

impl Place {
    /// Returns the allocations of a GPU that the place is in.
    pub(crate) fn allocations(&self) -> &[Offered] {
        match self {
            Self::Process(_) => &[],
            Self::Gpu(offer) => &offer.allocations,
        }
    }
}

/// A range in GPU memory, and the allocations over which it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GpuOffer {
    pub(crate) address: u64,
    pub(crate) allocations: Vec<Offered>,
}

/// An allocation of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offered {
    pub(crate) base: u64,
    pub(crate) len: u64,
    /// The driver's number of it.
    pub(crate) id: u64,
    /// Its handle; without one the receiver asks for a descriptor.
    pub(crate) handle: Option<[u8; 64]>,
}

/// The header of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) number: u64,
    pub(crate) flags: u8,
    /// How many connections carry pieces.
    pub(crate) streams: u16,
    pub(crate) piece: u32,
    pub(crate) total: u64,
    /// Of a small payload, if checksums are asked for.
    pub(crate) crc: u32,
    pub(crate) arrays: Vec<Description>,
    pub(crate) offer: Offer,
}

/// What is wrong with bytes that arrived.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// What the sender says last.
pub(crate) fn bye() -> [u8; PROLOGUE] {
    let mut bytes = [0; PROLOGUE];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[4] = BYE;
    bytes
}

/// The first bytes of a transfer's header, or the sender's last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prologue {
    /// Nothing more comes.
    pub(crate) is_bye: bool,
    pub(crate) flags: u8,
    pub(crate) streams: u16,
    pub(crate) number: u64,
    pub(crate) body: usize,
    pub(crate) crc: u32,
}

/// Whether these are the first bytes of a transfer's header, and not of a piece.
pub(crate) fn is_transfer(bytes: &[u8; PIECE]) -> bool {
    bytes[4] == TRANSFER
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed("the header ends too early"))?;
        self.0 = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Malformed("the header ends too early"))?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }
}

impl Prologue {
    pub(crate) fn decode(bytes: &[u8; PROLOGUE]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.u32()? != MAGIC {
            return Err(Malformed("no frame of a channel"));
        }
        let is_bye = match reader.u8()? {
            TRANSFER => false,
            BYE => true,
            _ => return Err(Malformed("a frame of another kind than a transfer's")),
        };
        let (flags, streams, number) = (reader.u8()?, reader.u16()?, reader.u64()?);
        let (body, crc) = (reader.u32()? as usize, reader.u32()?);
        if body > MAX_BODY {
            return Err(Malformed("a header that is longer than any"));
        }
        if flags & !(CHECKED | INLINE) != 0 {
            return Err(Malformed("a transfer with an unknown flag"));
        }
        Ok(Self { is_bye, flags, streams, number, body, crc })
    }
}

impl Header {
    /// Returns the bytes; an error if the arrays are too many, or their names too long.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut body = Vec::with_capacity(64 + 64 * self.arrays.len());
        body.extend(self.total.to_le_bytes());
        body.extend(self.piece.to_le_bytes());
        body.extend(self.crc.to_le_bytes());
        if self.arrays.len() > MAX_ARRAYS {
            return Err(Malformed("a transfer has at most 65,536 arrays"));
        }
        body.extend((self.arrays.len() as u32).to_le_bytes());
        for Description { name, dtype, shape, on_gpu } in &self.arrays {
            if name.len() > MAX_NAME {
                return Err(Malformed("a name has at most 1,024 bytes"));
            }
            body.extend((name.len() as u16).to_le_bytes());
            body.extend(name.as_bytes());
            body.extend([dtype.code, dtype.bits]);
            body.extend(dtype.lanes.to_le_bytes());
            body.extend([u8::from(*on_gpu), shape.len() as u8]);
            body.extend(shape.iter().flat_map(|dim| dim.to_le_bytes()));
        }
        self.offer.encode(&mut body);
        if body.len() > MAX_BODY {
            return Err(Malformed("names and shapes have at most 4 MiB together"));
        }
        let mut bytes = Vec::with_capacity(PROLOGUE + body.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([TRANSFER, self.flags]);
        bytes.extend(self.streams.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(&body).to_le_bytes());
        bytes.extend(body);
        Ok(bytes)
    }

    /// Judges a body. `most` is how many connections there are.
    pub(crate) fn decode(prologue: &Prologue, body: &[u8], most: usize) -> Result<Self, Malformed> {
        if crc32fast::hash(body) != prologue.crc {
            return Err(Malformed("the checksum of a header is wrong"));
        }
        let mut reader = Reader(body);
        let (total, piece, crc) = (reader.u64()?, reader.u32()?, reader.u32()?);
        let count = reader.u32()? as usize;
        if count > MAX_ARRAYS {
            return Err(Malformed("a transfer of too many arrays"));
        }
        // The bytes that are there bound it: each array has some.
        let mut arrays = Vec::with_capacity(count.min(body.len() / 10));
        for _ in 0..count {
            arrays.push(description(&mut reader)?);
        }
        let sum = arrays.iter().try_fold(0u64, |sum, array| sum.checked_add(array.bytes()));
        if sum != Some(total) {
            return Err(Malformed("the arrays do not have as many bytes as the transfer"));
        }
        let is_inline = prologue.flags & INLINE != 0;
        if is_inline && total > SMALL {
            return Err(Malformed("a large transfer behind its header"));
        }
        if !is_inline && (!PIECES.contains(&piece) || !(1..=most).contains(&usize::from(prologue.streams))) {
            return Err(Malformed("pieces of an impossible size, or connections that are not there"));
        }
        let offer = Offer::decode(&mut reader, count)?;
        if !reader.0.is_empty() {
            return Err(Malformed("a header with more bytes than it needs"));
        }
        let Prologue { flags, streams, number, .. } = *prologue;
        Ok(Self { number, flags, streams, piece, total, crc, arrays, offer })
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

fn description(reader: &mut Reader<'_>) -> Result<Description, Malformed> {
    let len = usize::from(reader.u16()?);
    if len > MAX_NAME {
        return Err(Malformed("a name that is too long"));
    }
    let name = std::str::from_utf8(reader.bytes(len)?).map_err(|_| Malformed("a name that is no UTF-8"))?;
    let dtype = Dtype { code: reader.u8()?, bits: reader.u8()?, lanes: reader.u16()? };
    let on_gpu = match reader.u8()? {
        0 => false,
        1 => true,
        _ => return Err(Malformed("an unknown kind of device")),
    };
    let dims = usize::from(reader.u8()?);
    if dims > MAX_DIMS {
        return Err(Malformed("an array of too many dimensions"));
    }
    let shape = (0..dims).map(|_| reader.u64()).collect::<Result<Vec<_>, _>>()?;
    if bytes_of(dtype, &shape).is_none() {
        return Err(Malformed("an array that cannot be"));
    }
    Ok(Description { name: name.to_owned(), dtype, shape, on_gpu })
}

impl Offer {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::None(reason) => to.extend([0, *reason as u8]),
            Self::Places(places) => {
                to.extend([1, 0]);
                places.iter().for_each(|place| place.encode(to));
            }
        }
    }

    fn decode(reader: &mut Reader<'_>, arrays: usize) -> Result<Self, Malformed> {
        let (kind, reason) = (reader.u8()?, reader.u8()?);
        match kind {
            0 => Ok(Self::None(Reason::from_raw(reason))),
            1 => {
                let places = (0..arrays).map(|_| Place::decode(reader));
                Ok(Self::Places(places.collect::<Result<_, _>>()?))
            }
            _ => Err(Malformed("an unknown kind of offer")),
        }
    }
}

impl Place {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            Self::Process(address) => {
                to.push(0);
                to.extend(address.to_le_bytes());
            }
            Self::Gpu(GpuOffer { address, allocations }) => {
                to.push(1);
                to.extend(address.to_le_bytes());
                to.extend((allocations.len() as u32).to_le_bytes());
                for Offered { base, len, id, handle } in allocations {
                    to.extend([base, len, id].into_iter().flat_map(|number| number.to_le_bytes()));
                    to.push(u8::from(handle.is_some()));
                    to.extend(handle.iter().flatten());
                }
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            0 => Ok(Self::Process(reader.u64()?)),
            1 => Ok(Self::Gpu(GpuOffer::decode(reader)?)),
            _ => Err(Malformed("an unknown kind of memory")),
        }
    }
}

impl GpuOffer {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (address, count) = (reader.u64()?, reader.u32()? as usize);
        let mut allocations = Vec::with_capacity(count.min(reader.0.len() / 25));
        for _ in 0..count {
            let (base, len, id) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let handle = match reader.u8()? {
                0 => None,
                1 => Some(reader.array()?),
                _ => return Err(Malformed("an unknown kind of handle")),
            };
            if len == 0 || base.checked_add(len).is_none() {
                return Err(Malformed("an allocation that cannot be"));
            }
            allocations.push(Offered { base, len, id, handle });
        }
        Ok(Self { address, allocations })
    }
}

/// What stands before the bytes of a piece, or after the last of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceFrame {
    Piece {
        number: u64,
        offset: u64,
        len: u32,
        crc: u32,
    },
    /// No more pieces of this transfer come by this connection.
    Last {
        number: u64,
    },
}

impl PieceFrame {
    pub(crate) fn encode(self) -> [u8; PIECE] {
        let (kind, number, offset, len, crc) = match self {
            Self::Piece { number, offset, len, crc } => (PIECE_KIND, number, offset, len, crc),
            Self::Last { number } => (LAST, number, 0, 0, 0),
        };
        let mut bytes = [0; PIECE];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = kind;
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&offset.to_le_bytes());
        bytes[24..28].copy_from_slice(&len.to_le_bytes());
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; PIECE]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.u32()? != MAGIC {
            return Err(Malformed("no frame of a channel"));
        }
        let kind = reader.u8()?;
        reader.bytes(3)?;
        let (number, offset, len, crc) = (reader.u64()?, reader.u64()?, reader.u32()?, reader.u32()?);
        match kind {
            PIECE_KIND => Ok(Self::Piece { number, offset, len, crc }),
            LAST => Ok(Self::Last { number }),
            _ => Err(Malformed("a frame of another kind than a piece's")),
        }
    }
}

/// What the receiver says of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The pieces may come, because no copy is possible.
    Go { reason: Reason },
    /// Everything is in its place.
    Done { copied: bool },
    /// The transfer is not wanted, and nothing of it is to come.
    Refused { errno: u16, text: String },
    /// Descriptors of these allocations are needed; they count through all arrays.
    Need { allocations: Vec<u32> },
}

/// The first bytes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerPrologue {
    kind: u8,
    reason: u8,
    errno: u16,
    pub(crate) number: u64,
    pub(crate) text: usize,
}

/// As many as fit into an answer's text.
pub(crate) const MAX_NEEDED: usize = MAX_TEXT / 4;

impl Answer {
    pub(crate) fn encode(&self, number: u64) -> Vec<u8> {
        let (kind, reason, errno, text): (u8, u8, u16, Vec<u8>) = match self {
            Self::Go { reason } => (1, *reason as u8, 0, Vec::new()),
            Self::Done { copied } => (2, u8::from(*copied), 0, Vec::new()),
            Self::Refused { errno, text } => {
                let cut = (0..=MAX_TEXT.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
                (3, 0, *errno, text.as_bytes()[..cut.unwrap_or(0)].to_vec())
            }
            Self::Need { allocations } => {
                (4, 0, 0, allocations.iter().flat_map(|number| number.to_le_bytes()).collect())
            }
        };
        let mut bytes = Vec::with_capacity(PROLOGUE + text.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([kind, reason]);
        bytes.extend(errno.to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(text);
        bytes
    }

    pub(crate) fn decode(prologue: AnswerPrologue, text: &[u8]) -> Result<Self, Malformed> {
        let AnswerPrologue { kind, reason, errno, .. } = prologue;
        match kind {
            1 => Ok(Self::Go { reason: Reason::from_raw(reason) }),
            2 => Ok(Self::Done { copied: reason != 0 }),
            3 => Ok(Self::Refused { errno, text: String::from_utf8_lossy(text).into_owned() }),
            4 => {
                let numbers =
                    text.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]));
                Ok(Self::Need { allocations: numbers.collect() })
            }
            _ => Err(Malformed("an unknown answer")),
        }
    }
}

impl AnswerPrologue {
    pub(crate) fn decode(bytes: &[u8; PROLOGUE]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        if reader.u32()? != MAGIC {
            return Err(Malformed("no frame of a channel"));
        }
        let (kind, reason, errno, number) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u64()?);
        let text = reader.u32()? as usize;
        if text > MAX_TEXT {
            return Err(Malformed("an answer that is longer than any"));
        }
        Ok(Self { kind, reason, errno, number, text })
    }
}

#[cfg(test)]
mod tests;
