//! The loaded and initialised driver.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::calls::Driver;
use super::environment::{self, LazyLoading, StreamSettings};
use super::error::{CudaError, Unavailable};
use super::raw::Api;
use super::registry::Registry;
use super::version::DriverVersion;

/// The names under which Linux distributions and containers install the driver library.
const LIBRARY_NAMES: &[&str] = &["libcuda.so.1", "libcuda.so"];

/// The CUDA driver of this process, loaded and initialised.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::Cuda;
///
/// let cuda = Cuda::load()?;
/// println!("CUDA {}, {} GPUs", cuda.driver_version(), cuda.device_count()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cuda {
    inner: Arc<CudaInner>,
}

struct CudaInner {
    driver: Driver,
    version: DriverVersion,
    loading: LazyLoading,
    stream_settings: StreamSettings,
    devices: Mutex<Registry>,
}

impl Cuda {
    /// Opens the driver library and initialises it; later calls return the same handle.
    ///
    /// Before initialisation it asks the driver for eager module loading, where that can be done
    /// safely ([`LazyLoading`]), and for 32 connections of streams, unless
    /// `CUDA_DEVICE_MAX_CONNECTIONS` is set. No context is created and no memory of a GPU is used.
    /// After a failure the next call tries again.
    ///
    /// # Errors
    /// [`Unavailable`] says what is missing: the library, a function in it, or a GPU that it can
    /// drive.
    ///
    /// # Examples
    /// ```
    /// use gpunet_cuda::{Cuda, Unavailable};
    ///
    /// match Cuda::load() {
    ///     Ok(cuda) => println!("CUDA {}", cuda.driver_version()),
    ///     Err(Unavailable::Library { reason }) => println!("no driver is installed: {reason}"),
    ///     Err(other) => println!("{other}"),
    /// }
    /// ```
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
    #[cfg(any(test, feature = "fake"))]
    pub(crate) fn over(driver: Driver, version: DriverVersion, stream_settings: StreamSettings) -> Self {
        let (loading, devices) = (LazyLoading::Off, Mutex::default());
        Self { inner: Arc::new(CudaInner { driver, version, loading, stream_settings, devices }) }
    }

    fn open() -> Result<Self, Unavailable> {
        // The library is opened first: without it the environment stays as it was.
        let driver = Driver::new(Api::open(LIBRARY_NAMES)?);
        let eager_asked = environment::ask_for_eager_loading();
        environment::ask_for_connections();
        let stream_settings = StreamSettings::from_environment();
        let version = driver.version().ok();
        driver.init().map_err(|error| Unavailable::Init { code: error.code, name: error.name, version })?;
        let version = version.unwrap_or(DriverVersion(0));
        let loading = environment::outcome(eager_asked, driver.loading_is_lazy());
        let devices = Mutex::new(Registry::default());
        Ok(Self { inner: Arc::new(CudaInner { driver, version, loading, stream_settings, devices }) })
    }

    /// Returns the newest CUDA version that the driver supports.
    pub fn driver_version(&self) -> DriverVersion {
        self.inner.version
    }

    /// Returns whether code is loaded eagerly, and if not, why.
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

    pub(crate) fn driver(&self) -> &Driver {
        &self.inner.driver
    }

    pub(crate) fn stream_settings(&self) -> StreamSettings {
        self.inner.stream_settings
    }

    /// The devices that were opened.
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        // A panic under the lock left at worst an entry that no longer upgrades, which is the
        // normal state of a dropped device.
        self.inner.devices.lock().unwrap_or_else(PoisonError::into_inner)
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
