//! What this machine offers, as data, with the reason for everything that is not used. `display`
//! makes text of it.

mod display;

use gpunet_cuda::{
    Cuda, CudaError, DeviceAttribute, DeviceQuery, DriverVersion, LazyLoading, RdmaAttributes, Unavailable,
};

use crate::mapping::{Backend, backends_with};
use crate::placement::{Facts, System};

pub use gpunet_cuda::{FlushOptions, WritesOrdering};

/// Everything that [`probe()`] found. It prints one line per fact.
///
/// # Examples
/// ```
/// let probe = gpu_usermap::probe();
/// print!("{probe}");
/// for gpu in &probe.devices {
///     println!("GPU {} is a {} of {} bytes", gpu.ordinal, gpu.name, gpu.total_memory);
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// The CUDA driver, or why there is none.
    pub driver: Result<DriverInfo, Unavailable>,
    /// The GPUs that this process may use.
    pub devices: Vec<DeviceProbe>,
    /// GPUs that the driver lists and does not describe: ordinal and error.
    pub failed_devices: Vec<(u32, CudaError)>,
    /// Ways for the CPU to map GPU memory.
    pub cpu_mapping: Vec<Backend>,
    /// What the machine offers to RDMA.
    pub rdma: System,
}

impl Probe {
    /// Returns what the placement of rings on a GPU depends on, for
    /// [`placement::choose`](crate::placement::choose).
    ///
    /// # Examples
    /// ```
    /// use gpu_usermap::placement::{PlacementChoice, choose};
    ///
    /// let probe = gpu_usermap::probe();
    /// let placement = choose(&probe.facts(probe.devices.first()), PlacementChoice::Auto)?;
    /// println!("rings lie in {placement}");
    /// # Ok::<(), gpu_usermap::placement::PlacementRefused>(())
    /// ```
    pub fn facts(&self, device: Option<&DeviceProbe>) -> Facts {
        let gpu = device.map(DeviceProbe::rdma_attributes);
        Facts { gpu, system: self.rdma.clone(), card_takes_dmabuf: None }
    }
}

/// The CUDA driver.
///
/// # Examples
/// ```
/// use gpu_usermap::cuda::DriverVersion;
///
/// let probe = gpu_usermap::probe();
/// if probe.driver.is_ok_and(|driver| driver.version < DriverVersion::new(12, 4)) {
///     println!("look all kernels up before the first launch");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DriverInfo {
    /// The newest CUDA version that it supports.
    pub version: DriverVersion,
    /// Whether it loads code lazily.
    pub lazy_loading: LazyLoading,
}

/// A GPU. `None` means that the driver is older than the question.
///
/// # Examples
/// ```
/// for gpu in gpu_usermap::probe().devices {
///     println!("{} exports dma-bufs: {:?}", gpu.name, gpu.dma_buf_supported);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceProbe {
    /// The number under which it is opened.
    pub ordinal: u32,
    /// The product name.
    pub name: String,
    /// Major and minor compute capability.
    pub compute_capability: (u32, u32),
    /// The number of multiprocessors.
    pub multiprocessors: u32,
    /// Memory in bytes.
    pub total_memory: usize,
    /// Its address on the PCI bus.
    pub pci_address: Option<PciAddress>,
    /// Who may use it.
    pub compute_mode: Option<ComputeMode>,
    /// Whether a network card can reach memory of `cuMemAlloc`.
    pub gpu_direct_rdma_supported: Option<bool>,
    /// Whether a network card can reach memory of `cuMemCreate`.
    pub gpu_direct_rdma_with_cuda_vmm: Option<bool>,
    /// Whether GPU memory can be exported as a dma-buf.
    pub dma_buf_supported: Option<bool>,
    /// Who sees a network card's writes in order.
    pub writes_ordering: Option<WritesOrdering>,
    /// How a network card's writes can be flushed.
    pub flush_options: Option<FlushOptions>,
    /// Whether host memory can be registered.
    pub host_register_supported: Option<bool>,
    /// Whether registered host memory has the same address on the GPU.
    pub can_use_host_pointer_for_registered_mem: Option<bool>,
    /// Whether the virtual memory calls work.
    pub virtual_memory_management: Option<bool>,
    /// Whether memory of the virtual memory calls can be given to another process as a file
    /// descriptor.
    pub posix_file_descriptors: Option<bool>,
    /// Whether CPU and GPU can do atomic operations on each other's memory.
    pub host_native_atomic: Option<bool>,
}

