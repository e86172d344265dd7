//! A probe's text: one line per fact.

use std::fmt;

use super::{DeviceProbe, DriverInfo, FlushOptions, Probe, WritesOrdering};
use crate::cuda::LazyLoading;

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(driver) => write!(f, "{driver}")?,
            Err(unavailable) => writeln!(f, "CUDA: not used: {unavailable}")?,
        }
        for device in &self.devices {
            write!(f, "{device}")?;
        }
        for (ordinal, error) in &self.failed_devices {
            writeln!(f, "GPU {ordinal}: not used: {error}")?;
        }
        for backend in &self.cpu_mapping {
            match &backend.used {
                Ok(()) => writeln!(f, "CPU mapping of GPU memory by {}: used", backend.name)?,
                Err(reason) => {
                    writeln!(f, "CPU mapping of GPU memory by {}: not used: {reason}", backend.name)?
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for DriverInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loading = match self.lazy_loading {
            LazyLoading::Off => "eager",
            LazyLoading::ByUser => "lazy, as CUDA_MODULE_LOADING says",
            LazyLoading::ByDefault => "lazy (set CUDA_MODULE_LOADING=EAGER before the program starts)",
            LazyLoading::Unknown => "unknown to this driver",
        };
        writeln!(f, "CUDA: driver {}", self.version)?;
        writeln!(f, "CUDA module loading: {loading}")
    }
}

impl fmt::Display for DeviceProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.compute_capability;
        writeln!(f, "GPU {}: {}", self.ordinal, self.name)?;
        let mut fact = |name: &str, value: &dyn fmt::Display| writeln!(f, "  {name}: {value}");
        fact("compute capability", &format_args!("{major}.{minor}"))?;
        fact("multiprocessors", &self.multiprocessors)?;
        fact("memory", &format_args!("{} MiB", self.total_memory >> 20))?;
        fact("GPUDirect RDMA", &YesNo(self.gpu_direct_rdma_supported))?;
        fact("GPUDirect RDMA with virtual memory calls", &YesNo(self.gpu_direct_rdma_with_cuda_vmm))?;
        fact("dma-buf export", &YesNo(self.dma_buf_supported))?;
        fact("network card's writes are ordered for", &OrUnknown(self.writes_ordering))?;
        fact("network card's writes are flushed", &OrUnknown(self.flush_options))?;
        fact("host memory registration", &YesNo(self.host_register_supported))?;
        fact("registered memory has its host address", &YesNo(self.can_use_host_pointer_for_registered_mem))?;
        fact("virtual memory calls", &YesNo(self.virtual_memory_management))?;
        fact("atomics between CPU and GPU", &YesNo(self.host_native_atomic))
    }
}

struct YesNo(Option<bool>);

impl fmt::Display for YesNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OrUnknown(self.0.map(|yes| if yes { "yes" } else { "no" })).fmt(f)
    }
}

struct OrUnknown<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrUnknown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("unknown to this driver"),
        }
    }
}

impl fmt::Display for WritesOrdering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Owner => f.write_str("the GPU itself"),
            Self::AllDevices => f.write_str("every GPU"),
            Self::Unknown(value) => write!(f, "unknown value {value}"),
        }
    }
}

impl fmt::Display for FlushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.from_host(), self.by_stream_operation()) {
            (true, true) => "from the host and by stream operations",
            (true, false) => "from the host",
            (false, true) => "by stream operations",
            (false, false) => "in no way",
        })
    }
}
