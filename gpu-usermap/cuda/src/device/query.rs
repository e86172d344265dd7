//! What is known of a GPU before anything is made on it.

use super::attribute::DeviceAttribute;
use crate::driver::raw::{CUdevice, constants};
use crate::driver::{Cuda, CudaError};

/// Reads facts of a GPU before any context exists: it opens nothing and uses no memory of the GPU.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, DeviceQuery};
///
/// let cuda = Cuda::load()?;
/// for ordinal in 0..cuda.device_count()? {
///     println!("{}", DeviceQuery::new(&cuda, ordinal)?.name()?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeviceQuery<'a> {
    cuda: &'a Cuda,
    device: CUdevice,
}

impl<'a> DeviceQuery<'a> {
    /// Asks about GPU `ordinal`, as [`Cuda::device`] counts.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call.
    pub fn new(cuda: &'a Cuda, ordinal: u32) -> Result<Self, CudaError> {
        Ok(Self { cuda, device: cuda.driver().device_get(ordinal)? })
    }

    /// Returns the product name.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call.
    pub fn name(&self) -> Result<String, CudaError> {
        self.cuda.driver().device_name(self.device)
    }

    /// Returns the memory in bytes.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call.
    pub fn total_memory(&self) -> Result<usize, CudaError> {
        self.cuda.driver().device_total_memory(self.device)
    }

    /// Returns an attribute.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call.
    pub fn attribute(&self, attribute: DeviceAttribute) -> Result<i32, CudaError> {
        self.cuda.driver().device_attribute(self.device, attribute.number())
    }

    /// Returns major and minor compute capability.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call.
    pub fn compute_capability(&self) -> Result<(u32, u32), CudaError> {
        let part = |number| self.attribute(DeviceAttribute::Other(number)).map(i32::unsigned_abs);
        Ok((
            part(constants::DEVICE_COMPUTE_CAPABILITY_MAJOR)?,
            part(constants::DEVICE_COMPUTE_CAPABILITY_MINOR)?,
        ))
    }
}
