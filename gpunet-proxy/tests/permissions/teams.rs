//! A team is of one user.

use crate::daemon::TempDir;
use crate::program::{self, nobody, small};
use crate::support::process::{Program, say};
use gpunet_device::team::Rank;
use gpunet_proxy::embed;
use gpunet_proxy::team::{Team, TeamFailure, TeamId, TeamListener, TeamOptions};
use std::time::Duration;

/// A member of a team of two; says what becomes of it.
pub fn member(rank: u32, id: TeamId) {
    say(join(rank, id).map_or_else(|error| error.to_string(), |_| "joined".to_owned()));
}

fn join(rank: u32, id: TeamId) -> Result<(), gpunet_proxy::team::TeamError> {
    let proxy = embed(small()).expect("a proxy");
    let attachment = proxy.attach_cpu().expect("attached");
    let options = TeamOptions { signals: 4, timeout: Duration::from_secs(20) };
    Team::join_with(&attachment, id, Rank(rank), 2, &options).map(drop)
}

/// Starts a member as another user.
fn start(dir: &TempDir, rank: u32, id: TeamId, user: (u32, u32)) -> Program {
    program::start(dir, &format!("member {rank} {id}"), Some(user), None)
}

#[test]
fn a_program_of_another_user_is_no_member_and_is_told_so() {
    let Some(user) = nobody("a_program_of_another_user_is_no_member_and_is_told_so") else { return };
    let dir = TempDir::new();
    for leads in [false, true] {
        // A port that was free a moment ago.
        let id = TeamListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a port").id();
        let (their_rank, own_rank) = if leads { (0, 1) } else { (1, 0) };
        let mut other = start(&dir, their_rank, id, user);
        let result = join(own_rank, id).map_err(|error| error.failure().cloned());
        let (its, ours) = if leads { (0, user.0) } else { (user.0, 0) };
        let (foreign, died) = (TeamFailure::OtherUser { its, ours }, TeamFailure::Died { rank: Rank(1) });
        // Who comes from elsewhere is told, and to member 0 it is dead.
        let (own, theirs) = if leads { (foreign, died) } else { (died, foreign) };
        assert_eq!(result, Err(Some(own)));
        assert_eq!(other.hear(), theirs.to_string());
    }
}
