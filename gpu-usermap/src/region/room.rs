//! Whether the machine has room for a region.
//!
//! The kernel does not refuse: shared memory has no size limit of its own, so `fallocate` of too much takes page after page
//! until the OOM killer ends processes, rarely the one that asked. So this module checks beforehand.

use std::fs;
use std::io;

use super::error::RegionError;

/// Refuses a length beyond what the kernel reckons can be allocated without swapping.
///
/// An estimate: it stops a wrong size, not a race for the last pages. It ignores a lower limit of a cgroup.
pub(super) fn check(len: usize) -> Result<(), RegionError> {
    // Without /proc there is nothing to compare with; the allocation itself may still fail.
    let available = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    match available {
        Some(available) if len as u64 > available => {
            let source = io::Error::other(format!("{available} bytes are available on the machine"));
            Err(RegionError::NoMemory { len, source })
        }
        _ => Ok(()),
    }
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_estimate_is_read() {
        let text = "MemTotal:       24684256 kB\nMemFree:  1 kB\nMemAvailable:   24129108 kB\n";
        assert_eq!(available_bytes(text), Some(24_129_108 * 1024));
        assert_eq!(available_bytes("MemFree: 1 kB\n"), None);
        assert_eq!(available_bytes("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn too_much_is_refused_without_an_allocation() {
        assert!(check(4096).is_ok());
        assert!(matches!(check(1 << 60), Err(RegionError::NoMemory { .. })));
    }
}
