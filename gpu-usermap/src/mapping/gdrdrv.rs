//! Mappings by GDRCopy's kernel module.
//!
//! The module pins GPU pages of 64 KiB for a process and maps them at an offset that stands for the
//! pin: so the range is rounded outwards to such pages, and the view shows only what was asked for.
//! One open file per mapping, which the module serves only for the process that opened it. Pin and
//! mapping go before the memory does ([`Owner`]'s order of drops); if the module is set up for
//! non-persistent mappings, it would revoke them at `cuMemFree` otherwise.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use gpunet_cuda::GpuBuffer;
use gpunet_region::Pages;
use rustix::param::page_size;

use super::error::{GdrdrvVersion, MappingUnavailable};
use super::kind::BackendKind;
use super::pin::{Pin, abi};
use super::view::{Mapping, MemoryType, Owner};

/// The GPU's page in the module's sense (`GPU_PAGE_SIZE` in gdrdrv.c). It refuses to map a pin that
/// does not begin with one.
const GPU_PAGE: u64 = 64 << 10;

/// The oldest module with this ABI: structures, numbers and the handle's use as an offset are the
/// same in the tags v2.0 to v2.6.
const OLDEST: GdrdrvVersion = GdrdrvVersion { major: 2, minor: 0 };
/// The version of GDRCopy whose ABI `abi` describes; the module is told nothing, but names the
/// oldest that it serves.
const OURS: GdrdrvVersion = GdrdrvVersion { major: 2, minor: 6 };
/// From here on it tells the kind of memory (`GDRDRV_MINIMUM_VERSION_WITH_GET_INFO_V2`).
const TELLS_TYPE: GdrdrvVersion = GdrdrvVersion { major: 2, minor: 4 };
/// From here on a pin needs no deprecated token (`GDRDRV_MINIMUM_VERSION_WITH_PIN_BUFFER_V2`).
const PINS_WITHOUT_TOKEN: GdrdrvVersion = GdrdrvVersion { major: 2, minor: 5 };

/// Checks that the module is loaded, serves this user and speaks this ABI.
pub(super) fn check(path: &Path) -> Result<(), MappingUnavailable> {
    open(path).map(drop)
}

/// Maps `range` of `buffer`, which the caller checked.
pub(super) fn map(
    path: &Path,
    buffer: &GpuBuffer,
    range: Range<usize>,
) -> Result<Mapping, MappingUnavailable> {
    let (module, version) = open(path)?;
    let (address, len) = (buffer.ptr() + range.start as u64, range.len());
    let (from, offset, whole) = whole_gpu_pages(address, len);
    let failed = |call| {
        move |error: io::Error| MappingUnavailable::Gdrdrv {
            call,
            address: from,
            len: whole,
            errno: error.raw_os_error().unwrap_or(0),
        }
    };
    let pinned = if version >= PINS_WITHOUT_TOKEN {
        abi::pin_v2(module.as_fd(), from, whole as u64)
    } else {
        abi::pin(module.as_fd(), from, whole as u64)
    };
    let pin = Pin { handle: pinned.map_err(failed("pinning"))?, module };
    let at = mmap_offset(pin.handle, page_size()).ok_or_else(|| failed("mapping")(overflow()))?;
    let pages = Pages::at(pin.module.as_fd(), at, whole).map_err(failed("mapping"))?;
    let info = if version >= TELLS_TYPE {
        abi::info_v2(pin.module.as_fd(), pin.handle)
    } else {
        abi::info(pin.module.as_fd(), pin.handle)
    }
    .map_err(failed("asking about the mapping"))?;
    if info.address != from {
        return Err(MappingUnavailable::OtherAddress { asked: from, found: info.address });
    }
    let owner = Owner {
        pages,
        pin: Some(pin),
        buffer: Some(buffer.clone()),
        kind: BackendKind::Gdrdrv,
        memory_type: memory_type(info.mapping_type),
    };
    Ok(Mapping::new(owner, offset, range.start, len))
}

