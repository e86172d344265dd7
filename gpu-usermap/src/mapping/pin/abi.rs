//! The kernel module's calls: numbers and structures of `src/gdrdrv/gdrdrv.h` in NVIDIA/gdrcopy
//! 2.6, one function each.
//!
//! Where the header gives a pointer to a structure as the type of a call, the call's number holds
//! the size of a pointer.

#![allow(unsafe_code, reason = "ioctl")]

use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

/// `GDRDRV_IOCTL`.
const TYPE: u32 = 0xDA;

/// Linux's `_IOWR` as most architectures have it (asm-generic/ioctl.h; x86, Arm, RISC-V).
const fn both_ways(number: u32, size: usize) -> libc::Ioctl {
    assert!(size < 1 << 14);
    ((3 << 30) | ((size as u32) << 16) | (TYPE << 8) | number) as libc::Ioctl
}

const POINTER: usize = size_of::<*const u8>();
const PIN: libc::Ioctl = both_ways(1, size_of::<PinParams>());
const UNPIN: libc::Ioctl = both_ways(2, POINTER);
const CALLBACK_FLAG: libc::Ioctl = both_ways(3, POINTER);
const INFO: libc::Ioctl = both_ways(4, POINTER);
const INFO_V2: libc::Ioctl = both_ways(5, POINTER);
const PIN_V2: libc::Ioctl = both_ways(7, size_of::<PinV2Params>());
const VERSION: libc::Ioctl = both_ways(255, POINTER);

/// `GDRDRV_IOC_PIN_BUFFER_PARAMS`
#[repr(C)]
#[derive(Default)]
struct PinParams {
    address: u64,
    size: u64,
    p2p_token: u64,
    va_space: u32,
    _padding: u32,
    /// Written by the module.
    handle: u64,
}
const _: () = assert!(size_of::<PinParams>() == 40 && offset_of!(PinParams, handle) == 32);

/// `GDRDRV_IOC_PIN_BUFFER_V2_PARAMS`
#[repr(C)]
#[derive(Default)]
struct PinV2Params {
    address: u64,
    size: u64,
    /// 0, or 1 to force a mapping over PCIe on coherent machines.
    flags: u32,
    _padding: u32,
    /// Written by the module.
    handle: u64,
}
const _: () = assert!(size_of::<PinV2Params>() == 32 && offset_of!(PinV2Params, handle) == 24);

/// `GDRDRV_IOC_UNPIN_BUFFER_PARAMS`
#[repr(C)]
#[derive(Default)]
struct UnpinParams {
    handle: u64,
}
const _: () = assert!(size_of::<UnpinParams>() == 8);

/// `GDRDRV_IOC_GET_CB_FLAG_PARAMS`
#[repr(C)]
#[derive(Default)]
struct CallbackFlagParams {
    handle: u64,
    /// Written by the module.
    flag: u32,
    _padding: u32,
}
const _: () = assert!(size_of::<CallbackFlagParams>() == 16 && offset_of!(CallbackFlagParams, flag) == 8);

/// `GDRDRV_IOC_GET_INFO_PARAMS`; all but the handle is written by the module.
#[repr(C)]
#[derive(Default)]
struct InfoParams {
    handle: u64,
    address: u64,
    mapped_size: u64,
    page_size: u32,
    tsc_khz: u32,
    tm_cycles: u64,
    mapped: u32,
    wc_mapping: u32,
}
const _: () = assert!(size_of::<InfoParams>() == 48 && offset_of!(InfoParams, wc_mapping) == 44);

/// `GDRDRV_IOC_GET_INFO_V2_PARAMS`; all but the handle is written by the module.
#[repr(C)]
#[derive(Default)]
struct InfoV2Params {
    handle: u64,
    address: u64,
    mapped_size: u64,
    page_size: u32,
    tsc_khz: u32,
    tm_cycles: u64,
    mapping_type: u32,
    _padding: u32,
}
const _: () = assert!(size_of::<InfoV2Params>() == 48 && offset_of!(InfoV2Params, mapping_type) == 40);

/// `GDRDRV_IOC_GET_VERSION_PARAMS`; written by the module.
#[repr(C)]
#[derive(Default)]
struct VersionParams {
    version: u32,
    oldest_user: u32,
}
const _: () = assert!(size_of::<VersionParams>() == 8);

