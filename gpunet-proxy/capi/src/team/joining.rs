//! How members come together.

use super::{TeamObject, gpunet_host_team_t};
use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use gpunet_device::Rank;
use gpunet_proxy::Attachment;
use gpunet_proxy::team::{Launched, Team, TeamError, TeamId, TeamListener, TeamOptions};
use libc::{sockaddr, socklen_t};
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where the members of a team meet, before there is a team. Any thread may use it.
pub struct gpunet_host_team_listener_t(());

handles! { gpunet_host_team_listener_t, TEAM_LISTENERS: ListenerObject, 11, "team listener" }

pub(crate) struct ListenerObject {
    /// `None` once a team is led with it.
    listener: Mutex<Option<TeamListener>>,
    id: TeamId,
}

/// How a team is; equal for all members. All zeros: the defaults.
#[repr(C)]
pub struct gpunet_host_team_options {
    /// How many signals kernels have. 0: 256.
    pub signals: u32,
    /// 0.
    pub reserved: u32,
    /// How long members wait for each other when they join, and in each thing that they do together
    /// on the host. That of member 0 counts. Nanoseconds; 0: 30 seconds.
    pub timeout_ns: u64,
}

/// Reads the options; the defaults for null.
fn options(from: *const gpunet_host_team_options) -> TeamOptions {
    let mut options = TeamOptions::default();
    if from.is_null() {
        return options;
    }
    // SAFETY: not null, readable and aligned: the caller's promise.
    let given = unsafe { from.read() };
    if given.signals > 0 {
        options.signals = given.signals;
    }
    if given.timeout_ns > 0 {
        options.timeout = Duration::from_nanos(given.timeout_ns);
    }
    options
}

/// Joins, and enters the team.
fn join(
    attachment: *const gpunet_host_attachment_t,
    out: &Out<*mut gpunet_host_team_t>,
    how: impl FnOnce(&Attachment) -> Result<Team, TeamError>,
) -> Result<(), Failure> {
    let object = gpunet_host_attachment_t::of(attachment)?;
    let team = object.with(|attachment| Ok(how(attachment)?))?;
    TeamObject::enter(team, object, out)
}

/// Binds an address of this machine at which the members of a team will meet; port 0 takes a free
/// one. Member 0 makes it where the address is not known beforehand, passes the id on, and then
/// calls gpunet_host_team_lead.
///
/// On success `*listener` is a handle that gpunet_host_team_lead or gpunet_host_team_listener_close
/// ends. Errors: -EFAULT; -EINVAL for 0.0.0.0 and its like, which nobody can connect to; the
/// system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_listen(
    address: *const sockaddr,
    len: socklen_t,
    listener: *mut *mut gpunet_host_team_listener_t,
) -> c_int {
    done(|| {
        let out = Out::new(listener, "listener")?;
        let listener = TeamListener::bind(memory::address(address, len)?)?;
        let (id, listener) = (listener.id(), Mutex::new(Some(listener)));
        out.put(gpunet_host_team_listener_t::new(Arc::new(ListenerObject { listener, id }))?);
        Ok(())
    })
}

/// Stores the id by which the other members join: a text, such as "127.0.0.1:7000/" and 32 digits.
/// Whoever has it can join.
///
/// On success `*id` belongs to the caller, who gives it back with gpunet_host_free_string.
/// Errors: -EBADF, -EFAULT, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_id(
    listener: *const gpunet_host_team_listener_t,
    id: *mut *mut c_char,
) -> c_int {
    done(|| {
        let out = Out::new(id, "id")?;
        memory::put_text(&out, &gpunet_host_team_listener_t::of(listener)?.id.to_string())
    })
}

/// Closes a listener with which no team was made.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_listener_close(
    listener: *mut gpunet_host_team_listener_t,
) -> c_int {
    done(|| gpunet_host_team_listener_t::take(listener).map(drop))
}

/// Joins as member 0 of `size`, at its listener, and waits until all have joined. The listener's
/// handle is stale once the call has begun. `options` may be NULL.
///
/// On success `*team` is a handle that gpunet_host_team_leave ends.
/// Errors: as gpunet_host_team_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_lead(
    attachment: *const gpunet_host_attachment_t,
    listener: *mut gpunet_host_team_listener_t,
    size: u32,
    options: *const gpunet_host_team_options,
    team: *mut *mut gpunet_host_team_t,
) -> c_int {
    done(|| {
        let (out, options) = (Out::new(team, "team")?, self::options(options));
        let object = gpunet_host_team_listener_t::take(listener)?;
        let listener = object.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let listener = listener.ok_or_else(|| Failure::of(libc::EBADF))?;
        join(attachment, &out, |attachment| Team::lead_with(attachment, listener, size, &options))
    })
}

