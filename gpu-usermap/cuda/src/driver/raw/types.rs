//! The driver's plain types: results, numbers and handles.

use std::ffi::{c_int, c_uint, c_void};

/// What each call returns.
pub(crate) type CUresult = c_uint;
pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;

/// `CUipcMemHandle`: names an allocation for other processes.
///
/// # Examples
/// ```
/// assert_eq!(size_of::<gpunet_cuda::IpcHandle>(), 64);
/// ```
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpcHandle(pub [u8; 64]);

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) *mut c_void);

        // SAFETY: an opaque token of the driver, which takes it on any thread; it is never
        // dereferenced here.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        }
    )*};
}

handles! {
    /// `CUcontext`
    ContextHandle
    /// `CUstream`
    StreamHandle
    /// `CUevent`
    EventHandle
    /// `CUmodule`
    ModuleHandle
    /// `CUfunction`
    FunctionHandle
    /// `CUlinkState`
    LinkHandle
}
