//! A kernel that was looked up, and what it needs.

#![allow(unsafe_code, reason = "asks about a function of a loaded module")]

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::sync::{Arc, OnceLock};

use super::module::{Module, c_name};
use crate::agent::Context;
use crate::device::Device;
use crate::driver::raw::constants::{
    FUNC_LOCAL_SIZE_BYTES, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, FUNC_MAX_THREADS_PER_BLOCK, FUNC_NUM_REGS,
    FUNC_SHARED_SIZE_BYTES,
};
use crate::driver::raw::{FunctionHandle, ModuleHandle};
use crate::driver::{CudaError, Driver, SymbolError, SymbolKind};

/// A kernel of a loaded module. It keeps the module loaded.
///
/// # Examples
/// ```no_run
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// # let module = gpu.load_module(&std::fs::read_to_string("kernel.ptx")?)?;
/// let function = module.function("echo")?;
/// let blocks = function.occupancy(256, 0)? * gpu.multiprocessors();
/// println!("{} registers; {blocks} blocks of 256 threads at a time", function.attributes().registers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Function {
    inner: Arc<FunctionInner>,
}

struct FunctionInner {
    module: Module,
    handle: FunctionHandle,
    name: String,
    attributes: FunctionAttributes,
    /// The sizes of as many parameters as were asked about first.
    parameters: OnceLock<(usize, Option<Vec<usize>>)>,
}

impl FunctionInner {
    fn new(module: Module, handle: FunctionHandle, name: &str, attributes: FunctionAttributes) -> Self {
        Self { module, handle, name: name.to_owned(), attributes, parameters: OnceLock::new() }
    }
}

/// What the compiler decided about a kernel.
///
/// # Examples
/// ```no_run
/// # fn show(function: &gpunet_cuda::Function) {
/// let attributes = function.attributes();
/// println!("{} registers, {} bytes of local memory", attributes.registers, attributes.local_bytes);
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionAttributes {
    /// Registers per thread.
    pub registers: u32,
    /// The largest block that it can be launched with.
    pub max_threads_per_block: u32,
    /// Shared memory that it declares itself, in bytes per block.
    pub static_shared_bytes: u32,
    /// Local memory (spilled registers, arrays), in bytes per thread.
    pub local_bytes: u32,
}

impl Module {
    /// Looks a kernel up. Where the driver is older than 12.4, its code is loaded and its local
    /// memory set aside now, for which the driver may wait for running kernels; newer ones have
    /// done that with the module.
    ///
    /// # Errors
    /// [`SymbolError`] if the module has no kernel of that name, or its code cannot be loaded.
    pub fn function(&self, name: &str) -> Result<Function, SymbolError> {
        let kind = SymbolKind::Function;
        let (module, c_name) = (self.handle(), c_name(kind, name)?);
        let found = self.device().agent().run(move |context| look_up(context, module, &c_name));
        let (handle, attributes) = found.and_then(|found| found).map_err(|source| SymbolError {
            kind,
            name: name.to_owned(),
            source,
        })?;
        Ok(Function { inner: Arc::new(FunctionInner::new(self.clone(), handle, name, attributes)) })
    }
}

type Found = (FunctionHandle, FunctionAttributes);

impl Function {
    /// A kernel whose module somebody else holds.
    pub(crate) fn borrowed(module: Module, handle: FunctionHandle, name: &str) -> Result<Self, CudaError> {
        let attributes = module.device().agent().run(move |context| prepare(context, handle))??;
        Ok(Self { inner: Arc::new(FunctionInner::new(module, handle, name, attributes)) })
    }
}

/// Runs on the agent while the caller holds the module.
fn look_up(context: &mut Context, module: ModuleHandle, name: &CString) -> Result<Found, CudaError> {
    // SAFETY: the caller holds the module.
    let handle = unsafe { context.driver().module_function(module, name) }?;
    Ok((handle, prepare(context, handle)?))
}