/// A GPU's address on the PCI bus. It prints as `/sys/bus/pci/devices` spells it.
///
/// # Examples
/// ```
/// use gpu_usermap::probe::PciAddress;
///
/// let address = PciAddress { domain: 0, bus: 0x1b, device: 0 };
/// assert_eq!(address.to_string(), "0000:1b:00.0");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PciAddress {
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device; a GPU is its function 0.
    pub device: u32,
}

/// Who may use a GPU (`nvidia-smi -c`).
///
/// # Examples
/// ```
/// use gpu_usermap::probe::ComputeMode;
///
/// let usable = |mode| mode != Some(ComputeMode::Prohibited);
/// let gpus = gpu_usermap::probe().devices;
/// println!("{} GPUs can be used", gpus.iter().filter(|gpu| usable(gpu.compute_mode)).count());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any number of processes.
    Shared,
    /// One process at a time.
    Exclusive,
    /// Nobody.
    Prohibited,
    /// A value that this crate does not know.
    Unknown(i32),
}

impl DeviceProbe {
    /// Returns what the GPU offers to network cards, as one value.
    pub fn rdma_attributes(&self) -> RdmaAttributes {
        RdmaAttributes {
            gpu_direct: self.gpu_direct_rdma_supported,
            gpu_direct_with_vmm: self.gpu_direct_rdma_with_cuda_vmm,
            dma_buf: self.dma_buf_supported,
            writes_ordering: self.writes_ordering,
            flush_options: self.flush_options,
        }
    }
}

/// Finds out what the machine offers.
///
/// It initialises the driver where there is one ([`Cuda::load`]), creates no context, uses no GPU
/// memory, and never panics.
///
/// # Examples
/// ```
/// match gpu_usermap::probe().driver {
///     Ok(driver) => println!("CUDA {}", driver.version),
///     Err(missing) => println!("no CUDA: {missing}"),
/// }
/// ```
pub fn probe() -> Probe {
    let cuda = Cuda::load();
    let (mut devices, mut failed_devices) = (Vec::new(), Vec::new());
    if let Ok(cuda) = &cuda {
        // Without a count there are no devices to describe; the error stands for the first.
        match cuda.device_count() {
            Err(error) => failed_devices.push((0, error)),
            Ok(count) => (0..count).for_each(|ordinal| match probe_device(cuda, ordinal) {
                Ok(device) => devices.push(device),
                Err(error) => failed_devices.push((ordinal, error)),
            }),
        }
    }
    let cpu_mapping = backends_with(&cuda);
    let driver =
        cuda.map(|cuda| DriverInfo { version: cuda.driver_version(), lazy_loading: cuda.lazy_loading() });
    Probe { driver, devices, failed_devices, cpu_mapping, rdma: System::detect() }
}

fn probe_device(cuda: &Cuda, ordinal: u32) -> Result<DeviceProbe, CudaError> {
    let gpu = DeviceQuery::new(cuda, ordinal)?;
    let flag = |attribute| gpu.attribute(attribute).ok().map(|value| value != 0);
    let rdma = gpu.rdma_attributes();
    let number = |attribute| gpu.attribute(attribute).ok().map(i32::unsigned_abs);
    let pci_address = || {
        let (domain, bus) = (number(DeviceAttribute::PciDomain)?, number(DeviceAttribute::PciBus)?);
        Some(PciAddress { domain, bus, device: number(DeviceAttribute::PciDevice)? })
    };
    Ok(DeviceProbe {
        ordinal,
        name: gpu.name()?,
        compute_capability: gpu.compute_capability()?,
        multiprocessors: gpu.attribute(DeviceAttribute::Multiprocessors)?.unsigned_abs(),
        total_memory: gpu.total_memory()?,
        pci_address: pci_address(),
        compute_mode: gpu.attribute(DeviceAttribute::ComputeMode).ok().map(|mode| match mode {
            0 => ComputeMode::Shared,
            2 => ComputeMode::Prohibited,
            3 => ComputeMode::Exclusive,
            other => ComputeMode::Unknown(other),
        }),
        gpu_direct_rdma_supported: rdma.gpu_direct,
        gpu_direct_rdma_with_cuda_vmm: rdma.gpu_direct_with_vmm,
        dma_buf_supported: rdma.dma_buf,
        writes_ordering: rdma.writes_ordering,
        flush_options: rdma.flush_options,
        host_register_supported: flag(DeviceAttribute::HostRegister),
        can_use_host_pointer_for_registered_mem: flag(DeviceAttribute::CanUseHostPointerForRegisteredMem),
        virtual_memory_management: flag(DeviceAttribute::VirtualMemoryManagement),
        posix_file_descriptors: flag(DeviceAttribute::HandleTypePosixFileDescriptor),
        host_native_atomic: flag(DeviceAttribute::HostNativeAtomic),
    })
}
