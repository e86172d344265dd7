//! A device as librdmacm opened it.

use std::ffi::c_char;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::super::DeviceInfo;
use super::cm::Id;
use super::error::{check_code, errno};
use super::ffi::numbers::{NODE_RNIC, TRANSPORT_IWARP};
use super::ffi::{self, Library};

/// A device's context, shared by everything on that device.
pub(super) struct Context {
    pub(super) library: &'static Library,
    raw: NonNull<ffi::Context>,
    pub(super) info: DeviceInfo,
    /// Keeps librdmacm from closing the context under cached registrations when the device leaves
    /// the machine and no connection uses it. Not counted: it is no connection's.
    _anchor: Id,
}

// SAFETY: libibverbs is thread-safe; the context is closed by librdmacm alone, after the anchor is
// gone.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The device of an identifier whose address is resolved.
    pub(super) fn of(id: &Id) -> io::Result<Self> {
        let raw = id.context().ok_or_else(|| errno(libc::ENODEV))?;
        let mut anchor = Id::new(id.library, None)?;
        let mut own = id.local();
        own.set_port(0);
        anchor.bind(own)?;
        // SAFETY: `id` has a device, so the context is open.
        let info = unsafe { device_info(id.library, raw) }?;
        Ok(Self { library: id.library, raw, info, _anchor: anchor })
    }

    pub(super) fn as_ptr(&self) -> *mut ffi::Context {
        self.raw.as_ptr()
    }

    /// The calls of its provider.
    pub(super) fn ops(&self) -> io::Result<&ffi::ContextOps> {
        // SAFETY: open as long as the anchor lives; the provider sets the operations before it
        // hands the context out.
        Ok(unsafe { &self.raw.as_ref().ops })
    }
}

/// # Safety
/// The context is open.
pub(super) unsafe fn device_info(
    library: &Library,
    context: NonNull<ffi::Context>,
) -> io::Result<DeviceInfo> {
    // SAFETY: the caller's promise.
    let attributes = unsafe { query(library, context) }?;
    // SAFETY: an open context has a device.
    let device = unsafe { &*(*context.as_ptr()).device };
    Ok(DeviceInfo {
        name: text(&device.name),
        iwarp: is_iwarp(device),
        max_depth: attributes.max_qp_wr.unsigned_abs(),
    })
}

/// # Safety
/// The context is open.
pub(super) unsafe fn query(library: &Library, context: NonNull<ffi::Context>) -> io::Result<ffi::DeviceAttr> {
    let mut attributes = MaybeUninit::<ffi::DeviceAttr>::zeroed();
    // SAFETY: an open context (the caller's promise) and room for the attributes.
    check_code(unsafe { (library.query_device)(context.as_ptr(), attributes.as_mut_ptr()) })?;
    // SAFETY: plain integers, zero or written.
    Ok(unsafe { attributes.assume_init() })
}

pub(super) fn is_iwarp(device: &ffi::Device) -> bool {
    device.transport_type == TRANSPORT_IWARP || device.node_type == NODE_RNIC
}

/// The text of a NUL-terminated array.
pub(super) fn text(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
