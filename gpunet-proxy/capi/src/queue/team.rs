//! The operations of a queue for a member of a team.

use super::gpunet_host_queue_t;
use crate::failure::{Failure, done};
use crate::team::{gpunet_host_symmetric_t, gpunet_host_team_t, within};
use gpunet_device::Buffer;
use gpunet_device::team::{Rank, Signal};
use gpunet_proxy::queue::{Queue, QueueError};
use gpunet_proxy::team::{PutSource, Symmetric, SymmetricSlice, Team};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// Returns the destination of elements: everything from `offset` on.
fn rest<'a>(memory: &'a Symmetric<'static, u8>, offset: usize) -> Result<SymmetricSlice<'a, u8>, Failure> {
    within(memory, offset, 0)?;
    Ok(memory.slice(offset, memory.len() - offset))
}

/// Returns the source of elements.
fn source(data: *const c_void, len: usize) -> Result<PutSource<u8>, Failure> {
    if data.is_null() && len > 0 {
        return Err(Failure::new(libc::EFAULT, "the data is null"));
    }
    // SAFETY: memory of the device, which stays, and which no other code writes until the operation
    // is done: the caller's promise.
    Ok(unsafe { Buffer::from_raw_parts(data.cast_mut().cast(), len) }.into())
}

/// Uses a queue and symmetric memory in a call that enqueues.
fn enqueue_into(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    body: impl FnOnce(&mut Queue, SymmetricSlice<'_, u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let (queue, to) = (gpunet_host_queue_t::of(queue)?, gpunet_host_symmetric_t::of(to)?);
    to.with(|memory| {
        let to = rest(memory, offset)?;
        queue.with(|queue| body(queue, to))
    })
}

/// The same with a team alone.
fn enqueue_for(
    queue: *const gpunet_host_queue_t,
    team: *const gpunet_host_team_t,
    body: impl FnOnce(&mut Queue, &Team) -> Result<(), QueueError>,
) -> Result<(), Failure> {
    let (queue, team) = (gpunet_host_queue_t::of(queue)?, gpunet_host_team_t::of(team)?);
    team.with(|team| queue.with(|queue| Ok(body(queue, team)?)))
}

/// Limits each wait of team operations that are enqueued from now on to `timeout_ns` nanoseconds,
/// counted from the beginning of the wait; negative, the default: no limit; 0: the wait checks
/// once. On a CUDA stream a wait with a limit is a kernel of one block.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_set_team_timeout(
    queue: *const gpunet_host_queue_t,
    timeout_ns: i64,
) -> c_int {
    done(|| {
        let timeout = u64::try_from(timeout_ns).ok().map(Duration::from_nanos);
        gpunet_host_queue_t::of(queue)?.with(|queue| {
            queue.set_team_timeout(timeout);
            Ok(())
        })
    })
}

/// Copies `len` bytes from memory of the device to `offset` in the part of `member`. The device is
/// the one that has joined the team; an address in its own part is one, too
/// (gpunet_host_symmetric_address). The source stays, and nobody writes it, until the operation is
/// done; the destination may be freed at once. The member sees the bytes once a later signal or
/// barrier of this queue tells it.
///
/// Errors: -EBADF; -EFAULT; -EINVAL, with the reason, when the member does not exist, the bytes do
/// not fit, or the queue is another device's; -ECONNRESET when a member is known to have died;
/// -EAGAIN, -EIO and -EOPNOTSUPP as in gpunet_host_queue_post; -EOPNOTSUPP also for pageable memory
/// on a CUDA stream. What fails later is in gpunet_host_queue_outcome: -ECONNRESET when a member
/// has died; -ENOTCONN when the one that is waited for has left, or this member has; -ETIMEDOUT
/// when the time of gpunet_host_queue_set_team_timeout is over.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_put(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
    member: u32,
) -> c_int {
    done(|| {
        let from = source(data, len)?;
        enqueue_into(queue, to, offset, |queue, to| Ok(queue.put(to, from, Rank(member))?))
    })
}

