//! What libraries and system calls say, as data: CUDA, verbs, network interfaces, memory files, a daemon.
//!
//! It is asked for in a child process, and so has to survive the way to the parent.

use gpu_usermap::cuda::LazyLoading;
use gpu_usermap::mapping::BackendKind;
use gpu_usermap::placement::{self, Placement, Wanted};
use gpu_usermap::probe::{ComputeMode, DeviceProbe, Probe};
use gpu_usermap::{PinnedRegion, probe};
use gpunet_proxy::rdma::{DeviceReport, DeviceTransport, LinkLayer, PortState, Rdma};
use gpunet_proxy::{Config, DaemonError, attach, places, rdma_devices};
use nix::net::if_::InterfaceFlags;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Everything that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libraries {
    /// The CUDA driver, or why there is none.
    pub cuda: Result<Cuda, String>,
    /// Whether the CPU can map GPU memory by gdrdrv.
    pub gdrdrv: Result<(), String>,
    /// Whether it can by a dma-buf.
    pub dmabuf_mmap: Result<(), String>,
    /// The RDMA devices that libibverbs opens, or why there are none.
    pub verbs: Result<Vec<Card>, NoVerbs>,
    /// Whether an event channel of rdma_cm can be made and a device be opened.
    pub rdma_cm: Result<(), String>,
    /// Addresses of this machine: interface and address.
    pub addresses: Vec<(String, IpAddr)>,
    /// Whether this network namespace's loopback interface is up. (`/sys` may show another's.)
    pub loopback: Option<bool>,
    /// Whether a sealed memory file can be made.
    pub memfd: Result<(), String>,
    /// A daemon.
    pub daemon: Daemon,
}

/// Why there are no verbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoVerbs {
    /// The libraries are there; what is missing is a device, or the permission to use it.
    pub libraries: bool,
    /// The reason.
    pub why: String,
}

/// What the CUDA driver says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuda {
    /// Major and minor version of CUDA.
    pub version: (u32, u32),
    /// Kernels are loaded when they are first used, because the user wants it so.
    pub lazy: bool,
    /// The GPUs that this process may use.
    pub gpus: Vec<Gpu>,
    /// Those that the driver lists and does not describe.
    pub failed: Vec<(u32, String)>,
}

/// A GPU. `None`: the driver is older than the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// CUDA's number.
    pub ordinal: u32,
    /// The product.
    pub name: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Bytes.
    pub memory: u64,
    /// As `/sys/bus/pci/devices` spells it.
    pub pci: Option<String>,
    /// Who may use it, if not any number of processes.
    pub restricted: Option<String>,
    /// Host memory can be registered.
    pub host_registration: Option<bool>,
    /// The virtual memory calls work, and give file descriptors.
    pub shareable: Option<bool>,
    /// A network card can reach memory of `cuMemAlloc`.
    pub gpudirect: Option<bool>,
    /// GPU memory can be exported as a dma-buf.
    pub dmabuf: Option<bool>,
    /// Who sees a card's writes in order: `owner`, `all devices`, `nobody`.
    pub ordering: Option<String>,
    /// A running kernel of this GPU sees them in order.
    pub ordered: Option<bool>,
    /// The host can flush them.
    pub flush: Option<bool>,
    /// The rings of rc streams lie there.
    pub placement: Place,
}

/// Where rings of rc streams lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// In GPU memory.
    pub in_gpu_memory: bool,
    /// In words.
    pub chosen: String,
    /// Why not in GPU memory: by dma-buf; by the peer memory module.
    pub not: Vec<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Such as `mlx5_0`.
    pub name: String,
    /// `InfiniBand` (RoCE too), `iWARP` or another.
    pub transport: String,
    /// libibverbs can register dma-bufs.
    pub dmabuf_call: bool,
    /// Its ports, or why it does not open.
    pub ports: Result<Vec<Port>, String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// From 1.
    pub number: u8,
    /// `Active`, `Init`, `Down`...
    pub state: String,
    /// It runs over Ethernet.
    pub ethernet: bool,
    /// Bytes of a packet.
    pub mtu: Option<u32>,
}

/// What is known of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Daemon {
    /// It answers.
    Runs {
        /// Where.
        path: String,
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
        /// Its data threads.
        data_threads: u32,
    },
    /// Nobody listens there.
    Absent {
        /// Where it was looked for.
        path: String,
    },
    /// It is there, and does not serve this user.
    Refuses {
        /// In its words.
        why: String,
    },
}

impl Libraries {
    /// Asks. No context is made on a GPU.
    #[must_use]
    pub fn ask() -> Self {
        // CUDA first: it can ask for eager loading only while the process has one thread.
        let probe = probe();
        let backend = |kind| {
            let found = probe.cpu_mapping.iter().find(|backend| backend.kind == kind);
            found.map_or_else(
                || Err("not asked".to_owned()),
                |backend| backend.usable.as_ref().copied().map_err(ToString::to_string),
            )
        };
        Self {
            cuda: cuda(&probe),
            gdrdrv: backend(BackendKind::Gdrdrv),
            dmabuf_mmap: backend(BackendKind::DmaBuf),
            verbs: rdma_devices().map(|devices| devices.iter().map(card).collect()).map_err(|why| NoVerbs {
                libraries: !matches!(
                    why,
                    gpunet_proxy::rdma::Unavailable::Library { .. }
                        | gpunet_proxy::rdma::Unavailable::Symbol { .. }
                ),
                why: why.to_string(),
            }),
            rdma_cm: Rdma::open().map(drop).map_err(|why| why.to_string()),
            addresses: addresses(),
            loopback: loopback(),
            memfd: PinnedRegion::create("gpunet-diagnose", 1 << 20).map(drop).map_err(|why| why.to_string()),
            daemon: daemon(),
        }
    }
}

