//! Asking.

use super::{Card, Cuda, Daemon, DaemonFound, Driver, Gpu, NoVerbs, Port, RcPlacement, Rdma, SystemAnswer};
use gpu_usermap::cuda::LazyLoading;
use gpu_usermap::mapping::BackendKind;
use gpu_usermap::placement::{self, Placement, PlacementChoice};
use gpu_usermap::probe::{ComputeMode, DeviceProbe, FlushOptions, Probe, WritesOrdering};
use gpu_usermap::{PinnedRegion, probe};
use gpunet_proxy::rdma::{
    self, DeviceReport, DeviceTransport, LinkLayer, PortReport, PortState, Unavailable,
};
use gpunet_proxy::{Config, DaemonError, attach, places, rdma_devices};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use std::env;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

impl Driver {
    /// Asks. No context is made on a GPU.
    #[must_use]
    pub fn ask() -> Self {
        // Eager loading can be asked for only while the process has one thread, so this comes
        // first.
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
        }
    }
}

impl Rdma {
    /// Asks.
    #[must_use]
    pub fn ask() -> Self {
        Self {
            verbs: rdma_devices().map(|devices| devices.iter().map(card).collect()).map_err(|why| NoVerbs {
                libraries: !matches!(why, Unavailable::Library { .. } | Unavailable::Symbol { .. }),
                why: why.to_string(),
            }),
            rdma_cm: rdma::Rdma::open().map(drop).map_err(|why| why.to_string()),
        }
    }
}

impl SystemAnswer {
    /// Asks. `daemon` is where `--daemon` wants one to be.
    #[must_use]
    pub fn ask(daemon: Option<&Path>) -> Self {
        Self {
            addresses: addresses(),
            loopback: loopback(),
            memfd: PinnedRegion::create("gpunet-diagnose", 1 << 20).map(drop).map_err(|why| why.to_string()),
            daemon: Daemon::at(sought(daemon, env::var_os("GPUNET_DAEMON").as_deref())),
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
    let chosen = placement::choose(&facts, PlacementChoice::Auto);
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
        placement: RcPlacement {
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

/// Returns where a daemon is expected, what names that path, and whether programs are told to use
/// it.
struct Sought {
    path: PathBuf,
    by: &'static str,
    named: bool,
}

/// An empty variable names no daemon, as for the programs.
fn sought(option: Option<&Path>, variable: Option<&OsStr>) -> Sought {
    let variable = variable.filter(|path| !path.is_empty()).map(Path::new);
    match (option, variable) {
        (Some(path), _) => Sought { path: path.to_owned(), by: "by --daemon", named: true },
        (None, Some(path)) => Sought { path: path.to_owned(), by: "by GPUNET_DAEMON", named: true },
        (None, None) => {
            let (path, by) = places::daemon_place();
            Sought { path, by, named: false }
        }
    }
}

impl Daemon {
    fn at(sought: Sought) -> Self {
        let found = match attach(&sought.path, Config::small()) {
            Err(DaemonError::NotThere { .. }) => DaemonFound::Absent,
            Err(why) => DaemonFound::Refuses { why: why.to_string() },
            Ok(proxy) => proxy.daemon().map_or(DaemonFound::Absent, |info| DaemonFound::Runs {
                pid: info.pid,
                version: info.version.clone(),
                data_threads: info.data_threads,
            }),
        };
        Self { path: sought.path.display().to_string(), by: sought.by.to_owned(), named: sought.named, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_sought_where_programs_are_told_to_find_it() {
        let sought = |option: Option<&str>, variable: Option<&str>| {
            let Sought { path, by, named } = sought(option.map(Path::new), variable.map(OsStr::new));
            assert_eq!(named, path.starts_with("/nonexistent"), "{}", path.display());
            (path.display().to_string(), by)
        };
        assert_eq!(sought(Some("/nonexistent/a"), Some("/nonexistent/b")).1, "by --daemon");
        assert_eq!(sought(None, Some("/nonexistent/b")), ("/nonexistent/b".to_owned(), "by GPUNET_DAEMON"));
        let (usual, by) = places::daemon_place();
        let usual = (usual.display().to_string(), by);
        assert_eq!(sought(None, None), usual);
        assert_eq!(sought(None, Some("")), usual);
    }
}
