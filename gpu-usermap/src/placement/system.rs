//! What the machine offers to RDMA, read from `/sys` and `/proc`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a loaded peer memory module shows: NVIDIA's, its predecessor, and the peer lists of the
/// card's driver (MLNX_OFED).
const PEER_MODULES: [&str; 4] = [
    "sys/module/nvidia_peermem",
    "sys/module/nv_peer_mem",
    "sys/kernel/mm/memory_peers/nv_mem",
    "sys/kernel/mm/memory_peers/nv_mem_nc",
];

/// A Linux version, as far as it matters here.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::KernelVersion;
///
/// assert!(KernelVersion { major: 5, minor: 4 } < KernelVersion { major: 5, minor: 12 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// Before the first dot.
    pub major: u32,
    /// After it.
    pub minor: u32,
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What the machine offers to RDMA.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::System;
///
/// let system = System::detect();
/// println!("RDMA devices: {:?}", system.rdma_devices);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct System {
    /// The names of the RDMA devices, sorted, e.g. `mlx5_0`. Whether this process may open them is
    /// another question.
    pub rdma_devices: Vec<String>,
    /// The running kernel; `None` if it cannot be read.
    pub kernel: Option<KernelVersion>,
    /// The path that shows a loaded peer memory module. The module does not serve a card whose
    /// driver has no peer interface.
    pub peer_module: Option<PathBuf>,
}

impl System {
    /// Reads `/sys` and `/proc` of this machine.
    pub fn detect() -> Self {
        Self::detect_under(Path::new("/"))
    }

    pub(super) fn detect_under(root: &Path) -> Self {
        // An unreadable directory counts as empty: without /sys nothing can be registered either.
        let mut rdma_devices: Vec<String> = fs::read_dir(root.join("sys/class/infiniband"))
            .map(|entries| {
                entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            })
            .unwrap_or_default();
        rdma_devices.sort_unstable();
        let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease"));
        Self {
            rdma_devices,
            kernel: release.ok().and_then(|release| parse_release(&release)),
            peer_module: PEER_MODULES.map(|path| root.join(path)).into_iter().find(|path| path.exists()),
        }
    }
}

fn parse_release(text: &str) -> Option<KernelVersion> {
    let number = |part: &str| -> Option<u32> {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().ok()
    };
    let mut parts = text.trim().split('.');
    Some(KernelVersion { major: number(parts.next()?)?, minor: number(parts.next()?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_releases_of_distributions_are_read() {
        let version = |major, minor| Some(KernelVersion { major, minor });
        assert_eq!(parse_release("6.8.0-45-generic\n"), version(6, 8));
        assert_eq!(parse_release("5.12-rc1"), version(5, 12));
        assert_eq!(parse_release("4.18.0-553.el8_10.x86_64"), version(4, 18));
        for bad in ["", "6", "linux", "x.y", "6."] {
            assert_eq!(parse_release(bad), None, "{bad:?}");
        }
        assert!(version(5, 4) < version(5, 12) && version(5, 12) < version(6, 0));
    }

    #[test]
    fn devices_and_modules_are_found_and_their_absence_is_no_error() {
        let root = std::env::temp_dir().join(format!("gpu-usermap-system-{}", std::process::id()));
        assert_eq!(System::detect_under(&root), System::default());
        for directory in
            ["sys/class/infiniband/mlx5_1", "sys/class/infiniband/mlx5_0", "sys/module/nv_peer_mem"]
        {
            fs::create_dir_all(root.join(directory)).expect("a directory");
        }
        fs::create_dir_all(root.join("proc/sys/kernel")).expect("a directory");
        fs::write(root.join("proc/sys/kernel/osrelease"), "6.1.0-9-amd64\n").expect("a file");
        let found = System::detect_under(&root);
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(found.rdma_devices, ["mlx5_0", "mlx5_1"]);
        assert_eq!(found.kernel, Some(KernelVersion { major: 6, minor: 1 }));
        assert_eq!(found.peer_module, Some(root.join("sys/module/nv_peer_mem")));
    }
}