/// Loads a kernel's code and sets its local memory aside. Runs on the agent while the caller holds
/// the module.
fn prepare(context: &mut Context, handle: FunctionHandle) -> Result<FunctionAttributes, CudaError> {
    let driver = context.driver();
    // SAFETY: of a module that the caller holds.
    let local_bytes = unsafe { load_function(driver, handle) }?;
    // SAFETY: as above.
    let attribute = |number| unsafe { driver.function_attribute(handle, number) };
    let attributes = FunctionAttributes {
        registers: attribute(FUNC_NUM_REGS)?,
        max_threads_per_block: attribute(FUNC_MAX_THREADS_PER_BLOCK)?,
        static_shared_bytes: attribute(FUNC_SHARED_SIZE_BYTES)?,
        local_bytes,
    };
    context.set_local_memory_aside(local_bytes);
    Ok(attributes)
}

/// Loads a kernel's code, if the driver has put that off, and returns its local memory in bytes per
/// thread.
///
/// # Safety
/// `function` belongs to a loaded module.
pub(crate) unsafe fn load_function(driver: &Driver, function: FunctionHandle) -> Result<u32, CudaError> {
    // SAFETY: the caller's promise.
    unsafe { driver.function_load(function) }?;
    // SAFETY: as above.
    unsafe { driver.function_attribute(function, FUNC_LOCAL_SIZE_BYTES) }
}

impl Function {
    /// Returns the kernel's name in the module.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the module that the kernel is in.
    pub fn module(&self) -> &Module {
        &self.inner.module
    }

    /// Returns the device that the kernel runs on.
    pub fn device(&self) -> &Device {
        self.inner.module.device()
    }

    /// Returns what the compiler decided about the kernel.
    pub fn attributes(&self) -> FunctionAttributes {
        self.inner.attributes
    }

    /// Returns how many blocks of `threads` threads and `dynamic_shared_bytes` fit on one
    /// multiprocessor at a time; 0 if not even one.
    ///
    /// # Errors
    /// [`CudaError`]: the shared memory is more than the device has, or a kernel broke the context.
    pub fn occupancy(&self, threads: u32, dynamic_shared_bytes: u32) -> Result<u32, CudaError> {
        let function = self.handle();
        // `self` holds the module and waits for the job.
        self.device()
            .agent()
            .run(move |context| occupancy(context, function, threads, dynamic_shared_bytes))?
    }

    pub(crate) fn handle(&self) -> FunctionHandle {
        self.inner.handle
    }

    /// Returns the sizes of the first `count` parameters; `None` where the driver cannot tell
    /// (before 12.4). The driver is asked once, because a launch that waits for the agent's answer
    /// takes four times as long.
    pub(crate) fn parameters(&self, count: usize) -> Option<Cow<'_, [usize]>> {
        let (asked, sizes) = self.inner.parameters.get_or_init(|| (count, self.ask_parameters(count)));
        if *asked == count {
            sizes.as_deref().map(Cow::Borrowed)
        } else {
            self.ask_parameters(count).map(Cow::Owned)
        }
    }

    fn ask_parameters(&self, count: usize) -> Option<Vec<usize>> {
        let function = self.handle();
        let device = self.device().clone();
        let sizes = device.agent().run(move |context| {
            // SAFETY: the caller holds the module through `self` while it waits for the agent.
            unsafe { context.driver().function_parameters(function, count) }
        });
        sizes.ok()?
    }
}

/// Runs on the agent while the caller holds the function.
pub(crate) fn occupancy(
    context: &Context,
    function: FunctionHandle,
    threads: u32,
    shared_bytes: u32,
) -> Result<u32, CudaError> {
    let driver = context.driver();
    // SAFETY: the caller holds the function.
    let allowed = unsafe { driver.function_attribute(function, FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES) }?;
    // 48 KiB less the static part until more is asked for. Only ever raised: another launch may
    // count on it.
    if shared_bytes > allowed {
        // SAFETY: as above.
        unsafe { driver.allow_dynamic_shared(function, shared_bytes) }?;
    }
    // SAFETY: as above.
    unsafe { driver.blocks_per_sm(function, threads, shared_bytes) }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Function")
            .field("name", &self.inner.name)
            .field("attributes", &self.inner.attributes)
            .finish_non_exhaustive()
    }
}
