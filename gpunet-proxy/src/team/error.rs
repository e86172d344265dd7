//! Why a team cannot be formed, or has failed.

use crate::model::error::into_io_error;
use crate::os::errno;
use gpunet_abi::team::Rank;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::time::Duration;

/// Why a call of a team failed.
///
/// # Examples
/// ```
/// use gpunet_proxy::device::Rank;
/// use gpunet_proxy::team::{Team, TeamError, TeamFailure, TeamListener};
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let listener = TeamListener::bind("127.0.0.1:0".parse()?)?;
/// let (id, size) = (listener.id(), 2);
/// match Team::join(&attachment, id, Rank(7), size) {
///     Ok(team) => println!("{} members", team.size()),
///     Err(TeamError::Failed(TeamFailure::NoSuchRank { rank, size })) => println!("{rank} of {size}?"),
///     Err(TeamError::Silent(_)) => println!("is member 0 stopped?"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// The system refused something to this member.
    #[error("{doing}: {source}")]
    Io {
        /// What this member tried.
        doing: String,
        /// The system's answer.
        r#source: io::Error,
    },
    /// The team has failed: all members get the same failure, or this one was refused.
    #[error(transparent)]
    Failed(#[from] TeamFailure),
    /// The same in a part of a team, where members have other ranks than in the team that was
    /// joined.
    #[error("{failure} (in the team that was joined, {names})")]
    FailedInPart {
        /// The failure. Its ranks are those of the part.
        failure: TeamFailure,
        /// The members that it names.
        names: String,
    },
    /// Member 0's program does not answer.
    #[error("member 0's program has not answered for {0:?}: it is stopped, or the machine is overloaded")]
    Silent(Duration),
    /// CUDA or the system denied this member memory after all members had agreed.
    #[error("cannot prepare this member's memory: {0}")]
    Memory(String),
    /// [`TeamListener::bind`](super::TeamListener::bind) got an address that stands for all of the
    /// machine's.
    #[error("members cannot connect to an unspecified address; name one of this machine's")]
    UnspecifiedAddress,
    /// The environment of [`Team::launched`](super::Team::launched) names no team.
    #[error("cannot find this program's team: {0}")]
    Environment(EnvironmentError),
}

into_io_error!(TeamError);

impl TeamError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Io { doing: doing.into(), source }
    }

    /// Returns the Linux errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. } => errno::of(source),
            Self::Silent(_) => libc::ETIMEDOUT,
            Self::Memory(_) => libc::ENOMEM,
            Self::Failed(failure) | Self::FailedInPart { failure, .. } => failure.errno(),
            Self::UnspecifiedAddress => libc::EINVAL,
            Self::Environment(_) => libc::ENOENT,
        }
    }

    /// Returns the team's failure, if this is one.
    #[must_use]
    pub const fn failure(&self) -> Option<&TeamFailure> {
        match self {
            Self::Failed(failure) | Self::FailedInPart { failure, .. } => Some(failure),
            _ => None,
        }
    }

    /// Adds the members' ranks in the team that was joined to the error; `joined` is empty for that
    /// team itself.
    pub(super) fn named(self, joined: &[Rank]) -> Self {
        let Self::Failed(mut failure) = self else { return self };
        let name = |rank: &mut Rank| {
            let other = joined.get(rank.0 as usize).filter(|other| *other != rank)?;
            Some(format!("member {rank} is member {other}"))
        };
        let names: Vec<_> = failure.ranks().into_iter().filter_map(name).collect();
        if names.is_empty() {
            return Self::Failed(failure);
        }
        Self::FailedInPart { failure, names: names.join(", ") }
    }

    /// Translates an error of making a part of a team into the ranks of that team: `origins` are
    /// the ranks of the part's members in it.
    pub(super) fn in_parent(self, origins: &[Rank]) -> Self {
        match self {
            Self::Failed(TeamFailure::InParent(failure))
            | Self::FailedInPart { failure: TeamFailure::InParent(failure), .. } => Self::Failed(*failure),
            Self::Failed(mut failure) | Self::FailedInPart { mut failure, .. } => {
                for rank in failure.ranks() {
                    *rank = origins.get(rank.0 as usize).copied().unwrap_or(*rank);
                }
                Self::Failed(failure)
            }
            other => other,
        }
    }
}

