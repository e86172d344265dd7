//! Host memory made visible to a GPU.

#![allow(unsafe_code, reason = "registers a mapping with the driver")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use gpunet_region::{Pages, PinnedRegion, RegionError};

use crate::agent::Release;
use crate::device::Device;
use crate::driver::CudaError;

/// Keeps a region pinned and visible to a device's kernels.
///
/// Clones share it. It registers a mapping of its own, not the region's: so the same region can be
/// registered with any number of devices and contexts of a process, in any order of drops (the
/// driver accepts a range of addresses only once). The last drop returns at once; the memory is
/// unregistered and unmapped when no launch of the device runs.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
/// use gpunet_region::PinnedRegion;
///
/// let gpu = Cuda::load()?.device(0)?;
/// let registration = gpu.register(PinnedRegion::create("rings", 1 << 20)?)?;
/// println!("kernels see the region at {:#x}", registration.device_ptr());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Registration {
    inner: Arc<RegistrationInner>,
}

#[derive(Debug)]
struct RegistrationInner {
    device: Device,
    region: Arc<PinnedRegion>,
    address: u64,
    mapping: ManuallyDrop<Pages>,
}

impl Drop for RegistrationInner {
    fn drop(&mut self) {
        // SAFETY: the field is taken once, here, and not used again.
        let mapping = unsafe { ManuallyDrop::take(&mut self.mapping) };
        self.device.agent().release(Release::Registration(ManuallyDrop::new(mapping)));
    }
}

/// Why a region could not be registered.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::RegisterError;
/// use gpunet_region::PinnedRegion;
///
/// # let gpu = gpunet_cuda::Cuda::load()?.device(0)?;
/// match gpu.register(PinnedRegion::create("rings", 1 << 30)?) {
///     Err(RegisterError::Cuda(error)) => println!("the memory cannot be pinned: {error}"),
///     registered => drop(registered?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The region could not be mapped a second time.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The driver refused.
    #[error(transparent)]
    Cuda(#[from] CudaError),
}

impl Device {
    /// Pins a region and makes it visible to kernels, at [`Registration::device_ptr`].
    ///
    /// # Errors
    /// [`RegisterError::Region`]: no address space for a further mapping. [`RegisterError::Cuda`]:
    /// the memory cannot be pinned.
    pub fn register(&self, region: Arc<PinnedRegion>) -> Result<Registration, RegisterError> {
        let mapping = region.map_again()?;
        let (mapping, registered) = self.agent().run(move |context| {
            let driver = context.driver();
            // SAFETY: the mapping is ours, and is unmapped only after unregistering
            // (`Release::Registration`), or right here after a failure, when it is not registered.
            let registered = unsafe { driver.host_register(mapping.base(), mapping.len()) };
            if let Err(error) = registered {
                return (ManuallyDrop::new(mapping), Err((error, false)));
            }
            let address = driver.host_device_pointer(mapping.base()).map_err(|error| (error, true));
            (ManuallyDrop::new(mapping), address)
        })?;
        match registered {
            Ok(address) => {
                let inner = RegistrationInner { device: self.clone(), region, address, mapping };
                Ok(Registration { inner: Arc::new(inner) })
            }
            Err((error, pinned)) => {
                if pinned {
                    self.agent().release(Release::Registration(mapping));
                } else {
                    drop(ManuallyDrop::into_inner(mapping));
                }
                Err(error.into())
            }
        }
    }
}

impl Registration {
    /// Returns the address at which kernels of the device see the region's first byte.
    pub fn device_ptr(&self) -> u64 {
        self.inner.address
    }

    /// Returns the region.
    pub fn region(&self) -> &Arc<PinnedRegion> {
        &self.inner.region
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }
}
