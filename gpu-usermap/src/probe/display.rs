//! A probe's text: one line per fact.

use std::fmt;

use gpunet_cuda::LazyLoading;

use super::{ComputeMode, DeviceProbe, DriverInfo, PciAddress, Probe};
use crate::placement::{self, Facts, Placement, PlacementChoice};

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Ok(driver) => write!(f, "{driver}")?,
            Err(unavailable) => writeln!(f, "CUDA: not used: {unavailable}")?,
        }
        for device in &self.devices {
            write!(f, "{device}")?;
            writeln!(f, "  rings of RDMA connections: {}", Rings(&self.facts(Some(device))))?;
        }
        for (ordinal, error) in &self.failed_devices {
            writeln!(f, "GPU {ordinal}: not used: {error}")?;
        }
        for backend in &self.cpu_mapping {
            write!(f, "CPU mapping of GPU memory by {}: ", backend.kind)?;
            match &backend.usable {
                Ok(()) => writeln!(f, "usable (tried when a buffer is mapped)")?,
                Err(reason) => writeln!(f, "not used: {reason}")?,
            }
        }
        if self.cpu_mapping.iter().all(|backend| backend.usable.is_err()) {
            writeln!(f, "words that the CPU writes: in pinned host memory")?;
        }
        self.write_rdma(f)
    }
}

impl Probe {
    fn write_rdma(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rdma.rdma_devices[..] {
            [] => writeln!(f, "RDMA devices: none")?,
            names => writeln!(f, "RDMA devices: {}", names.join(", "))?,
        }
        match &self.rdma.peer_module {
            Some(path) => writeln!(f, "peer memory module: loaded ({})", path.display())?,
            None => writeln!(f, "peer memory module: not loaded")?,
        }
        if self.devices.is_empty() {
            writeln!(f, "rings of RDMA connections: {}", Rings(&self.facts(None)))?;
        }
        writeln!(
            f,
            "a network card and GPU memory: not yet tried on hardware; a machine with both is still awaited"
        )
    }
}

/// The placement that [`PlacementChoice::Auto`] takes, and why none of those before it.
struct Rings<'a>(&'a Facts);

impl fmt::Display for Rings<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Auto does not fail; a refusal of pinned memory would be told like any other.
        let chosen = placement::choose(self.0, PlacementChoice::Auto);
        match &chosen {
            Ok(placement) => write!(f, "{placement}")?,
            Err(refused) => write!(f, "none: {refused}")?,
        }
        for other in [Placement::GpuDmaBuf, Placement::GpuPeerMem] {
            if chosen == Ok(other) {
                break;
            }
            write!(f, "; not {other}: {}", placement::join(&placement::why_not(self.0, other)))?;
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
            _ => "unknown to this driver",
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
        fact("PCI address", &OrUnknown(self.pci_address))?;
        fact("may be used by", &OrUnknown(self.compute_mode))?;
        fact("GPUDirect RDMA", &YesNo(self.gpu_direct_rdma_supported))?;
        fact("GPUDirect RDMA with virtual memory calls", &YesNo(self.gpu_direct_rdma_with_cuda_vmm))?;
        fact("dma-buf export", &YesNo(self.dma_buf_supported))?;
        fact("network card's writes are ordered for", &OrUnknown(self.writes_ordering))?;
        fact("network card's writes are flushed", &OrUnknown(self.flush_options))?;
        fact("host memory registration", &YesNo(self.host_register_supported))?;
        fact("registered memory has its host address", &YesNo(self.can_use_host_pointer_for_registered_mem))?;
        fact("virtual memory calls", &YesNo(self.virtual_memory_management))?;
        fact("their memory as file descriptors", &YesNo(self.posix_file_descriptors))?;
        fact("atomics between CPU and GPU", &YesNo(self.host_native_atomic))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.0", self.domain, self.bus, self.device)
    }
}

impl fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("any number of processes"),
            Self::Exclusive => f.write_str("one process at a time"),
            Self::Prohibited => f.write_str("nobody"),
            Self::Unknown(value) => write!(f, "unknown value {value}"),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_spelt_as_linux_does() {
        let address = PciAddress { domain: 0, bus: 0x3b, device: 0 };
        assert_eq!(address.to_string(), "0000:3b:00.0");
        assert_eq!(PciAddress { domain: 0x10000, ..address }.to_string(), "10000:3b:00.0");
    }
}
