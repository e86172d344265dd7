//! Teams: devices whose kernels store into each other's memory.
//!
//! | file | holds |
//! |---|---|
//! | `joining` | how members come together |
//! | `memory` | symmetric memory |

mod joining;
mod memory;

pub use joining::*;
pub use memory::*;

use crate::attachment::AttachmentObject;
use crate::failure::{Failure, done, int, returned};
use crate::handle::handles;
use crate::memory::Out;
use crate::token::{gpunet_host_token_t, with_net};
use gpunet_device::team::TeamHandle;
use gpunet_posix::capi::guard_teams;
use gpunet_proxy::team::Team;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A device's place in a team. Any thread may use it; what members do together is one thing after
/// another.
pub struct gpunet_host_team_t(());

handles! { gpunet_host_team_t, TEAMS: TeamObject, 10, "team" }

pub(crate) struct TeamObject {
    /// `None` once it was left. Calls, including those of kernels on the CPU, hold it for reading.
    team: RwLock<Option<Team>>,
    /// The number of pieces of symmetric memory that borrow the team.
    memories: AtomicUsize,
    /// The device that joined.
    attachment: Arc<AttachmentObject>,
}

/// The teams by the addresses of their states, which kernels on the CPU pass.
static STATES: RwLock<Option<HashMap<u64, Arc<TeamObject>>>> = RwLock::new(None);

impl TeamObject {
    fn enter(
        team: Team,
        attachment: Arc<AttachmentObject>,
        out: &Out<*mut gpunet_host_team_t>,
    ) -> Result<(), Failure> {
        let (team, memories) = (RwLock::new(Some(team)), AtomicUsize::new(0));
        let object = Arc::new(Self { team, memories, attachment });
        out.put(gpunet_host_team_t::new(object)?);
        Ok(())
    }

    /// Uses the team, which is not left during the call.
    ///
    /// # Errors
    /// EBADF, when it was left.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&Team) -> Result<R, Failure>) -> Result<R, Failure> {
        let team = self.team.read().unwrap_or_else(PoisonError::into_inner);
        team.as_ref().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }
}

/// Makes a call of the device with a team that a kernel on the CPU passed.
///
/// # Errors
/// ENETDOWN, when there is no such team, or its token was finished.
fn with_team<R>(team: TeamHandle, body: impl FnOnce(TeamHandle) -> Result<R, Failure>) -> Result<R, Failure> {
    with_net(team.net().raw(), |_| with_state(team, body))
}

fn with_state<R>(
    handle: TeamHandle,
    body: impl FnOnce(TeamHandle) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let down = || Failure::new(libc::ENETDOWN, "no team has this value, or it was left");
    let states = STATES.read().unwrap_or_else(PoisonError::into_inner);
    let object =
        states.as_ref().and_then(|states| states.get(&handle.raw_state())).cloned().ok_or_else(down)?;
    drop(states);
    let team = object.team.read().unwrap_or_else(PoisonError::into_inner);
    // The address may belong to another team by now.
    match team.as_ref() {
        Some(team) if team.rank() == handle.rank() && team.size() == handle.size() => body(handle),
        _ => Err(down()),
    }
}

/// Returns the member's rank, from 0.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_rank(team: *const gpunet_host_team_t) -> c_int {
    int(|| gpunet_host_team_t::of(team)?.with(|team| Ok(i64::from(team.rank().0))))
}

/// Returns how many members the team has.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_size(team: *const gpunet_host_team_t) -> c_int {
    int(|| gpunet_host_team_t::of(team)?.with(|team| Ok(i64::from(team.size()))))
}

/// Stores in `*value` the parameter by which kernels of a launch act as this member. Pass it by
/// value. `token` is of a launch on the attachment that joined. The kernels end before the team is
/// left.
///
/// Errors: -EBADF; -EFAULT; -EINVAL when the token is of another attachment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_value(
    team: *const gpunet_host_team_t,
    token: *const gpunet_host_token_t,
    value: *mut TeamHandle,
) -> c_int {
    done(|| {
        let out = Out::new(value, "value")?;
        let (object, token) = (gpunet_host_team_t::of(team)?, gpunet_host_token_t::of(token)?);
        if !Arc::ptr_eq(&object.attachment, &token.attachment) {
            return Err(Failure::new(
                libc::EINVAL,
                "the token is of another attachment than the one that joined",
            ));
        }
        let handle = object.with(|team| {
            // SAFETY: the token is the attachment's, and the kernels end before: the caller's
            // promise.
            token.with(|token| Ok(unsafe { team.handle(token.net()) }))
        })?;
        guard_teams(|team, body| returned(|| with_team(team, |team| Ok(body(team)?))));
        let mut states = STATES.write().unwrap_or_else(PoisonError::into_inner);
        states.get_or_insert_default().insert(handle.raw_state(), object);
        out.put(handle);
        Ok(())
    })
}

/// Waits until all members have called it, for at most the time that the team was made with. It
/// does not wait for kernels.
///
/// Errors, for all members: -ETIMEDOUT; -ECONNRESET when a member has died; -ENOTCONN when one has
/// left; -EINVAL when one does something else. -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_barrier(team: *const gpunet_host_team_t) -> c_int {
    done(|| gpunet_host_team_t::of(team)?.with(|team| Ok(team.barrier()?)))
}

/// Leaves the team when all members do. Its kernels have ended, and its symmetric memory is free.
///
/// Errors: as gpunet_host_team_barrier: this member has left nevertheless, and the handle is stale.
/// -EBUSY while there is symmetric memory of the team, or a call or a kernel on the CPU uses it;
/// the team then stays usable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_leave(team: *mut gpunet_host_team_t) -> c_int {
    done(|| {
        let object = gpunet_host_team_t::of(team)?;
        let busy = |what: &'static str| Failure::new(libc::EBUSY, what);
        let Ok(mut held) = object.team.try_write() else {
            return Err(busy("a call or a kernel uses the team"));
        };
        // Ordering: Acquire, pairs with the Release of the call that freed the last memory: its
        // borrow has ended.
        if object.memories.load(Ordering::Acquire) > 0 {
            return Err(busy("there is symmetric memory of the team: gpunet_host_symmetric_free"));
        }
        gpunet_host_team_t::take(team)?;
        let left = held.take();
        drop(held);
        if let Some(states) = &mut *STATES.write().unwrap_or_else(PoisonError::into_inner) {
            states.retain(|_, known| !Arc::ptr_eq(known, &object));
        }
        left.map_or(Ok(()), |team| Ok(team.leave()?))
    })
}
