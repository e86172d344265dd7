//! Why a team cannot be, or cannot go on.

use gpunet_abi::team::Rank;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a call of a team failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// The system refused something to this member.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The team says so: all members get the same failure, or this one was refused.
    #[error(transparent)]
    Failed(#[from] TeamFailure),
    /// Member 0's program does not answer.
    #[error("member 0's program has not answered for {0:?}: it is stopped, or the machine is overloaded")]
    Silent(Duration),
    /// CUDA, or the system's memory, refused something to this member after all had agreed.
    #[error("cannot prepare this member's memory: {0}")]
    Memory(String),
}

impl TeamError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { doing: doing.into(), source }
    }

    /// What the team said, if it did.
    #[must_use]
    pub const fn failure(&self) -> Option<&TeamFailure> {
        if let Self::Failed(failure) = self { Some(failure) } else { None }
    }
}

/// What members do together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// An allocation of so many bytes, of elements of that size.
    Alloc {
        /// Bytes in each part.
        len: u64,
        /// Bytes of an element.
        element: u32,
    },
    /// A barrier.
    Barrier,
    /// An exchange of bytes, for a split.
    Exchange,
    /// The orderly end.
    Leave,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc { len, element } => {
                write!(f, "allocates {len} bytes (elements of {element})")
            }
            Self::Barrier => f.write_str("is at a barrier"),
            Self::Exchange => f.write_str("splits the team"),
            Self::Leave => f.write_str("leaves the team"),
        }
    }
}

/// What makes a team, or one thing that its members do together, fail.
///
/// # Examples
/// ```
/// use gpunet_proxy::device::Rank;
/// use gpunet_proxy::team::TeamFailure;
///
/// assert_eq!(TeamFailure::Missing { ranks: vec![Rank(1), Rank(3)] }.to_string(), "members 1, 3 have not come in time");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TeamFailure {
    /// They had not joined when the time was over.
    #[error("{} not come in time", members(ranks, "has", "have"))]
    Missing {
        /// Who.
        #[serde(with = "ranks_as_numbers")]
        ranks: Vec<Rank>,
    },
    /// Two members say that they are the same one.
    #[error("two members have rank {rank}")]
    SameRank {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// A member that there is not.
    #[error(
        "there is no member {rank} in a team of {size}; there may be 1 to {}",
        gpunet_abi::team::MAX_MEMBERS
    )]
    NoSuchRank {
        /// Its rank.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// The size of the team.
        size: u32,
    },
    /// Two members disagree on something that must be equal.
    #[error("member {rank} has {what} {its}, and member 0 has {ours}")]
    Unequal {
        /// The member that differs from member 0.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// What: "size", "number of signals".
        what: String,
        /// Its value.
        its: u64,
        /// The value of member 0.
        ours: u64,
    },
    /// The stranger means another team.
    #[error("another team meets at this address: the ids differ")]
    WrongId,
    /// The program is of another version.
    #[error("member 0's program speaks version {ours} of the protocol, and this one {its}")]
    WrongVersion {
        /// Of the stranger.
        its: u32,
        /// Of member 0.
        ours: u32,
    },
    /// The team has begun without it.
    #[error("the team is complete; this member is too late, or there is one too many")]
    Complete,
    /// A member runs on another machine.
    #[error("member {rank} is on another machine than member 0: symmetric memory is for one machine")]
    OtherMachine {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// A member cannot have what the others have to map.
    #[error("member {rank} cannot share memory with the others: {reason}")]
    CannotMap {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// Members do different things at the same time.
    #[error("member {rank} {its}, while member {other} {others}")]
    Different {
        /// One.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// What it does.
        its: Collective,
        /// The other.
        #[serde(with = "rank_as_number")]
        other: Rank,
        /// What the other does.
        others: Collective,
    },
    /// Some did not take part in time.
    #[error("{} not taken part in time", members(ranks, "has", "have"))]
    TimedOut {
        /// Who.
        #[serde(with = "ranks_as_numbers")]
        ranks: Vec<Rank>,
    },
    /// A member's program has ended, or was cut off, without leaving.
    #[error("member {rank} has died")]
    Died {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// A member has left in good order.
    #[error("member {rank} has left the team")]
    Left {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// Something that cannot be was said.
    #[error("member {rank} does not follow the protocol")]
    Protocol {
        /// By whom.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// A program of another user wanted to join.
    #[error("member 0's program runs as user {ours}, and this one as user {its}: a team is of one user")]
    OtherUser {
        /// The user of the one that wanted to join.
        its: u32,
        /// The user of member 0.
        ours: u32,
    },
    /// A member does one thing after the other that fails, and the others do not.
    #[error(
        "member {rank} is {operations} calls ahead of another member: all make the same calls, in the same order"
    )]
    Ahead {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// How many calls.
        operations: u64,
    },
}

fn members(ranks: &[Rank], one: &str, many: &str) -> String {
    let names: Vec<_> = ranks.iter().map(Rank::to_string).collect();
    match &*names {
        [name] => format!("member {name} {one}"),
        names => format!("members {} {many}", names.join(", ")),
    }
}

/// A rank travels as a number.
mod rank_as_number {
    use super::Rank;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(rank: &Rank, to: S) -> Result<S::Ok, S::Error> {
        rank.0.serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Rank, D::Error> {
        u32::deserialize(from).map(Rank)
    }
}

/// And so do several.
mod ranks_as_numbers {
    use super::Rank;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(ranks: &[Rank], to: S) -> Result<S::Ok, S::Error> {
        ranks.iter().map(|rank| rank.0).collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Rank>, D::Error> {
        Ok(Vec::<u32>::deserialize(from)?.into_iter().map(Rank).collect())
    }
}
