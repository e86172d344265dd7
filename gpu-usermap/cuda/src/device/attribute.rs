//! What can be asked of a GPU.

use crate::driver::raw::constants;

/// A property that [`Device::attribute`](crate::Device::attribute) can ask for. Yes-or-no
/// properties are 1 or 0.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, DeviceAttribute};
///
/// let gpu = Cuda::load()?.device(0)?;
/// let exports = gpu.attribute(DeviceAttribute::DmaBuf)? != 0;
/// # drop(exports);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceAttribute {
    /// The largest number of threads in a block.
    MaxThreadsPerBlock,
    /// The number of multiprocessors.
    Multiprocessors,
    /// Who may use the GPU: 0 any number of processes, 2 none, 3 one.
    ComputeMode,
    /// The PCI domain.
    PciDomain,
    /// The PCI bus.
    PciBus,
    /// The device on its PCI bus.
    PciDevice,
    /// Whether GPU and CPU can do atomic operations on each other's memory.
    HostNativeAtomic,
    /// Whether registered host memory has the same address on the GPU.
    CanUseHostPointerForRegisteredMem,
    /// Whether `cuMemHostRegister` works.
    HostRegister,
    /// Whether the GPU uses the CPU's page tables: CPU and GPU share a coherent link.
    PageableMemoryAccessUsesHostPageTables,
    /// Whether the virtual memory calls (`cuMemCreate`, `cuMemMap`) work.
    VirtualMemoryManagement,
    /// Whether memory of `cuMemCreate` can be exported as a file descriptor.
    HandleTypePosixFileDescriptor,
    /// Whether memory of `cuMemCreate` can be used for GPUDirect RDMA.
    GpuDirectRdmaWithCudaVmm,
    /// Whether memory of `cuMemAlloc` can be used for GPUDirect RDMA.
    GpuDirectRdma,
    /// How writes of a network card can be flushed: bit 0 from the host, bit 1 by stream memory
    /// operations.
    GpuDirectRdmaFlushOptions,
    /// Who sees writes of a network card in order without a flush: 0 nobody, 100 this GPU, 200
    /// every GPU.
    GpuDirectRdmaWritesOrdering,
    /// Whether streams can wait for and write 64-bit words.
    StreamMemoryOperations,
    /// Whether GPU memory can be exported as a dma-buf.
    DmaBuf,
    /// Another `CUdevice_attribute`, by its number in `cuda.h`.
    Other(i32),
}

impl DeviceAttribute {
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::MaxThreadsPerBlock => constants::DEVICE_MAX_THREADS_PER_BLOCK,
            Self::Multiprocessors => constants::DEVICE_MULTIPROCESSOR_COUNT,
            Self::ComputeMode => constants::DEVICE_COMPUTE_MODE,
            Self::PciDomain => constants::DEVICE_PCI_DOMAIN_ID,
            Self::PciBus => constants::DEVICE_PCI_BUS_ID,
            Self::PciDevice => constants::DEVICE_PCI_DEVICE_ID,
            Self::HostNativeAtomic => constants::DEVICE_HOST_NATIVE_ATOMIC_SUPPORTED,
            Self::CanUseHostPointerForRegisteredMem => {
                constants::DEVICE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
            }
            Self::HostRegister => constants::DEVICE_HOST_REGISTER_SUPPORTED,
            Self::PageableMemoryAccessUsesHostPageTables => {
                constants::DEVICE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES
            }
            Self::VirtualMemoryManagement => constants::DEVICE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            Self::HandleTypePosixFileDescriptor => {
                constants::DEVICE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
            }
            Self::GpuDirectRdmaWithCudaVmm => constants::DEVICE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            Self::GpuDirectRdma => constants::DEVICE_GPU_DIRECT_RDMA_SUPPORTED,
            Self::GpuDirectRdmaFlushOptions => constants::DEVICE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
            Self::GpuDirectRdmaWritesOrdering => constants::DEVICE_GPU_DIRECT_RDMA_WRITES_ORDERING,
            Self::StreamMemoryOperations => constants::DEVICE_CAN_USE_64_BIT_STREAM_MEM_OPS,
            Self::DmaBuf => constants::DEVICE_DMA_BUF_SUPPORTED,
            Self::Other(number) => number,
        }
    }
}
