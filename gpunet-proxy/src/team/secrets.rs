//! Secrets of pairs of members, by which two members recognize each other.

use crate::os::same_host::random_bytes;
use gpunet_abi::team::Rank;
use std::io;

/// A secret for each pair of members of a team. The root makes them and tells each member its own.
/// The secret of a member with itself is the one that it shares with the root.
pub(super) struct Secrets {
    size: usize,
    of_pairs: Vec<u128>,
}

impl Secrets {
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(size: u32) -> io::Result<Self> {
        let size = size as usize;
        let mut bytes = vec![0; size * size * 16];
        random_bytes(&mut bytes)?;
        let (numbers, _) = bytes.as_chunks::<16>();
        Ok(Self { size, of_pairs: numbers.iter().map(|number| u128::from_le_bytes(*number)).collect() })
    }

    /// Returns the secret of two members; `None` if one of them does not exist.
    pub(super) fn between(&self, one: u32, other: u32) -> Option<u128> {
        let (low, high) = (one.min(other) as usize, one.max(other) as usize);
        (high < self.size).then(|| self.of_pairs[low * self.size + high])
    }

    /// Returns the secrets that a member shares with each member, by rank.
    pub(super) fn of(&self, rank: u32) -> Vec<u128> {
        (0..self.size as u32).filter_map(|other| self.between(rank, other)).collect()
    }
}

/// The secrets that one member shares with each member, by rank.
pub(super) struct OwnSecrets(Vec<u128>);

impl OwnSecrets {
    /// Takes the secrets of a member of a team of `size`; `None` if their number differs.
    pub(super) fn new(secrets: Vec<u128>, size: u32) -> Option<Self> {
        (secrets.len() == size as usize).then_some(Self(secrets))
    }

    /// Returns the secret that the member shares with another one, or with itself.
    pub(super) fn with(&self, other: Rank) -> u128 {
        self.0[other.0 as usize]
    }
}

/// Leaves out the secrets, so that a log does not show them.
impl std::fmt::Debug for OwnSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnSecrets").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_two_share_one_that_no_others_have() {
        let secrets = Secrets::new(3).expect("random numbers");
        let mut all = Vec::new();
        for one in 0..3 {
            for other in one..3 {
                assert_eq!(secrets.of(one)[other as usize], secrets.of(other)[one as usize]);
                all.extend(secrets.between(one, other));
            }
        }
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!((secrets.between(0, 3), secrets.between(3, 0)), (None, None));
    }
}
