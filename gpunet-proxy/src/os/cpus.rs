//! Pinning threads to CPUs.

use gpu_usermap::threads;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// Lets the calling thread run on that CPU only.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Returns the first of `cpus` that a thread cannot be pinned to. Only an attempt shows that: a
/// thread may widen its own mask, but not the cpuset of its control group.
pub(crate) fn impossible(cpus: &[usize]) -> Option<usize> {
    if cpus.is_empty() {
        return None;
    }
    let cpus = cpus.to_vec();
    // On a separate thread, because the attempts change its mask.
    let tried = move || cpus.into_iter().find(|&cpu| pin(cpu).is_err());
    // Without a thread there is no answer; the start that follows reports the missing thread.
    let thread = threads::spawn("gpunet-cpus", tried).ok()?;
    thread.join().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_that_is_not_there_is_found() {
        let here = rustix::thread::sched_getcpu();
        assert_eq!(impossible(&[]), None);
        assert_eq!(impossible(&[here]), None);
        assert_eq!(impossible(&[here, 1000, 1001]), Some(1000));
        assert_eq!(impossible(&[100_000]), Some(100_000));
    }
}
