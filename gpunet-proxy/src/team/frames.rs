//! The messages between the members and the root of a team.
//!
//! The *root* is a thread in member 0's program. A member meets it over TCP, at the address of the
//! [`TeamId`](super::TeamId):
//!
//! ```text
//! member                        root
//! Hello            -->
//!                  <--          Answer, when all have said hello, or one thing has gone wrong
//! ```
//!
//! Everything else goes over a Unix-domain socket, because descriptors of memory travel with it;
//! its name comes with the answer. An operation of all members has the same number on each of them:
//!
//! ```text
//! Here             -->
//!                  <--          Welcome: from here on descriptors may travel
//! Begin (with its memory, if it gives some) -->
//!                  <--          Part (with another member's memory), for each, if they give some
//!                  <--          Agreed, when all have begun, or Failed
//! Mapped           -->          if they give some
//!                  <--          Done, when all have, or Failed
//!                  <--          Broken, Left: at any time
//! ```

use super::error::{Collective, TeamFailure};
use crate::wire::Frame;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;

/// The first four bytes of a hello.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"gpnt");
/// The version of these messages. It changes with any frame, and with the layout of blocks.
pub(super) const PROTOCOL: u32 = 4;
/// The longest hello or answer.
const MAX_GREETING: usize = 4096;

/// Where a member's memory can lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum DeviceKind {
    Cpu,
    /// A GPU whose memory other GPUs can map, or why they cannot.
    Gpu(Result<(), String>),
}

/// Where the parts of all members lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Placement {
    /// In sealed memfds, which GPUs register.
    Pinned,
    /// In the memory of each member's GPU, which the others map.
    Gpu,
}

/// The first words of a member. All versions begin with magic and version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) nonce: u128,
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) signals: u32,
    /// In a part of a team: the secret that this member shares with the part's first member. Else
    /// 0.
    pub(super) secret: u128,
    /// The machine's boot id, which is the same until the next boot.
    pub(super) machine: String,
    pub(super) device: DeviceKind,
}

/// The answer to a hello.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Refused(TeamFailure),
    Formed {
        /// The name of the root's socket.
        socket: String,
        /// The key that this member sends there. Each member has a different one.
        key: u128,
        placement: Placement,
        /// Some member is a GPU, which cannot wake waiting threads.
        is_polled: bool,
    },
}

/// A message of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToRoot {
    Here {
        key: u128,
        rank: u32,
    },
    Begin {
        number: u64,
        what: Collective,
        bytes: Vec<u8>,
    },
    /// The same, if this member cannot take part: the operation then fails for all.
    Unable {
        number: u64,
        reason: String,
    },
    Mapped {
        number: u64,
        result: Result<(), String>,
    },
    Leave,
}

/// A message of the root.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum ToMember {
    /// The secrets that the member shares with each member, by rank, for parts of the team.
    Welcome {
        secrets: Vec<u128>,
    },
    Part {
        number: u64,
        rank: u32,
        len: u64,
        /// Not all of it exists yet.
        is_reserved: bool,
    },
    Agreed {
        number: u64,
        bytes: Vec<Vec<u8>>,
    },
    Done {
        number: u64,
    },
    Failed {
        number: u64,
        why: TeamFailure,
    },
    Broken {
        why: TeamFailure,
    },
    Left {
        rank: u32,
    },
}

impl Frame for ToRoot {
    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::Begin { what, .. } if what.shared_len().is_some()))
    }
}

impl Frame for ToMember {
    fn descriptors(&self) -> usize {
        usize::from(matches!(self, Self::Part { .. }))
    }
}

/// A frame with which a descriptor of memory may travel.
pub(super) trait HasMemory: Frame {
    /// Returns the length of the memory, as the sender declares it.
    fn memory_len(&self) -> Option<u64>;

    /// Returns whether part of it need not exist yet.
    fn is_reserved(&self) -> bool;
}

impl HasMemory for ToRoot {
    fn memory_len(&self) -> Option<u64> {
        match self {
            Self::Begin { what, bytes, .. } if what.shared_len().is_some() => parse_len(bytes),
            _ => None,
        }
    }

    fn is_reserved(&self) -> bool {
        matches!(self, Self::Begin { what: Collective::Alloc { is_reserved: true, .. }, .. })
    }
}

impl HasMemory for ToMember {
    fn memory_len(&self) -> Option<u64> {
        if let Self::Part { len, .. } = self { Some(*len) } else { None }
    }

    fn is_reserved(&self) -> bool {
        matches!(self, Self::Part { is_reserved: true, .. })
    }
}

/// Parses the length of its memory that a member sends with an allocation.
pub(super) fn parse_len(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// The bytes of a greeting on TCP: length, magic, version, and the frame.
pub(super) fn encode_greeting<T: Serialize>(greeting: &T) -> Vec<u8> {
    let body = postcard::to_stdvec(greeting).unwrap_or_else(|error| panic!("a frame without bytes: {error}"));
    let mut bytes = Vec::with_capacity(body.len() + 12);
    bytes.extend((body.len() as u32 + 8).to_le_bytes());
    bytes.extend(MAGIC.to_le_bytes());
    bytes.extend(PROTOCOL.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// The greeting in `bytes`, once it is complete.
///
/// # Errors
/// InvalidData: it is not a greeting. Unsupported: it is a greeting of another version, which the
/// error's text names.
pub(super) fn decode_greeting<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<Option<T>> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a member of a gpunet team");
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if !(8..=MAX_GREETING).contains(&len) {
        return Err(invalid());
    }
    if rest.len() < len {
        return Ok(None);
    }
    let (magic, rest) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(invalid)?;
    if u32::from_le_bytes(*magic) != MAGIC {
        return Err(invalid());
    }
    match u32::from_le_bytes(*version) {
        PROTOCOL => postcard::from_bytes(&rest[..len - 8]).map(Some).map_err(|_| invalid()),
        other => Err(io::Error::new(io::ErrorKind::Unsupported, other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_arrives_byte_by_byte() {
        let bytes = encode_greeting(&Answer::Refused(TeamFailure::WrongId));
        for len in 0..bytes.len() {
            assert!(matches!(decode_greeting::<Answer>(&bytes[..len]), Ok(None)), "{len}");
        }
        let whole = decode_greeting::<Answer>(&bytes);
        assert!(matches!(whole, Ok(Some(Answer::Refused(TeamFailure::WrongId)))), "{whole:?}");
    }

    #[test]
    fn strangers_are_told_apart_from_other_versions() {
        let kind = |bytes: &[u8]| decode_greeting::<Answer>(bytes).expect_err("no greeting").kind();
        assert_eq!(kind(b"GET / HTTP/1.1\r\n\r\n"), io::ErrorKind::InvalidData);
        let mut bytes = encode_greeting(&Answer::Refused(TeamFailure::WrongId));
        bytes[8] += 1;
        assert_eq!(kind(&bytes), io::ErrorKind::Unsupported);
    }
}
