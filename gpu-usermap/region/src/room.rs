//! Whether there is room for a region, on the machine and in the control groups of this process.
//!
//! The kernel does not refuse: shared memory has no size limit of its own, so `fallocate` of too
//! much takes page after page until the OOM killer ends processes, rarely the one that asked. So
//! this module checks beforehand.

use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::cgroup::MemoryGroup;
use super::error::RegionError;

/// Bytes of growing regions of this process that are not allocated yet. Whoever asks meanwhile must
/// not be given them.
static PROMISED: Mutex<u64> = Mutex::new(0);

fn promised() -> MutexGuard<'static, u64> {
    // A number has no state halfway.
    PROMISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that a region may take later. Dropping it gives up what is left.
#[derive(Debug)]
pub(super) struct Promise(Mutex<u64>);

impl Promise {
    /// Promises nothing: for a region whose pages another process allocates.
    pub(super) const fn none() -> Self {
        Self(Mutex::new(0))
    }

    /// Promises `len` bytes.
    ///
    /// # Errors
    /// [`RegionError::NoMemory`], if there is no room for them.
    pub(super) fn new(len: usize) -> Result<Self, RegionError> {
        let mut promised = promised();
        Room::now().hold(len, *promised)?;
        *promised += len as u64;
        Ok(Self(Mutex::new(len as u64)))
    }

    /// Notes that `len` of the bytes are allocated.
    pub(super) fn keep(&self, len: usize) {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = (len as u64).min(*left);
        *left -= kept;
        *promised() -= kept;
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.keep(usize::MAX);
    }
}

/// Returns an error for a length beyond what can be allocated without swapping, and without what
/// the control groups of this process forbid.
///
/// An estimate: it stops a wrong size, not a race with other processes for the last pages.
///
/// # Errors
/// [`RegionError::NoMemory`].
///
/// # Examples
/// ```
/// use gpunet_region::check_room;
///
/// assert!(check_room(4096).is_ok());
/// assert!(check_room(1 << 60).is_err());
/// ```
pub fn check_room(len: usize) -> Result<(), RegionError> {
    Room::now().hold(len, *promised())
}

/// Returns the memory that this process may have at most: of the machine, or by the smallest limit
/// of its memory cgroup and the ancestors of that. `None` where neither is known.
///
/// # Examples
/// ```
/// let total = gpunet_region::total_memory().expect("a machine with /proc");
/// assert!(total > 1 << 20);
/// ```
#[must_use]
pub fn total_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| bytes_of(&text, "MemTotal:"));
    let groups = MemoryGroup::of_process().into_iter().map(|group| group.limit);
    groups.chain(machine).min()
}

/// Returns an error if memory that was promised before is not there any more: other processes have
/// taken it.
pub(super) fn check_promised(len: usize) -> Result<(), RegionError> {
    Room::now().hold(len, 0)
}

/// What can be allocated at one moment.
struct Room {
    /// What the kernel reckons the machine has, if it says so.
    machine: Option<u64>,
    groups: Vec<MemoryGroup>,
}

impl Room {
    fn now() -> Self {
        // Without /proc there is nothing to compare with; the allocation itself may still fail.
        let machine =
            fs::read_to_string("/proc/meminfo").ok().and_then(|text| bytes_of(&text, "MemAvailable:"));
        Self { machine, groups: MemoryGroup::of_process() }
    }

    /// Checks that `len` bytes fit beside `promised` ones.
    fn hold(&self, len: usize, promised: u64) -> Result<(), RegionError> {
        let wanted = promised.saturating_add(len as u64);
        let no_memory = |why: String| Err(RegionError::NoMemory { len, source: io::Error::other(why) });
        let beside = match promised {
            0 => String::new(),
            promised => format!(", of which {promised} are promised to other regions"),
        };
        if let Some(available) = self.machine.filter(|&available| wanted > available) {
            return no_memory(format!("{available} bytes are available on the machine{beside}"));
        }
        let left = |group: &MemoryGroup| group.available().saturating_sub(margin(group.limit));
        match self.groups.iter().min_by_key(|group| left(group)) {
            Some(group) if wanted > left(group) => no_memory(format!(
                "{} bytes are available in the memory cgroup of this process{beside} ({} limits it to {} bytes); raise \
                 that limit, or ask for less",
                left(group),
                group.file.display(),
                group.limit,
            )),
            _ => Ok(()),
        }
    }
}

/// What regions leave of a group's limit for everything else that its processes do meanwhile, the
/// kernel's own memory for them (page tables) included.
fn margin(limit: u64) -> u64 {
    (limit / 16).min(64 << 20)
}

/// A line of /proc/meminfo.
fn bytes_of(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_estimate_is_read() {
        let text = "MemTotal:       24684256 kB\nMemFree:  1 kB\nMemAvailable:   24129108 kB\n";
        assert_eq!(bytes_of(text, "MemAvailable:"), Some(24_129_108 * 1024));
        assert_eq!(bytes_of("MemFree: 1 kB\n", "MemAvailable:"), None);
        assert_eq!(bytes_of("MemAvailable: many kB\n", "MemAvailable:"), None);
    }

    #[test]
    fn too_much_is_refused_without_an_allocation() {
        assert!(check_room(4096).is_ok());
        assert!(matches!(check_room(1 << 60), Err(RegionError::NoMemory { .. })));
    }

    #[test]
    fn the_fullest_group_counts_and_is_named() {
        let group = |file: &str, limit, used| MemoryGroup { file: file.into(), limit, used };
        let groups = vec![group("/wide", 1 << 30, 0), group("/full", 1 << 26, 1 << 25)];
        let room = Room { machine: Some(1 << 29), groups };
        // A sixteenth is not for regions.
        let left = (1 << 25) - (1 << 22);
        assert!(room.hold(left, 0).is_ok() && room.hold(left - 4096, 4096).is_ok());
        for (len, promised, word) in
            [(left + 1, 0, "/full limits it to 67108864 bytes"), (left, 1, "of which 1 are")]
        {
            let error = room.hold(len, promised).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("raise that limit"), "{error}");
        }
        let error = Room { machine: Some(7), groups: Vec::new() }.hold(8, 0).unwrap_err().to_string();
        assert!(error.contains("7 bytes are available on the machine"), "{error}");
        assert!(Room { machine: None, groups: Vec::new() }.hold(usize::MAX, 0).is_ok());
    }

    #[test]
    fn what_is_promised_is_given_to_nobody_else_until_it_is_given_up() {
        // As much as the test may promise while others run: more than half of what there is, which
        // is not allocated.
        let available = Room::now().machine.expect("a machine with /proc") / 5 * 3;
        let Ok(promise) = Promise::new(available as usize) else {
            let _ = std::io::Write::write_all(
                &mut std::io::stderr(),
                b"NOT RUN: promises: a control group is in the way\n",
            );
            return;
        };
        assert!(Promise::new(available as usize).is_err());
        // Once its pages exist, they are no longer available on the machine.
        promise.keep(available as usize);
        assert!(Promise::new(available as usize).is_ok(), "what was dropped is given up");
        assert!(check_room(available as usize).is_ok());
    }
}
