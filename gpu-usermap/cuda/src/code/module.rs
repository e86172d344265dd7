//! A loaded module and the names in it.

#![allow(unsafe_code, reason = "looks names up in a loaded module")]

use std::ffi::CString;
use std::sync::Arc;

use crate::agent::{Release, check_bounds};
use crate::device::Device;
use crate::driver::raw::ModuleHandle;
use crate::driver::raw::constants::ERROR_NOT_FOUND;
use crate::driver::{CopyError, CudaError, SymbolError, SymbolKind};

/// Code that is loaded on a device.
///
/// Clones share it. The last drop returns at once; the code is unloaded when no launch of the
/// device runs.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let module = gpu.load_module(&std::fs::read_to_string("kernel.ptx")?)?;
/// gpu.write_symbol(&module, "limit", &64_u32.to_ne_bytes())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Module {
    inner: Arc<ModuleInner>,
}

#[derive(Debug)]
struct ModuleInner {
    device: Device,
    handle: ModuleHandle,
    /// Whether the last drop unloads it.
    owned: bool,
}

impl Drop for ModuleInner {
    fn drop(&mut self) {
        if self.owned {
            self.device.agent().release(Release::Module(self.handle));
        }
    }
}

impl Module {
    pub(crate) fn new(device: Device, handle: ModuleHandle) -> Self {
        Self { inner: Arc::new(ModuleInner { device, handle, owned: true }) }
    }

    /// A module that somebody else unloads.
    pub(crate) fn borrowed(device: Device, handle: ModuleHandle) -> Self {
        Self { inner: Arc::new(ModuleInner { device, handle, owned: false }) }
    }

    /// Returns the device that the code is loaded on.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Returns address and length of a global variable. Valid as long as the module lives.
    ///
    /// # Errors
    /// [`SymbolError`] if there is none of that name.
    pub fn global(&self, name: &str) -> Result<(u64, usize), SymbolError> {
        let kind = SymbolKind::Global;
        let (handle, c_name) = (self.handle(), c_name(kind, name)?);
        let found = self.device().agent().run(move |context| {
            // SAFETY: `self` keeps the module loaded, and waits for this job.
            unsafe { context.driver().module_global(handle, &c_name) }
        });
        found.and_then(|found| found).map_err(|source| SymbolError { kind, name: name.to_owned(), source })
    }

    pub(crate) fn handle(&self) -> ModuleHandle {
        self.inner.handle
    }
}

impl Device {
    /// Copies `bytes` to the start of a module's global variable.
    ///
    /// A running kernel may or may not see them; the next launch does.
    ///
    /// # Errors
    /// [`CopyError::Symbol`] if the module has no such global, [`CopyError::OutOfBounds`] if it is
    /// smaller than `bytes`, [`CopyError::OtherDevice`] if the module is loaded elsewhere.
    pub fn write_symbol(&self, module: &Module, name: &str, bytes: &[u8]) -> Result<(), CopyError> {
        if !self.is(module.device()) {
            return Err(CopyError::OtherDevice);
        }
        let (address, size) = module.global(name)?;
        check_bounds(0, bytes.len(), size)?;
        self.write_at(address, bytes)
    }
}

/// Converts a name for the driver. No symbol's name holds a NUL byte, so such a name is not found.
pub(crate) fn c_name(kind: SymbolKind, name: &str) -> Result<CString, SymbolError> {
    CString::new(name).map_err(|_| SymbolError {
        kind,
        name: name.to_owned(),
        source: CudaError {
            call: "looking a name up",
            code: ERROR_NOT_FOUND,
            name: "it holds a NUL byte".to_owned(),
        },
    })
}
