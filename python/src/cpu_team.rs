//! Calls of teams in kernels on the CPU.

use crate::buffer::View;
use crate::cpu::{BLOCK, call, length, limit};
use crate::team::{TeamCore, find};
use gpunet_device::{Error, SymmetricPtr, TeamHandle, Timeout};
use gpunet_posix::team as posix;
use pyo3::prelude::*;

/// Makes a call as a member. A team that is not there, or was left, is as a proxy that is down.
fn call_of(
    py: Python<'_>,
    net: u64,
    team: u64,
    body: impl FnOnce(&TeamCore, TeamHandle) -> Result<i64, Error> + Send,
) -> PyResult<i64> {
    let team = find(team);
    call(py, net, |net| {
        let team = team.as_ref().ok_or(Error::NetworkDown)?;
        team.call(net, |handle| body(team, handle)).unwrap_or(Err(Error::NetworkDown))
    })
}

#[pyfunction]
#[pyo3(signature = (net, team, memory, offset, data, n, member, signal=None))]
#[allow(clippy::too_many_arguments, reason = "a kernel's call")]
pub(crate) fn cpu_put(
    py: Python<'_>,
    net: u64,
    team: u64,
    memory: u64,
    offset: usize,
    data: &Bound<'_, PyAny>,
    n: Option<usize>,
    member: u32,
    signal: Option<(u32, u64)>,
) -> PyResult<i64> {
    let view = View::readable(data)?;
    let bytes = &view.bytes()[..length(n, view.len())?];
    call_of(py, net, team, |core, handle| {
        let put = |to: SymmetricPtr<u8>| {
            let (to, from, len) = (to.at(offset), bytes.as_ptr(), bytes.len() as u64);
            match signal {
                // SAFETY: readable for its length, until the call returns.
                None => unsafe { posix::put(&BLOCK, handle, to, from, len, member) },
                Some((signal, value)) => {
                    // SAFETY: as above.
                    unsafe { posix::put_signal(&BLOCK, handle, to, from, len, signal, value, member) }
                }
            }
        };
        core.call_with(memory, put).unwrap_or(Err(Error::InvalidArgument))
    })
}

#[pyfunction]
pub(crate) fn cpu_signal_set(
    py: Python<'_>,
    net: u64,
    team: u64,
    signal: u32,
    value: u64,
    member: u32,
) -> PyResult<i64> {
    call_of(py, net, team, |_, handle| posix::signal(&BLOCK, handle, signal, value, member))
}

#[pyfunction]
pub(crate) fn cpu_signal_wait(
    py: Python<'_>,
    net: u64,
    team: u64,
    signal: u32,
    source: u32,
    value: u64,
    timeout_ns: i64,
) -> PyResult<i64> {
    let timeout_ns = limit(timeout_ns)?;
    call_of(py, net, team, |_, handle| posix::signal_wait(&BLOCK, handle, signal, source, value, timeout_ns))
}

#[pyfunction]
pub(crate) fn cpu_barrier(py: Python<'_>, net: u64, team: u64, timeout_ns: i64) -> PyResult<i64> {
    let timeout = match limit(timeout_ns)? {
        0 => Timeout::NON_BLOCKING,
        ns => u64::try_from(ns).map_or(Timeout::NEVER, Timeout::ns),
    };
    call_of(py, net, team, |_, handle| posix::barrier(&BLOCK, handle.timeout(timeout)))
}