/// Why the environment names no team.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    /// No known launcher has set its variables.
    #[error(
        "no launcher has started this program: neither RANK, OMPI_COMM_WORLD_RANK nor SLURM_PROCID is set"
    )]
    NotLaunched,
    /// A variable that the launcher sets is missing.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// A variable has an invalid value.
    #[error("{variable} is `{value}`: {problem}")]
    Invalid {
        /// Its name.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The launcher names no address.
    #[error("the members run on several machines, and symmetric memory is for one")]
    SeveralMachines,
}

/// An operation that all members carry out together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Collective {
    /// An allocation.
    Alloc {
        /// Bytes in each part.
        len: u64,
        /// Bytes of an element.
        element: u32,
        /// The memory is created later, by commits.
        is_reserved: bool,
    },
    /// The same on GPUs, which reserve addresses only.
    Reserve {
        /// Bytes in each part.
        len: u64,
        /// Bytes of an element.
        element: u32,
    },
    /// The first bytes of reserved memory are created.
    Commit {
        /// Bytes in each part.
        len: u64,
        /// Bytes of new memory that the others map; 0, if they have mapped all before.
        added: u64,
    },
    /// A barrier.
    Barrier,
    /// An exchange of bytes, for a split.
    Exchange,
    /// The orderly end.
    Leave,
}

impl Collective {
    /// Returns how many bytes of memory each member shares with the others in it; `None` if it
    /// shares none.
    pub(super) const fn shared_len(&self) -> Option<u64> {
        match *self {
            Self::Alloc { len, .. } => Some(len),
            Self::Commit { added, .. } if added > 0 => Some(added),
            _ => None,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alloc { len, element, is_reserved } => {
                let verb = if *is_reserved { "reserves" } else { "allocates" };
                write!(f, "{verb} {len} bytes (elements of {element})")
            }
            Self::Reserve { len, element } => write!(f, "reserves {len} bytes (elements of {element})"),
            Self::Commit { len, added: 0 } => write!(f, "commits {len} bytes"),
            Self::Commit { len, added } => write!(f, "commits {len} bytes, of which {added} are new"),
            Self::Barrier => f.write_str("is at a barrier"),
            Self::Exchange => f.write_str("splits the team"),
            Self::Leave => f.write_str("leaves the team"),
        }
    }
}

/// Why a team, or an operation of all its members, failed.
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
    /// Members had not joined when the timeout expired.
    #[error("{} not come in time", members(ranks, "has", "have"))]
    Missing {
        /// Who.
        #[serde(with = "ranks_as_numbers")]
        ranks: Vec<Rank>,
    },
    /// Two members have the same rank.
    #[error("two members have rank {rank}")]
    SameRank {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
    },
    /// A rank that does not exist.
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
    /// Two members have different values of a setting that must be equal.
    #[error("member {rank} has {what} {its}, and member 0 has {ours}")]
    Unequal {
        /// The member that differs from member 0.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// The setting: "size", "number of signals".
        what: String,
        /// Its value.
        its: u64,
        /// The value of member 0.
        ours: u64,
    },
    /// The program that wanted to join has the id of another team.
    #[error("another team meets at this address: the ids differ")]
    WrongId,
    /// The program is of another version.
    #[error("member 0's program speaks version {ours} of the protocol, and this one {its}")]
    WrongVersion {
        /// The version of the program that wanted to join.
        its: u32,
        /// The version of member 0.
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
    /// A member cannot share memory with the others.
    #[error("member {rank} cannot share memory with the others: {reason}")]
    CannotMap {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// Why.
        reason: String,
    },
    /// Members are in different operations at the same time.
    #[error("member {rank} {its}, while member {other} {others}")]
    Different {
        /// One.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// Its operation.
        its: Collective,
        /// The other.
        #[serde(with = "rank_as_number")]
        other: Rank,
        /// The other's operation.
        others: Collective,
    },
    /// Some members did not take part in time.
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
    /// A member has sent an invalid message.
    #[error("member {rank} does not follow the protocol")]
    Protocol {
        /// Which.
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
    /// A member's operations fail one after another, and the others do not take part in them.
    #[error(
        "member {rank} is {operations} calls ahead of another member: all make the same calls, in the same order"
    )]
    Ahead {
        /// Which.
        #[serde(with = "rank_as_number")]
        rank: Rank,
        /// The number of calls.
        operations: u64,
    },
    /// Why a part of a team cannot meet, as the parent team knows. Its ranks are those of the
    /// parent team.
    #[doc(hidden)]
    #[error(transparent)]
    InParent(Box<Self>),
}

