//! The driver's plain types: results, numbers and handles.

use std::ffi::{c_int, c_uint, c_void};

/// What each call returns.
pub(in crate::cuda) type CUresult = c_uint;
pub(in crate::cuda) type CUdevice = c_int;
pub(in crate::cuda) type CUdeviceptr = u64;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(in crate::cuda) struct $name(pub(in crate::cuda) *mut c_void);

        // SAFETY: an opaque token of the driver, which takes it on any thread; it is never dereferenced here.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            pub(in crate::cuda) const NULL: Self = Self(std::ptr::null_mut());
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