/// Joins as member `rank` of `size`, by the id that all have. Member 0 listens at the id's address;
/// the others may come before it. Waits until all have joined. `options` may be NULL.
///
///     gpunet_host_team_join(attachment, getenv("TEAM"), rank, size, NULL, &team);
///     gpunet_host_symmetric_alloc(team, 4096, &memory);
///     gpunet_host_team_value(team, token, &parameters.team);
///     gpunet_host_symmetric_value(memory, &parameters.memory);
///     ... launch kernels with these parameters, wait for their end ...
///     gpunet_host_symmetric_free(memory);
///     gpunet_host_team_leave(team);
///
/// On success `*team` is a handle that gpunet_host_team_leave ends. Errors, for all members:
/// -ETIMEDOUT when some have not come; -EINVAL when two have one rank, or sizes or numbers of
/// signals differ; -EOPNOTSUPP when a member is on another machine, or one cannot map another's
/// memory; -ECONNRESET when one has died. For this one: -EBADF; -EFAULT; -EINVAL for a text that is
/// no id, or no such member; -ECONNREFUSED when the team is complete without it, or the id is
/// another team's; -EPROTONOSUPPORT when member 0 is of another version; the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_join(
    attachment: *const gpunet_host_attachment_t,
    id: *const c_char,
    rank: u32,
    size: u32,
    options: *const gpunet_host_team_options,
    team: *mut *mut gpunet_host_team_t,
) -> c_int {
    done(|| {
        let (out, options) = (Out::new(team, "team")?, self::options(options));
        let Some(id) = memory::text(id, "the id")? else {
            return Err(Failure::new(libc::EFAULT, "the id is null"));
        };
        let id: TeamId = id.parse()?;
        join(attachment, &out, |attachment| Team::join_with(attachment, id, Rank(rank), size, &options))
    })
}

/// Reads from the environment the rank and the number of members that torchrun, mpirun (Open MPI)
/// or srun has given this program. A program uses them to choose its device before it joins
/// (gpunet_host_team_launched).
///
/// Errors: -EFAULT; -ENOENT when the environment names no team.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_environment(rank: *mut u32, size: *mut u32) -> c_int {
    done(|| {
        let (rank, size) = (Out::new(rank, "rank")?, Out::new(size, "size")?);
        let launched =
            Launched::from_environment().map_err(|error| Failure::new(libc::ENOENT, error.to_string()))?;
        rank.put(launched.rank.0);
        size.put(launched.size);
        Ok(())
    })
}

/// Joins with the rank, size and address that torchrun, mpirun (Open MPI) or srun has put into the
/// environment. If GPUNET_TEAM holds an id, members meet there instead. `options` may be NULL.
///
/// On success `*team` is a handle that gpunet_host_team_leave ends.
/// Errors: as gpunet_host_team_join; -ENOENT when the environment names no team.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_launched(
    attachment: *const gpunet_host_attachment_t,
    options: *const gpunet_host_team_options,
    team: *mut *mut gpunet_host_team_t,
) -> c_int {
    done(|| {
        let (out, options) = (Out::new(team, "team")?, self::options(options));
        join(attachment, &out, |attachment| Team::launched(attachment, &options))
    })
}

/// Makes a team of all members that give the same `colour`. `key` ranks them; members with equal
/// keys keep their order in this team. All members call it. This team stays usable.
///
/// On success `*part` is a handle that gpunet_host_team_leave ends.
/// Errors: as gpunet_host_team_join.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_team_split(
    team: *const gpunet_host_team_t,
    colour: u32,
    key: i64,
    part: *mut *mut gpunet_host_team_t,
) -> c_int {
    done(|| {
        let out = Out::new(part, "part")?;
        let object = gpunet_host_team_t::of(team)?;
        let part = object.with(|team| Ok(team.split(colour, key)?))?;
        TeamObject::enter(part, object.attachment.clone(), &out)
    })
}
