//! Calls for a program's own CUDA modules and kernels.

use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done};
use crate::memory;
use crate::token::gpunet_host_token_t;
use gpu_usermap::cuda::{CudaError, Device, LaunchSpec, Module};
use gpunet_proxy::Attachment;
use std::ffi::{c_char, c_int, c_void};

/// A kernel that is to run at the same time as others.
#[repr(C)]
pub struct gpunet_host_kernel {
    /// The kernel: a CUfunction, or a cudaFunction_t (cudaGetFuncBySymbol).
    pub function: *mut c_void,
    /// Its name, for messages; may be NULL.
    pub name: *const c_char,
    /// How many thread blocks it has.
    pub blocks: u64,
    /// How many threads a block has.
    pub threads: u32,
    /// Dynamic shared memory, bytes per block.
    pub shared_bytes: u32,
}

fn device(attachment: &Attachment) -> Result<&Device, Failure> {
    attachment.cuda().ok_or_else(|| Failure::new(libc::EOPNOTSUPP, "the CPU device has no CUDA modules"))
}

fn not_null(pointer: *mut c_void, what: &str) -> Result<(), Failure> {
    if pointer.is_null() { Err(Failure::new(libc::EINVAL, format!("{what} is null"))) } else { Ok(()) }
}

/// Writes the token's net value to the variable gpunet_attachment of the module that `found` names.
fn bind(
    token: *const gpunet_host_token_t,
    (found, what): (*mut c_void, &str),
    module: impl FnOnce(&Device) -> Result<Module, CudaError>,
) -> Result<(), Failure> {
    let object = gpunet_host_token_t::of(token)?;
    not_null(found, what)?;
    object.with(|token| {
        object.attachment.with(|attachment| Ok(attachment.bind(&module(device(attachment)?)?, token)?))
    })
}

/// Points a module's calls under GPUnet's names (gsend and its like) at the launch's sockets:
/// writes the token's net value to the module's variable gpunet_attachment. `module` is a CUmodule
/// of the attachment's context. Calls with an explicit net (gpunet_send and its like) need none of
/// this. Do it between launches of the module's kernels.
///
/// Errors: -EBADF; -EINVAL for a NULL module; -EOPNOTSUPP on the CPU device; -EIO when the module
/// has no such variable, or with CUDA's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_bind_module(
    token: *const gpunet_host_token_t,
    module: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: a loaded module of the attachment's context, during this call: the caller's
        // promise.
        bind(token, (module, "the module"), |device| Ok(unsafe { device.borrow_module(module) }))
    })
}

/// As gpunet_host_bind_module, for the module that a kernel is in, where the program has no
/// CUmodule: kernels that nvcc linked into it. `function` is a cudaFunction_t (cudaGetFuncBySymbol)
/// or a CUfunction.
///
/// Errors: as gpunet_host_bind_module; -EIO also with a driver before CUDA 11.0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_bind_kernel(
    token: *const gpunet_host_token_t,
    function: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: a kernel of the attachment's context, whose module stays loaded during this call:
        // the caller's promise.
        bind(token, (function, "the function"), |device| unsafe { device.borrow_module_of(function) })
    })
}

/// Checks that `count` kernels fit on the attachment's GPU at the same time. Kernels that wait for
/// each other must fit. It also loads their code, so call it before the first of them runs. The
/// kernels that run already are not counted, because the program launched them. On the CPU device
/// everything fits.
///
/// Errors: -EBADF; -EFAULT; -EINVAL; -ENOSPC when they do not fit: the reason says how many blocks
/// would; -EIO with CUDA's error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_check_co_resident(
    attachment: *const gpunet_host_attachment_t,
    kernels: *const gpunet_host_kernel,
    count: usize,
) -> c_int {
    done(|| {
        let object = gpunet_host_attachment_t::of(attachment)?;
        let kernels = memory::slice(kernels, count)?;
        object.with(|attachment| {
            let Some(device) = attachment.cuda() else { return Ok(()) };
            let spec = |kernel: &gpunet_host_kernel| {
                not_null(kernel.function, "a kernel's function")?;
                let name = memory::text(kernel.name, "a kernel's name")?.unwrap_or("(unnamed)");
                // SAFETY: a kernel of the attachment's context, whose module stays loaded during
                // this call: the caller's promise.
                let function = unsafe { device.borrow_function(kernel.function, name) }?;
                let blocks = u32::try_from(kernel.blocks).unwrap_or(u32::MAX);
                let (grid, block) = ((blocks, 1, 1), (kernel.threads, 1, 1));
                Ok(LaunchSpec {
                    function,
                    grid,
                    block,
                    shared_bytes: kernel.shared_bytes,
                    params: Vec::new(),
                })
            };
            let specs = kernels.iter().map(spec).collect::<Result<Vec<_>, Failure>>()?;
            Ok(device.check_co_resident(&specs)?)
        })
    })
}
