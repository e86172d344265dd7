//! Asking.

use super::{Card, Cuda, Daemon, Gpu, Libraries, NoVerbs, Place, Port};
use gpu_usermap::cuda::LazyLoading;
use gpu_usermap::mapping::BackendKind;
use gpu_usermap::placement::{self, Placement, Wanted};
use gpu_usermap::probe::{ComputeMode, DeviceProbe, FlushOptions, Probe, WritesOrdering};
use gpu_usermap::{PinnedRegion, probe};
use gpunet_proxy::rdma::{
    DeviceReport, DeviceTransport, LinkLayer, PortReport, PortState, Rdma, Unavailable,
};
use gpunet_proxy::{Config, DaemonError, attach, places, rdma_devices};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use std::net::IpAddr;

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
                libraries: !matches!(why, Unavailable::Library { .. } | Unavailable::Symbol { .. }),
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
        ordered: device.writes_ordering.map(WritesOrdering::ordered_for_owner),
        flush: device.flush_options.map(FlushOptions::from_host),
        placement: Place {
            in_gpu_memory,
            chosen: chosen.map_or_else(|why| why.to_string(), |placement| placement.to_string()),
            not: if in_gpu_memory { Vec::new() } else { not.to_vec() },
        },
    }
}

fn card(report: &DeviceReport) -> Card {
    let port = |port: &PortReport| Port {
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
    let interfaces = getifaddrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    let address = |interface: &InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    interfaces.iter().filter_map(|one| Some((one.interface_name.clone(), address(one)?))).collect()
}

fn loopback() -> Option<bool> {
    let mut interfaces = getifaddrs().ok()?;
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