/// What the module says about a pin.
pub(in crate::mapping) struct Info {
    /// The GPU's address of the first pinned byte.
    pub(in crate::mapping) address: u64,
    /// `gdr_mr_type_t`; 0 where it is not mapped.
    pub(in crate::mapping) mapping_type: u32,
}

/// Returns the module's version and the oldest version whose users it serves.
pub(in crate::mapping) fn versions(module: BorrowedFd<'_>) -> io::Result<(u32, u32)> {
    let mut params = VersionParams::default();
    // SAFETY: this call of gdrdrv writes a `VersionParams`; another driver behind the descriptor
    // does not know the number, which holds gdrdrv's own type.
    unsafe { call(module, VERSION, &mut params) }?;
    Ok((params.version, params.oldest_user))
}

/// Pins whole GPU pages and returns the pin's handle. For modules before 2.5.
pub(in crate::mapping) fn pin(module: BorrowedFd<'_>, address: u64, size: u64) -> io::Result<u64> {
    let mut params = PinParams { address, size, ..PinParams::default() };
    // SAFETY: the structure of this call; the descriptor is gdrdrv's, which `versions` made sure
    // of.
    unsafe { call(module, PIN, &mut params) }?;
    Ok(params.handle)
}

/// As [`pin`], for modules from 2.5 on.
pub(in crate::mapping) fn pin_v2(module: BorrowedFd<'_>, address: u64, size: u64) -> io::Result<u64> {
    let mut params = PinV2Params { address, size, ..PinV2Params::default() };
    // SAFETY: as in `pin`.
    unsafe { call(module, PIN_V2, &mut params) }?;
    Ok(params.handle)
}

pub(in crate::mapping) fn unpin(module: BorrowedFd<'_>, handle: u64) -> io::Result<()> {
    // SAFETY: as in `pin`; the module removes CPU mappings that are left, so the caller unmaps
    // before.
    unsafe { call(module, UNPIN, &mut UnpinParams { handle }) }
}

/// Returns whether the driver took the pinned memory back, and with it the mapping.
pub(in crate::mapping) fn is_revoked(module: BorrowedFd<'_>, handle: u64) -> io::Result<bool> {
    let mut params = CallbackFlagParams { handle, ..CallbackFlagParams::default() };
    // SAFETY: as in `pin`.
    unsafe { call(module, CALLBACK_FLAG, &mut params) }?;
    Ok(params.flag != 0)
}

/// Describes a pin. For modules before 2.4, which know two kinds of memory.
pub(in crate::mapping) fn info(module: BorrowedFd<'_>, handle: u64) -> io::Result<Info> {
    let mut params = InfoParams { handle, ..InfoParams::default() };
    // SAFETY: as in `pin`.
    unsafe { call(module, INFO, &mut params) }?;
    let mapping_type = match (params.mapped != 0, params.wc_mapping != 0) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => 2,
    };
    Ok(Info { address: params.address, mapping_type })
}

/// As [`info`], for modules from 2.4 on.
pub(in crate::mapping) fn info_v2(module: BorrowedFd<'_>, handle: u64) -> io::Result<Info> {
    let mut params = InfoV2Params { handle, ..InfoV2Params::default() };
    // SAFETY: as in `pin`.
    unsafe { call(module, INFO_V2, &mut params) }?;
    Ok(Info { address: params.address, mapping_type: params.mapping_type })
}

/// # Safety
/// `request` reads and writes at most a `T` at its argument.
unsafe fn call<T>(module: BorrowedFd<'_>, request: libc::Ioctl, params: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise; `params` is a whole `T`, ours for the call.
    let result = unsafe { libc::ioctl(module.as_raw_fd(), request, std::ptr::from_mut(params)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that the header's macros give on a 64-bit machine (a C program printed them).
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn numbers_are_those_of_the_header() {
        let numbers = [PIN, UNPIN, CALLBACK_FLAG, INFO, INFO_V2, PIN_V2, VERSION];
        let expected: [u32; 7] =
            [0xc028_da01, 0xc008_da02, 0xc008_da03, 0xc008_da04, 0xc008_da05, 0xc020_da07, 0xc008_daff];
        assert_eq!(numbers, expected.map(|number| number as libc::Ioctl));
    }
}