impl TeamFailure {
    /// Returns the Linux errno, positive.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Missing { .. } | Self::TimedOut { .. } => libc::ETIMEDOUT,
            Self::SameRank { .. }
            | Self::NoSuchRank { .. }
            | Self::Unequal { .. }
            | Self::Different { .. } => libc::EINVAL,
            Self::WrongId | Self::Complete => libc::ECONNREFUSED,
            Self::WrongVersion { .. } => libc::EPROTONOSUPPORT,
            Self::OtherMachine { .. } | Self::CannotMap { .. } => libc::EOPNOTSUPP,
            Self::OtherUser { .. } => libc::EACCES,
            Self::Died { .. } => libc::ECONNRESET,
            Self::Left { .. } => libc::ENOTCONN,
            Self::Protocol { .. } | Self::Ahead { .. } | Self::InParent(_) => libc::EPROTO,
        }
    }

    /// The members that it names.
    fn ranks(&mut self) -> Vec<&mut Rank> {
        match self {
            Self::Missing { ranks } | Self::TimedOut { ranks } => ranks.iter_mut().collect(),
            Self::Different { rank, other, .. } => vec![rank, other],
            Self::SameRank { rank }
            | Self::Unequal { rank, .. }
            | Self::OtherMachine { rank }
            | Self::CannotMap { rank, .. }
            | Self::Died { rank }
            | Self::Left { rank }
            | Self::Protocol { rank }
            | Self::Ahead { rank, .. } => vec![rank],
            Self::NoSuchRank { .. }
            | Self::WrongId
            | Self::WrongVersion { .. }
            | Self::Complete
            | Self::OtherUser { .. }
            | Self::InParent(_) => Vec::new(),
        }
    }
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

/// Several ranks travel as numbers.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn died(rank: u32) -> TeamFailure {
        TeamFailure::Died { rank: Rank(rank) }
    }

    #[test]
    fn a_failure_in_a_part_names_the_members_of_the_team_that_was_joined_too() {
        let joined = [Rank(0), Rank(5)];
        let late = TeamFailure::TimedOut { ranks: vec![Rank(0), Rank(1)] };
        for (failure, text) in [
            (died(1), "member 1 has died (in the team that was joined, member 1 is member 5)"),
            (died(0), "member 0 has died"),
            (
                late,
                "members 0, 1 have not taken part in time (in the team that was joined, member 1 is member 5)",
            ),
        ] {
            let error = TeamError::from(failure.clone()).named(&joined);
            assert_eq!((error.to_string(), error.failure()), (text.to_owned(), Some(&failure)));
            assert_eq!(TeamError::from(failure.clone()).named(&[]).to_string(), failure.to_string());
        }
    }

    #[test]
    fn who_splits_a_team_hears_of_its_ranks() {
        let (origins, joined) = ([Rank(4), Rank(2)], [Rank(9), Rank(8)]);
        for (failure, expected) in [
            (died(0), died(4)),
            (TeamFailure::InParent(Box::new(died(0))), died(0)),
            (
                TeamFailure::Missing { ranks: vec![Rank(0), Rank(1)] },
                TeamFailure::Missing { ranks: vec![Rank(4), Rank(2)] },
            ),
        ] {
            // With and without the names of a part that has begun.
            for names in [&joined[..], &[]] {
                let error = TeamError::from(failure.clone()).named(names).in_parent(&origins);
                assert_eq!(error.failure(), Some(&expected));
                assert_eq!(error.to_string(), expected.to_string());
            }
        }
    }
}
