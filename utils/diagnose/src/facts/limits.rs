//! What this process may use.

use crate::system::System;

/// Limits. `None`: unreadable; `u64::MAX`: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that may be locked (RLIMIT_MEMLOCK).
    pub locked: Option<u64>,
    /// The process may lock memory whatever the limit (CAP_IPC_LOCK).
    pub may_lock: bool,
    /// Open files: the soft and the hard limit.
    pub files: Option<(u64, u64)>,
    /// Bytes of `/dev/shm`: all and free.
    pub shm: Option<(u64, u64)>,
    /// Connections that may wait to be accepted.
    pub somaxconn: Option<u64>,
}

/// The bit of CAP_IPC_LOCK.
const IPC_LOCK: u32 = 14;

impl Limits {
    /// Reads them.
    #[must_use]
    pub fn read(system: &System) -> Self {
        let limits = system.read("/proc/self/limits").unwrap_or_default();
        let status = system.read("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        let shm = rustix::fs::statvfs(system.path("/dev/shm")).ok().filter(|_| system.is_here());
        Self {
            locked: of(&limits, "Max locked memory").map(|(soft, _)| soft),
            may_lock: effective.is_some_and(|set| set & (1 << IPC_LOCK) != 0),
            files: of(&limits, "Max open files"),
            shm: shm.map(|fs| (fs.f_blocks * fs.f_frsize, fs.f_bavail * fs.f_frsize)),
            somaxconn: system.number("/proc/sys/net/core/somaxconn"),
        }
    }
}

/// The soft and the hard limit of a line of `/proc/self/limits`.
fn of(limits: &str, name: &str) -> Option<(u64, u64)> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = rest.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_the_kernel_prints_them() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 524288               files     \n\
                    Max locked memory         unlimited            unlimited            bytes     \n";
        assert_eq!(of(text, "Max open files"), Some((1024, 524_288)));
        assert_eq!(of(text, "Max locked memory"), Some((u64::MAX, u64::MAX)));
        assert_eq!(of(text, "Max processes"), None);
    }
}
