//! The device's calls with teams, for C functions that run as kernels on the CPU: each is one thread block of one thread.

use super::{SymmetricBytes, with_state};
use crate::cpu::SOLO;
use crate::failure::{Failure, int, returned};
use crate::token::with_net;
use gpunet_device::team::TeamHandle;
use gpunet_posix::team as calls;
use std::ffi::{c_int, c_void};

/// Makes a call of the device.
fn call(
    team: TeamHandle,
    body: impl FnOnce(TeamHandle) -> gpunet_device::Result<i64>,
) -> Result<i64, Failure> {
    with_net(team.net().raw(), |_| with_state(team, |team| Ok(body(team)?)))
}

/// In a kernel on the CPU: returns the address of symmetric memory in the part of a member, or NULL when there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_ptr(
    team: TeamHandle,
    at: SymmetricBytes,
    member: u32,
) -> *mut c_void {
    let mut found = std::ptr::null_mut();
    int(|| {
        call(team, |team| {
            found = calls::ptr(team, at, member).cast();
            Ok(0)
        })
    });
    found
}

/// In a kernel on the CPU: copies `len` bytes to the beginning of `to` in the part of `member`. The data may be changed when it
/// returns; the member sees the bytes once it is told so, by a signal or a barrier.
///
/// `team` is the kernel's. Errors of this call and of those below: -EINVAL for a member or signal that there is not, memory of another
/// team, or a range that is not inside it; -EFAULT; -ENETDOWN for a team that was left, or whose token was finished. Of those that wait:
/// -EAGAIN when the time is over; -ECONNRESET when a member has died; -ENOTCONN when the one that is waited for has left; -EALREADY when
/// another block is in a barrier or a collective; -ECONNABORTED after a collective that failed; -ECANCELED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_put(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
    member: u32,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::put(&SOLO, team, to, data.cast(), len, member) }))
}

/// As gpunet_host_cpu_put; the data may be changed once gpunet_host_cpu_quiet has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_put_nbi(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
    member: u32,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::put_nbi(&SOLO, team, to, data.cast(), len, member) }))
}

/// In a kernel on the CPU: copies `len` bytes from the beginning of `from` in the part of `member`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_get(
    team: TeamHandle,
    data: *mut c_void,
    from: SymmetricBytes,
    len: u64,
    member: u32,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::get(&SOLO, team, data.cast(), from, len, member) }))
}

/// In a kernel on the CPU: puts, and then sets a signal: who sees the value sees the bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_put_signal(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
    signal: u32,
    value: u64,
    member: u32,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| {
        // SAFETY: as promised.
        call(team, |team| unsafe {
            calls::put_signal(&SOLO, team, to, data.cast(), len, signal, value, member)
        })
    })
}

/// In a kernel on the CPU: sets this member's word of a signal at `member`. Values grow. What was stored before is there when the
/// member sees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_signal_set(
    team: TeamHandle,
    signal: u32,
    value: u64,
    member: u32,
) -> c_int {
    int(|| call(team, |team| calls::signal(&SOLO, team, signal, value, member)))
}

/// As gpunet_host_cpu_signal_set, but adds to what was sent before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_signal_add(
    team: TeamHandle,
    signal: u32,
    value: u64,
    member: u32,
) -> c_int {
    int(|| call(team, |team| calls::signal_add(&SOLO, team, signal, value, member)))
}

/// In a kernel on the CPU: waits until the word that `source` writes for a signal is at least `value`, for so many nanoseconds;
/// negative: without limit; 0: not at all; GPUNET_TEAM_TIMEOUT: as the team's timeout_ns says. Returns what it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_signal_wait(
    team: TeamHandle,
    signal: u32,
    source: u32,
    value: u64,
    timeout_ns: i64,
) -> i64 {
    returned(|| call(team, |team| calls::signal_wait(&SOLO, team, signal, source, value, timeout_ns)))
}

/// In a kernel on the CPU: returns 1 if the word that `source` writes for a signal is at least `value`, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_signal_test(
    team: TeamHandle,
    signal: u32,
    source: u32,
    value: u64,
) -> c_int {
    int(|| call(team, |team| calls::signal_test(&SOLO, team, signal, source, value)))
}

/// In a kernel on the CPU: orders what it has stored into other members' memory before what it stores there afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_fence(team: TeamHandle) -> c_int {
    int(|| call(team, |team| calls::fence(&SOLO, team)))
}

/// In a kernel on the CPU: waits until what it has stored into other members' memory is there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_quiet(team: TeamHandle) -> c_int {
    int(|| call(team, |team| calls::quiet(&SOLO, team)))
}

/// In a kernel on the CPU: waits until a block of every member has called it. The team's timeout_ns counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_barrier(team: TeamHandle) -> c_int {
    int(|| call(team, |team| calls::barrier(&SOLO, team)))
}

/// In a kernel on the CPU: gives all members the data of all: that of member i lies at byte i * len of everybody's `to`. It begins
/// and ends with a barrier, and so do those below.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_all_gather(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::all_gather(&SOLO, team, to, data.cast(), len) }))
}

/// In a kernel on the CPU: copies the data of `root` to the beginning of everybody's `to`. The data of the others may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_broadcast(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
    root: u32,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::broadcast(&SOLO, team, to, data.cast(), len, root) }))
}

/// In a kernel on the CPU: `data` has `len` bytes for each member; part i of member j's lies at part j of member i's `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_all_to_all(
    team: TeamHandle,
    to: SymmetricBytes,
    data: *const c_void,
    len: u64,
) -> c_int {
    // SAFETY: the pointers are the caller's, who promises what the device's call asks for.
    int(|| call(team, |team| unsafe { calls::all_to_all(&SOLO, team, to, data.cast(), len) }))
}

/// In a kernel on the CPU: reduces all elements of `from` into everybody's `to`, in the order of ranks. `to` may be `from`. A type
/// (GPUNET_FLOAT) and an operation (GPUNET_SUM).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_cpu_reduce(
    team: TeamHandle,
    kind: c_int,
    operation: c_int,
    to: SymmetricBytes,
    from: SymmetricBytes,
) -> c_int {
    int(|| call(team, |team| calls::reduce(&SOLO, team, kind, operation, to, from)))
}
