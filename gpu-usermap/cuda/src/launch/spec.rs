//! What is to be launched.

#![allow(unsafe_code, reason = "kernel parameters are unchecked memory")]

use crate::code::Function;

/// One kernel to launch.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{LaunchSpec, param};
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// # let module = gpu.load_module(&std::fs::read_to_string("kernel.ptx")?)?;
/// let spec = LaunchSpec {
///     function: module.function("echo")?,
///     grid: (132, 1, 1),
///     block: (256, 1, 1),
///     shared_bytes: 0,
///     // SAFETY: an integer has no padding.
///     params: vec![unsafe { param(7777_u32) }],
/// };
/// assert_eq!((spec.blocks(), spec.threads()), (132, 256));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LaunchSpec {
    /// The kernel.
    pub function: Function,
    /// Blocks in x, y and z; none may be 0.
    pub grid: (u32, u32, u32),
    /// Threads of a block in x, y and z; none may be 0.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory in bytes per block. More than the 48 KiB that every kernel may use is
    /// asked for.
    pub shared_bytes: u32,
    /// The bytes of each parameter, in order: see [`param`].
    pub params: Vec<Vec<u8>>,
}

impl LaunchSpec {
    /// Returns the number of blocks.
    pub fn blocks(&self) -> u64 {
        // Saturating: three u32 can exceed a u64, and no GPU runs that many blocks.
        u64::from(self.grid.0).saturating_mul(self.grid.1.into()).saturating_mul(self.grid.2.into())
    }

    /// Returns the number of threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.0.saturating_mul(self.block.1).saturating_mul(self.block.2)
    }
}

/// Copies the bytes of a kernel parameter.
///
/// # Safety
/// `T` has no padding (its bytes are all initialised) and is laid out as the kernel's parameter is:
/// an integer, a device address as `u64`, or a `#[repr(C)]` structure that both sides compile.
///
/// # Examples
/// ```
/// // SAFETY: an integer has no padding.
/// let bytes = unsafe { gpunet_cuda::param(7_u64) };
/// assert_eq!(bytes, 7_u64.to_ne_bytes());
/// ```
pub unsafe fn param<T: Copy>(value: T) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<T>()];
    // SAFETY: source and destination are size_of::<T>() bytes, distinct; the caller promises that
    // the source has no padding.
    unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping((&raw const value).cast(), size_of::<T>()) };
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_its_bytes() {
        // SAFETY: integers have no padding.
        assert_eq!(unsafe { param(0x0102_0304_u32) }, 0x0102_0304_u32.to_ne_bytes());
        // SAFETY: an array of integers has none either.
        assert_eq!(unsafe { param([1_u8, 2, 3]) }, [1, 2, 3]);
    }
}