/// Puts as gpunet_host_queue_put, and then signals as gpunet_host_queue_signal: who sees the value
/// sees the bytes.
///
///     gpunet_host_queue_put_signal(queue, box, 0, out, bytes, 0, round, right);
///     gpunet_host_queue_wait_until(queue, team, 0, left, round);
///     use<<<blocks, threads, 0, stream>>>(mine);      // what the left neighbour has put
///
/// Errors: those of both.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_put_signal(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
    signal: u32,
    value: u64,
    member: u32,
) -> c_int {
    done(|| {
        let from = source(data, len)?;
        enqueue_into(queue, to, offset, |queue, to| {
            Ok(queue.put_signal(to, from, Signal(signal), value, Rank(member))?)
        })
    })
}

/// Sets this member's word of a signal at `member`. When the member sees the value, it also sees
/// what the queue did before. Values only grow, up to GPUNET_MAX_SIGNAL. One queue, or one group of
/// kernels, at a time sets a signal of a member.
///
/// Errors: as gpunet_host_queue_put; -EINVAL also when the signal does not exist or the value is
/// too large.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_signal(
    queue: *const gpunet_host_queue_t,
    team: *const gpunet_host_team_t,
    signal: u32,
    value: u64,
    member: u32,
) -> c_int {
    done(|| enqueue_for(queue, team, |queue, team| queue.signal(team, Signal(signal), value, Rank(member))))
}

/// Has the queue wait until the word that `source` writes for `signal` is at least `value`. What
/// the source had stored before is visible to later operations of the queue. The call itself does
/// not wait. A signal that the same stream sends later never ends the wait.
///
/// Errors: as gpunet_host_queue_signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_wait_until(
    queue: *const gpunet_host_queue_t,
    team: *const gpunet_host_team_t,
    signal: u32,
    source: u32,
    value: u64,
) -> c_int {
    done(|| {
        enqueue_for(queue, team, |queue, team| queue.wait_until(team, Signal(signal), Rank(source), value))
    })
}

/// Has the queue wait until all members have come to the barrier, by a queue or by a kernel. The
/// call itself does not wait.
///
/// Errors: as gpunet_host_queue_put; -EBUSY as long as another queue has barriers or collectives of
/// the team under way. Later also -EBUSY when a kernel of this member is in a collective, and
/// -ECONNABORTED when an earlier one of this member has failed: the others would take the next one
/// for it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_barrier(
    queue: *const gpunet_host_queue_t,
    team: *const gpunet_host_team_t,
) -> c_int {
    done(|| enqueue_for(queue, team, Queue::barrier))
}

/// Copies the `len` bytes of each member to every member: those of member `i` go to `offset + i *
/// len` of every part. All members give the same length. The source is as in gpunet_host_queue_put.
///
/// Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_all_gather(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        let from = source(data, len)?;
        enqueue_into(queue, to, offset, |queue, to| Ok(queue.all_gather(to, from)?))
    })
}

/// Copies `len` bytes of the member `root` to `offset` of every part. All members give the same
/// length. The data of the others is ignored, and may be null.
///
/// Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_broadcast(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
    root: u32,
) -> c_int {
    done(|| {
        let (queue, to) = (gpunet_host_queue_t::of(queue)?, gpunet_host_symmetric_t::of(to)?);
        to.with(|memory| {
            within(memory, offset, len)?;
            let to = memory.slice(offset, len);
            let from = if memory.team().rank() == Rank(root) {
                source(data, len)?
            } else {
                // The destination of the root's bytes, in place of a source that is not read.
                to.into()
            };
            queue.with(|queue| Ok(queue.broadcast(to, from, Rank(root))?))
        })
    })
}

/// Copies `len` bytes from each member to each member: `data` has `len` bytes for each, and those
/// of member `j` for member `i` go to byte `offset + len * j` of member `i`'s part. All members
/// give the same length. The source is as in gpunet_host_queue_put.
///
/// Errors: as gpunet_host_queue_put and gpunet_host_queue_barrier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_all_to_all(
    queue: *const gpunet_host_queue_t,
    to: *const gpunet_host_symmetric_t,
    offset: usize,
    data: *const c_void,
    len: usize,
) -> c_int {
    done(|| {
        enqueue_into(queue, to, offset, |queue, to| {
            let all = len.checked_mul(to.team().size() as usize);
            let all =
                all.ok_or_else(|| Failure::new(libc::EINVAL, format!("{len} bytes for each member")))?;
            Ok(queue.all_to_all(to, source(data, all)?)?)
        })
    })
}