fn cuda(probe: &Probe) -> Result<Cuda, String> {
    let driver = probe.driver.as_ref().map_err(ToString::to_string)?;
    Ok(Cuda {
        version: (driver.version.0 / 1000, driver.version.0 % 1000 / 10),
        lazy: driver.lazy_loading == LazyLoading::ByUser,
        gpus: probe.devices.iter().map(|device| gpu(probe, device)).collect(),
        failed: probe.failed_devices.iter().map(|(ordinal, why)| (*ordinal, why.to_string())).collect(),
    })
}

fn gpu(probe: &Probe, device: &DeviceProbe) -> Gpu {
    let facts = probe.facts(Some(device));
    let chosen = placement::choose(&facts, Wanted::Auto);
    let not = [Placement::GpuDmaBuf, Placement::GpuPeerMem].map(|other| {
        let why: Vec<String> = placement::why_not(&facts, other).iter().map(ToString::to_string).collect();
        format!("{other}: {}", why.join(", "))
    });
    let in_gpu_memory = matches!(chosen, Ok(Placement::GpuDmaBuf | Placement::GpuPeerMem));
    Gpu {
        ordinal: device.ordinal,
        name: device.name.clone(),
        compute_capability: device.compute_capability,
        memory: device.total_memory as u64,
        pci: device.pci_address.map(|address| address.to_string()),
        restricted: device
            .compute_mode
            .filter(|mode| *mode != ComputeMode::Shared)
            .map(|mode| mode.to_string()),
        host_registration: device.host_register_supported,
        shareable: device
            .virtual_memory_management
            .zip(device.posix_file_descriptors)
            .map(|(calls, descriptors)| calls && descriptors),
        gpudirect: device.gpu_direct_rdma_supported,
        dmabuf: device.dma_buf_supported,
        ordering: device.writes_ordering.map(|ordering| ordering.to_string()),
        ordered: device.writes_ordering.map(gpu_usermap::probe::WritesOrdering::ordered_for_owner),
        flush: device.flush_options.map(gpu_usermap::probe::FlushOptions::from_host),
        placement: Place {
            in_gpu_memory,
            chosen: chosen.map_or_else(|why| why.to_string(), |placement| placement.to_string()),
            not: if in_gpu_memory { Vec::new() } else { not.to_vec() },
        },
    }
}

fn card(report: &DeviceReport) -> Card {
    let port = |port: &gpunet_proxy::rdma::PortReport| Port {
        number: port.number,
        state: match port.state {
            PortState::Other(code) => format!("state {code}"),
            known => format!("{known:?}"),
        },
        ethernet: port.link_layer == LinkLayer::Ethernet,
        mtu: port.mtu,
    };
    Card {
        name: report.name.clone(),
        transport: match report.transport {
            DeviceTransport::InfiniBand => "InfiniBand".to_owned(),
            DeviceTransport::Iwarp => "iWARP".to_owned(),
            DeviceTransport::Other(code) => format!("transport {code}"),
        },
        dmabuf_call: report.dmabuf_call,
        ports: match &report.opened {
            Ok(opened) => Ok(opened.ports.iter().map(port).collect()),
            Err(why) => Err(why.to_string()),
        },
    }
}

fn addresses() -> Vec<(String, IpAddr)> {
    // None can be listed only where the kernel has no networking.
    let interfaces = nix::ifaddrs::getifaddrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let address = |interface: &nix::ifaddrs::InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    interfaces.iter().filter_map(|one| Some((one.interface_name.clone(), address(one)?))).collect()
}

fn loopback() -> Option<bool> {
    let mut interfaces = nix::ifaddrs::getifaddrs().ok()?;
    Some(interfaces.any(|one| {
        let up = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOOPBACK;
        one.flags.contains(up)
    }))
}

fn daemon() -> Daemon {
    let path = places::daemon_path();
    match attach(&path, Config::small()) {
        Err(DaemonError::NotThere { path, .. }) => Daemon::Absent { path: path.display().to_string() },
        Err(why) => Daemon::Refuses { why: why.to_string() },
        Ok(proxy) => match proxy.daemon() {
            None => Daemon::Absent { path: path.display().to_string() },
            Some(info) => Daemon::Runs {
                path: info.path.display().to_string(),
                pid: info.pid,
                version: info.version.clone(),
                data_threads: info.data_threads,
            },
        },
    }
}

/// A machine without anything, for tests of checks.
#[cfg(test)]
pub(crate) fn nothing() -> Libraries {
    Libraries {
        cuda: Err("no libcuda.so.1".to_owned()),
        gdrdrv: Err("no /dev/gdrdrv".to_owned()),
        dmabuf_mmap: Err("no libcuda.so.1".to_owned()),
        verbs: Err(NoVerbs { libraries: false, why: "no libibverbs.so.1".to_owned() }),
        rdma_cm: Err("no librdmacm.so.1".to_owned()),
        addresses: Vec::new(),
        loopback: Some(true),
        memfd: Ok(()),
        daemon: Daemon::Absent { path: "/run/gpunet/gpunetd.sock".to_owned() },
    }
}
