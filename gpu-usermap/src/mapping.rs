//! Ways for the CPU to map GPU memory, and why none is used.
//!
//! A CPU mapping of GPU memory would let the proxy write words straight into a polling kernel's memory. Linux has two ways to
//! get one, and this version uses neither: words that the CPU writes lie in pinned host memory instead
//! ([`Device::register`](crate::cuda::Device::register)). [`backends`] reports each way with its reason. A backend that is built
//! goes beside this file, as `mapping/<name>.rs`, and its `Ok(())` here then means "used".

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use crate::cuda::{Cuda, DriverVersion, Unavailable};

/// From this driver on an exported dma-buf can be mapped by the CPU; before, `mmap` fails with ENOTSUPP.
const DMABUF_MMAP_DRIVER: DriverVersion = DriverVersion::new(13, 3);

/// Says why a way to map GPU memory is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MappingUnavailable {
    /// The kernel module's device file is missing.
    #[error("{} is missing (the kernel module is not loaded)", path.display())]
    DeviceFileMissing {
        /// The device file.
        path: PathBuf,
    },
    /// The device file is there and this user may not open it.
    #[error("no permission to open {}", path.display())]
    NoPermission {
        /// The device file.
        path: PathBuf,
    },
    /// The device file could not be opened for another reason.
    #[error("{} does not open: {kind}", path.display())]
    DeviceFile {
        /// The device file.
        path: PathBuf,
        /// What kind of failure it was.
        kind: io::ErrorKind,
    },
    /// There is no CUDA here.
    #[error("{0}")]
    NoDriver(Unavailable),
    /// The driver is too old.
    #[error("the driver is CUDA {found}, {needed} is needed")]
    DriverTooOld {
        /// The driver's version.
        found: DriverVersion,
        /// The oldest that would do.
        needed: DriverVersion,
    },
    /// The machine could do it, this version of the crate does not.
    #[error("present, not used by this version yet")]
    NotUsedYet,
}

/// Is one way to map GPU memory, and whether it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Its name: `gdrdrv` or `dma-buf mmap`.
    pub name: &'static str,
    /// `Ok` if it is used, otherwise why not.
    pub used: Result<(), MappingUnavailable>,
}

/// Lists the ways to map GPU memory on this machine.
pub fn backends() -> Vec<Backend> {
    backends_with(&Cuda::load())
}

pub(crate) fn backends_with(cuda: &Result<Cuda, Unavailable>) -> Vec<Backend> {
    let driver = cuda.as_ref().map(Cuda::driver_version).map_err(Clone::clone);
    vec![
        Backend { name: "gdrdrv", used: Err(why_not_gdrdrv(Path::new("/dev/gdrdrv"))) },
        Backend { name: "dma-buf mmap", used: Err(why_not_dmabuf_mmap(driver)) },
    ]
}

fn why_not_gdrdrv(path: &Path) -> MappingUnavailable {
    let path = path.to_owned();
    match OpenOptions::new().read(true).write(true).open(&path).map_err(|error| error.kind()) {
        Ok(_) => MappingUnavailable::NotUsedYet,
        Err(io::ErrorKind::NotFound) => MappingUnavailable::DeviceFileMissing { path },
        Err(io::ErrorKind::PermissionDenied) => MappingUnavailable::NoPermission { path },
        Err(kind) => MappingUnavailable::DeviceFile { path, kind },
    }
}

fn why_not_dmabuf_mmap(driver: Result<DriverVersion, Unavailable>) -> MappingUnavailable {
    match driver {
        Err(unavailable) => MappingUnavailable::NoDriver(unavailable),
        Ok(found) if found < DMABUF_MMAP_DRIVER => {
            MappingUnavailable::DriverTooOld { found, needed: DMABUF_MMAP_DRIVER }
        }
        Ok(_) => MappingUnavailable::NotUsedYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gdrdrv_says_missing_or_not_used() {
        let missing = why_not_gdrdrv(Path::new("/dev/gpu-usermap-no-such-device"));
        assert!(matches!(missing, MappingUnavailable::DeviceFileMissing { .. }), "{missing:?}");
        assert_eq!(why_not_gdrdrv(Path::new("/dev/null")), MappingUnavailable::NotUsedYet);
        assert!(matches!(why_not_gdrdrv(Path::new("/")), MappingUnavailable::DeviceFile { .. }));
    }

    #[test]
    fn dmabuf_mmap_needs_driver_13_3() {
        let old = why_not_dmabuf_mmap(Ok(DriverVersion::new(13, 0)));
        assert_eq!(old.to_string(), "the driver is CUDA 13.0, 13.3 is needed");
        assert_eq!(why_not_dmabuf_mmap(Ok(DriverVersion::new(13, 3))), MappingUnavailable::NotUsedYet);
    }
}
