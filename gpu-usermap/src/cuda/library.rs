//! The loaded and initialised driver.

use std::ffi::CStr;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::device::{Device, DeviceRegistry};
use super::driver::Driver;
use super::environment::{self, LazyLoading};
use super::error::{CudaError, Unavailable};
use super::raw::Api;

/// The names under which Linux distributions and containers install the driver library.
const LIBRARY_NAMES: &[&CStr] = &[c"libcuda.so.1", c"libcuda.so"];

/// Is the CUDA driver of this process, loaded and initialised.
#[derive(Clone)]
pub struct Cuda {
    inner: Arc<CudaInner>,
}

struct CudaInner {
    driver: Driver,
    version: DriverVersion,
    loading: LazyLoading,
    devices: Mutex<DeviceRegistry>,
}

impl Cuda {
    /// Opens the driver library and initialises it; later calls return the same handle.
    ///
    /// Before initialisation it asks the driver for eager module loading, where that can be done safely ([`LazyLoading`]).
    /// No context is created and no memory of a GPU is used. After a failure the next call tries again.
    ///
    /// # Errors
    /// [`Unavailable`] says what is missing: the library, a function in it, or a GPU that it can drive.
    pub fn load() -> Result<Self, Unavailable> {
        static LOADED: OnceLock<Cuda> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());

        if let Some(cuda) = LOADED.get() {
            return Ok(cuda.clone());
        }
        // The lock guards no data, so a panic under it left nothing half done.
        let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cuda) = LOADED.get() {
            return Ok(cuda.clone());
        }
        let cuda = Self::open()?;
        Ok(LOADED.get_or_init(|| cuda).clone())
    }

    /// Wraps a driver that is not the machine's.
    #[cfg(test)]
    pub(super) fn over(driver: Driver, version: DriverVersion) -> Self {
        let (loading, devices) = (LazyLoading::Off, Mutex::default());
        Self { inner: Arc::new(CudaInner { driver, version, loading, devices }) }
    }

    fn open() -> Result<Self, Unavailable> {
        // The library is opened first: without it the environment stays as it was.
        let driver = Driver::new(Api::open(LIBRARY_NAMES)?);
        let eager_asked = environment::ask_for_eager_loading();
        let version = driver.version().ok();
        driver.init().map_err(|error| Unavailable::Init { code: error.code, name: error.name, version })?;
        let version = version.unwrap_or(DriverVersion(0));
        let loading = environment::outcome(eager_asked, driver.loading_is_lazy());
        let devices = Mutex::new(DeviceRegistry::default());
        Ok(Self { inner: Arc::new(CudaInner { driver, version, loading, devices }) })
    }

    /// Returns the newest CUDA version that the driver supports.
    pub fn driver_version(&self) -> DriverVersion {
        self.inner.version
    }

    /// Tells whether code is loaded eagerly, and if not, why.
    pub fn lazy_loading(&self) -> LazyLoading {
        self.inner.loading
    }

    /// Returns the number of GPUs that this process may use (`CUDA_VISIBLE_DEVICES` applies).
    ///
    /// # Errors
    /// [`CudaError`] of `cuDeviceGetCount`.
    pub fn device_count(&self) -> Result<u32, CudaError> {
        self.driver().device_count()
    }

    /// Opens GPU `ordinal`: retains its primary context and starts its agent thread.
    ///
    /// While a handle to that GPU lives, further calls return the same device with the same agent, so that every part of a
    /// program agrees on which launches are running. Open devices before any kernel waits for the host.
    ///
    /// # Errors
    /// [`CudaError`] of the failed call: no such device, no memory for a context, a device in exclusive use.
    pub fn device(&self, ordinal: u32) -> Result<Device, CudaError> {
        // A panic while the lock was held left at worst an entry that no longer upgrades, which is the normal state of a dropped device.
        let mut devices = self.inner.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.open(self, ordinal)
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.inner.driver
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("version", &self.inner.version)
            .field("loading", &self.inner.loading)
            .finish_non_exhaustive()
    }
}

/// Is a CUDA version as the driver counts it: 1000 × major + 10 × minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion(pub u32);

impl DriverVersion {
    /// Makes a version from its two parts.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self(major * 1000 + minor * 10)
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0 / 1000, self.0 % 1000 / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_and_compare_as_people_write_them() {
        assert_eq!(DriverVersion(13000).to_string(), "13.0");
        assert_eq!(DriverVersion(12080).to_string(), "12.8");
        assert!(DriverVersion::new(13, 3) > DriverVersion(13000));
    }
}
