//! What others made in the device's context: launches, modules and kernels of a program that calls
//! CUDA itself.

#![allow(unsafe_code, reason = "takes handles of the driver from the caller")]

use std::ffi::c_void;

use crate::code::{Function, Module};
use crate::device::Device;
use crate::driver::CudaError;
use crate::driver::raw::{FunctionHandle, ModuleHandle};

/// Announces launches that the device does not make itself, for as long as the value lives.
///
/// The device cannot ask the driver about them, so meanwhile it gives nothing back: a release would
/// take memory from under their kernels, or wait for them.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// let announced = gpu.announce_launches()?;
/// // ... launch by other means, wait for the end ...
/// drop(announced);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the announcement ends when it is dropped"]
pub struct ForeignLaunches {
    device: Device,
}

impl Drop for ForeignLaunches {
    fn drop(&mut self) {
        self.device.agent().post(|context| context.launches.count_foreign(false));
    }
}

impl Device {
    /// Announces launches by other means than [`Device::launch`]. Returns when no release is in
    /// progress any more.
    ///
    /// # Errors
    /// [`CudaError`] when the agent has ended.
    pub fn announce_launches(&self) -> Result<ForeignLaunches, CudaError> {
        self.agent().run(|context| context.launches.count_foreign(true))?;
        Ok(ForeignLaunches { device: self.clone() })
    }

    /// Makes a module that the program has loaded usable here. It is not unloaded.
    ///
    /// # Safety
    /// `module` is a live `CUmodule` of this device's context, and stays loaded as long as the
    /// result and what is looked up in it are used.
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// # let module: *mut std::ffi::c_void = std::ptr::null_mut();
    /// // SAFETY: loaded by `cuModuleLoad`, and unloaded at the program's end.
    /// let module = unsafe { gpu.borrow_module(module) };
    /// gpu.write_symbol(&module, "limit", &64_u32.to_ne_bytes())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub unsafe fn borrow_module(&self, module: *mut c_void) -> Module {
        Module::borrowed(self.clone(), ModuleHandle(module))
    }

    /// As [`Device::borrow_module`], of the module that a kernel is in: the program that the CUDA
    /// runtime loads has no other name for it.
    ///
    /// # Errors
    /// [`CudaError`], when the driver does not know the kernel; `CUDA_ERROR_NOT_SUPPORTED` before
    /// CUDA 11.0.
    ///
    /// # Safety
    /// As [`Device::borrow_function`], for as long as the module is used.
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// # let function: *mut std::ffi::c_void = std::ptr::null_mut();
    /// // SAFETY: from `cudaGetFuncBySymbol`; the program's kernels stay loaded.
    /// let module = unsafe { gpu.borrow_module_of(function) }?;
    /// gpu.write_symbol(&module, "limit", &64_u32.to_ne_bytes())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn borrow_module_of(&self, function: *mut c_void) -> Result<Module, CudaError> {
        let function = FunctionHandle(function);
        // SAFETY: the caller's promise.
        let module =
            self.agent().run(move |context| unsafe { context.driver().function_module(function) })??;
        Ok(Module::borrowed(self.clone(), module))
    }

    /// Makes a kernel that the program has looked up usable here; `name` is for messages.
    ///
    /// As [`Module::function`] does for kernels of its own, this loads its code and sets its local
    /// memory aside: call it before kernels wait for the host.
    ///
    /// # Errors
    /// [`CudaError`], when the driver does not know the kernel, or cannot load its code.
    ///
    /// # Safety
    /// `function` is a `CUfunction` (or a `cudaFunction_t`) of this device's context, whose module
    /// stays loaded as long as the result is used.
    ///
    /// # Examples
    /// ```no_run
    /// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
    /// # let function: *mut std::ffi::c_void = std::ptr::null_mut();
    /// // SAFETY: from `cuModuleGetFunction`; its module stays loaded.
    /// let function = unsafe { gpu.borrow_function(function, "echo") }?;
    /// println!("{} registers", function.attributes().registers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn borrow_function(&self, function: *mut c_void, name: &str) -> Result<Function, CudaError> {
        // Who owns the module is the caller: nothing is asked of this one, and it is not unloaded.
        let module = Module::borrowed(self.clone(), ModuleHandle::NULL);
        Function::borrowed(module, FunctionHandle(function), name)
    }
}
