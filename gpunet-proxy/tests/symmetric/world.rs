//! Members that are threads of this program.

use crate::support::{HANG, SOLO, small};
use gpunet_device::group::{Lanes, Solo};
use gpunet_device::team::{Rank, TeamHandle};
use gpunet_device::{Group, Net};
use gpunet_proxy::team::{Team, TeamError, TeamListener, TeamOptions};
use gpunet_proxy::{Attachment, LaunchToken, embed};
use std::net::SocketAddr;

/// How long members wait for each other where all do what they should.
pub fn options() -> TeamOptions {
    TeamOptions { signals: 16, timeout: HANG / 3 }
}

pub fn anywhere() -> TeamListener {
    TeamListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port")
}

/// One member, with a launch of its own.
pub struct Member {
    pub attachment: Attachment,
    pub token: LaunchToken,
    pub team: Team,
}

impl Member {
    pub fn net(&self) -> Net {
        self.token.net()
    }

    /// What kernels get.
    pub fn handle(&self) -> TeamHandle {
        // SAFETY: the callers' groups end before the member does.
        unsafe { self.team.handle(self.net()) }
    }

    pub fn solo(&self) -> Solo {
        SOLO
    }
}

/// Runs `body` as each of `size` members, all on threads of their own; returns what they return, by
/// rank.
#[track_caller]
pub fn members<R: Send>(size: u32, body: impl Fn(&Member) -> R + Sync) -> Vec<R> {
    let proxy = embed(small()).expect("a proxy");
    let listener = anywhere();
    let id = listener.id();
    let attachments: Vec<_> = (0..size).map(|_| proxy.attach_cpu().expect("attached")).collect();
    let mut listener = Some(listener);
    std::thread::scope(|scope| {
        let run = |(rank, attachment): (u32, Attachment)| {
            let listener = listener.take_if(|_| rank == 0);
            let body = &body;
            scope.spawn(move || {
                let team = match listener {
                    Some(listener) => Team::lead_with(&attachment, listener, size, &options()),
                    None => Team::join_with(&attachment, id, Rank(rank), size, &options()),
                };
                let token = attachment.token().expect("a number");
                let member = Member { attachment, token, team: team.expect("a team") };
                let result = body(&member);
                let Member { team, .. } = member;
                team.leave().expect("all leave");
                result
            })
        };
        let threads: Vec<_> = (0..size).zip(attachments).map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Runs `body` as a group of `lanes` lanes, each on a thread of its own; returns the leader's
/// result.
pub fn lanes<R: Send>(lanes: u32, body: impl Fn(&Lanes) -> R + Sync) -> R {
    std::thread::scope(|scope| {
        let body = &body;
        let lane = |lane: Lanes| scope.spawn(move || (lane.rank(), body(&lane)));
        let threads: Vec<_> = Lanes::group(0, 1, lanes).into_iter().map(lane).collect();
        let results = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        results.filter(|(rank, _)| *rank == 0).map(|(_, result)| result).last().expect("a leader")
    })
}

/// A failure that all must get.
#[track_caller]
pub fn failure<T>(result: Result<T, TeamError>) -> gpunet_proxy::team::TeamFailure {
    match result {
        Ok(_) => panic!("it was to fail"),
        Err(error) => error.failure().unwrap_or_else(|| panic!("another failure: {error}")).clone(),
    }
}