fn open(path: &Path) -> Result<(OwnedFd, GdrdrvVersion), MappingUnavailable> {
    let path = path.to_owned();
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    let module: OwnedFd = match opened {
        Ok(file) => file.into(),
        Err(error) => {
            return Err(match error.kind() {
                io::ErrorKind::NotFound => MappingUnavailable::DeviceFileMissing { path },
                io::ErrorKind::PermissionDenied => MappingUnavailable::NoPermission { path },
                kind => MappingUnavailable::DeviceFile { path, kind },
            });
        }
    };
    match abi::versions(module.as_fd()) {
        Err(error) => Err(MappingUnavailable::NotGdrdrv { path, errno: error.raw_os_error().unwrap_or(0) }),
        Ok((found, demanded)) => {
            check_versions(version(found), version(demanded)).map(|found| (module, found))
        }
    }
}

fn check_versions(
    found: GdrdrvVersion,
    demanded: GdrdrvVersion,
) -> Result<GdrdrvVersion, MappingUnavailable> {
    if found < OLDEST {
        return Err(MappingUnavailable::GdrdrvTooOld { found, needed: OLDEST });
    }
    if demanded > OURS {
        return Err(MappingUnavailable::GdrdrvTooNew { found, demanded, ours: OURS });
    }
    Ok(found)
}

/// Takes the module's number apart: major version in the upper half, minor in the lower.
fn version(number: u32) -> GdrdrvVersion {
    GdrdrvVersion { major: (number >> 16) as u16, minor: (number & 0xffff) as u16 }
}

/// Rounds a range outwards: the first GPU page's address, the range's offset in it, and the length
/// of all pages.
fn whole_gpu_pages(address: u64, len: usize) -> (u64, usize, usize) {
    let from = address - address % GPU_PAGE;
    let offset = (address - from) as usize;
    (from, offset, (offset + len).next_multiple_of(GPU_PAGE as usize))
}

/// A pin's handle counts pages of the module's file.
fn mmap_offset(handle: u64, page: usize) -> Option<libc::off_t> {
    handle.checked_mul(page as u64).and_then(|offset| libc::off_t::try_from(offset).ok())
}

fn overflow() -> io::Error {
    io::Error::from_raw_os_error(libc::EOVERFLOW)
}

/// `gdr_mr_type_t` of gdrdrv.h.
fn memory_type(number: u32) -> MemoryType {
    match number {
        1 => MemoryType::WriteCombining,
        2 => MemoryType::Cached,
        3 => MemoryType::Device,
        other => MemoryType::Unknown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_foreign_device_file_is_named() {
        let missing = check(Path::new("/dev/gpu-usermap-no-such-device"));
        assert!(matches!(missing, Err(MappingUnavailable::DeviceFileMissing { .. })), "{missing:?}");
        let foreign = check(Path::new("/dev/null"));
        assert!(
            matches!(foreign, Err(MappingUnavailable::NotGdrdrv { errno: libc::ENOTTY, .. })),
            "{foreign:?}"
        );
        assert!(matches!(check(Path::new("/")), Err(MappingUnavailable::DeviceFile { .. })));
    }

    #[test]
    fn versions_are_checked_in_both_directions() {
        let v = |major, minor| GdrdrvVersion { major, minor };
        assert_eq!(version(0x0002_0006), v(2, 6));
        assert_eq!(check_versions(v(2, 6), v(2, 0)), Ok(v(2, 6)));
        assert_eq!(check_versions(v(2, 0), v(2, 0)), Ok(v(2, 0)));
        assert_eq!(
            check_versions(v(1, 3), v(1, 0)).expect_err("too old").to_string(),
            "the gdrdrv module is 1.3, 2.0 is needed"
        );
        assert!(matches!(check_versions(v(3, 0), v(3, 0)), Err(MappingUnavailable::GdrdrvTooNew { .. })));
    }

    #[test]
    fn a_range_is_rounded_outwards_to_gpu_pages() {
        assert_eq!(whole_gpu_pages(0x7f00_0000_0000, 65536), (0x7f00_0000_0000, 0, 65536));
        assert_eq!(whole_gpu_pages(0x7f00_0000_0200, 8), (0x7f00_0000_0000, 0x200, 65536));
        assert_eq!(whole_gpu_pages(0x7f00_0000_fffc, 8), (0x7f00_0000_0000, 0xfffc, 131_072));
    }

    #[test]
    fn a_handle_becomes_an_offset_or_an_error() {
        assert_eq!(mmap_offset(3, 4096), Some(12288));
        assert_eq!(mmap_offset(u64::MAX, 4096), None);
        assert_eq!(mmap_offset(1 << 51, 4096), None);
    }
}
