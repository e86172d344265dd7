//! Teams of some members of a team.

use super::joining::Known;
use super::{Collective, Parent, Team, TeamError, TeamFailure, TeamId, TeamListener, form};
use gpu_usermap::cuda::Device;
use gpunet_device::team::Rank;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Parses a member's bytes of the first exchange: colour and key.
fn parse(bytes: &[u8]) -> Option<(u32, i64)> {
    let (colour, key) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*colour), i64::from_le_bytes(*key.first_chunk::<8>()?)))
}

impl Team {
    /// Splits the team: members that give the same `colour` form a new team. In it, members are
    /// ranked by `key`, and members with equal keys by their rank in this team. All members call
    /// it. This team remains usable.
    ///
    /// # Errors
    /// As [`Team::join`]. Ranks are those in this team.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(team: &gpunet_proxy::team::Team) -> Result<(), gpunet_proxy::team::TeamError> {
    /// let half = team.split(team.rank().0 % 2, 0)?; // the even ones, and the odd ones
    /// # Ok(())
    /// # }
    /// ```
    pub fn split(&self, colour: u32, key: i64) -> Result<Self, TeamError> {
        let local = &self.inner.local;
        let said = [&colour.to_le_bytes()[..], &key.to_le_bytes()[..]].concat();
        let all = local.member.together(Collective::Exchange, &said)?;
        let mut members = Vec::new();
        for (rank, bytes) in (0..).zip(&all) {
            let (its, key) = parse(bytes).ok_or(TeamFailure::Protocol { rank: Rank(rank) })?;
            if its == colour {
                members.push((key, rank));
            }
        }
        members.sort_unstable();
        let (first, size) = (members[0].1, members.len() as u32);
        let origins: Vec<_> = members.iter().map(|&(_, rank)| Rank(rank)).collect();
        let own = members.iter().position(|&(_, rank)| rank == local.rank.0);
        let rank = Rank(own.ok_or(TeamFailure::Protocol { rank: local.rank })? as u32);
        let bind = || TeamListener::bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0));
        let listener = (rank == Rank(0)).then(bind);
        // A first member that cannot listen sends no address, and so its whole team learns of it.
        let id = match &listener {
            Some(Ok(listener)) => listener.id().to_string(),
            _ => String::new(),
        };
        let ids = local.member.together(Collective::Exchange, id.as_bytes())?;
        let (device, options) = (local.device.clone(), local.options.clone());
        // No third member of this team knows the secret of a member with the first one.
        let secrets = members.iter().map(|&(_, rank)| local.member.secret(Rank(rank))).collect();
        let known_failure = local
            .member
            .known_failure(local.rank, &members.iter().map(|&(_, rank)| rank).collect::<Vec<_>>());
        let (id, secret) = if let Some(listener) = listener {
            let listener = listener?;
            let id = listener.id();
            let exports = device.as_ref().map(Device::export_check);
            listener.start_part(size, &options, exports, secrets, Box::new(known_failure.clone()))?;
            (id, local.member.secret(local.rank))
        } else {
            let id = String::from_utf8_lossy(&ids[first as usize]).parse::<TeamId>();
            let cannot =
                || TeamFailure::CannotMap { rank: Rank(first), reason: "it cannot listen".to_owned() };
            (id.map_err(|_| local.member.named(cannot().into()))?, local.member.secret(Rank(first)))
        };
        let known: Known<'_> = if rank == Rank(0) { None } else { Some(&known_failure) };
        let joined = local.member.joined(&origins);
        let parent = Parent { origins: origins.clone(), joined, secret, known_failure: known };
        form(device, id, (rank, size), options, parent)
            .map_err(|error| local.member.named(error.in_parent(&origins)))
    }

    /// Makes a team of the members `start`, `start + stride`, and so on, `size` of them, in this
    /// order. All members of this team call it, including those that will not be in the new team:
    /// they get `None`.
    ///
    /// # Errors
    /// As [`Team::join`]; NoSuchRank, for a member that does not exist.
    pub fn split_strided(&self, start: Rank, stride: u32, size: u32) -> Result<Option<Self>, TeamError> {
        let last = u64::from(start.0) + u64::from(stride) * u64::from(size.saturating_sub(1));
        if size == 0 || (stride == 0 && size > 1) || last >= u64::from(self.size()) {
            let rank = u32::try_from(last).unwrap_or(u32::MAX);
            return Err(TeamFailure::NoSuchRank { rank: Rank(rank), size: self.size() }.into());
        }
        let ahead = self.rank().0.checked_sub(start.0);
        let index = ahead.filter(|ahead| ahead % stride.max(1) == 0 && ahead / stride.max(1) < size);
        let team = self.split(u32::from(index.is_none()), 0)?;
        Ok(index.map(|_| team))
    }

    /// Returns the rank that a member of this team has in the team that this one was split from;
    /// `None` if there is no such member, or this team was joined and not split off.
    #[must_use]
    pub fn origin(&self, rank: Rank) -> Option<Rank> {
        self.inner.origins.get(rank.0 as usize).copied()
    }

    /// Returns the rank in this team of a member of the team that this one was split from; `None`
    /// if it is not a member of this one.
    #[must_use]
    pub fn translate(&self, origin: Rank) -> Option<Rank> {
        let index = self.inner.origins.iter().position(|&rank| rank == origin)?;
        Some(Rank(index as u32))
    }
}
