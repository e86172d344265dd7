//! RDMA devices as `/sys/class/infiniband` shows them.

use crate::system::System;
use crate::system::pci::PciDevice;

/// An RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFacts {
    /// Such as `mlx5_0`.
    pub name: String,
    /// The kernel driver behind it, such as `mlx5_core`; a software device has none.
    pub driver: Option<String>,
    /// Its PCI device; a software device has none.
    pub pci: Option<PciDevice>,
    /// Its firmware.
    pub firmware: Option<String>,
    /// It speaks iWARP, whose GIDs are made from MAC addresses and say nothing.
    pub iwarp: bool,
    /// Its ports.
    pub ports: Vec<PortFacts>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// From 1.
    pub number: u32,
    /// Such as `4: ACTIVE`.
    pub state: String,
    /// Such as `5: LinkUp`.
    pub physical: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// Such as `400 Gb/sec (4X NDR)`.
    pub rate: String,
    /// GIDs that are not zero: address and type.
    pub gids: Vec<(String, String)>,
    /// Its network interfaces, with their MTU.
    pub interfaces: Vec<(String, Option<u64>)>,
}

/// Where devices are listed.
const CLASS: &str = "/sys/class/infiniband";

impl CardFacts {
    /// Reads all.
    #[must_use]
    pub fn all(system: &System) -> Vec<Self> {
        system.list(CLASS).iter().map(|name| Self::read(system, name)).collect()
    }

    fn read(system: &System, name: &str) -> Self {
        let at = format!("{CLASS}/{name}");
        let mut ports: Vec<PortFacts> = system
            .list(&format!("{at}/ports"))
            .iter()
            .filter_map(|number| Some(PortFacts::read(system, &at, number.parse().ok()?)))
            .collect();
        ports.sort_by_key(|port| port.number);
        let driver = system.target(&format!("{at}/device/driver"));
        Self {
            name: name.to_owned(),
            driver: driver.and_then(|target| target.rsplit('/').next().map(str::to_owned)),
            pci: PciDevice::behind(system, &format!("{at}/device")),
            firmware: system.read(&format!("{at}/fw_ver")).filter(|version| !version.is_empty()),
            iwarp: system.read(&format!("{at}/node_type")).is_some_and(|kind| kind.contains("RNIC")),
            ports,
        }
    }
}

impl PortFacts {
    fn read(system: &System, card: &str, number: u32) -> Self {
        let at = format!("{card}/ports/{number}");
        let file = |name: &str| system.read(&format!("{at}/{name}")).unwrap_or_default();
        let indices = system.list(&format!("{at}/gids"));
        // An entry that is not in use is all zeros, or cannot be read at all.
        let zero = |gid: &str| gid.chars().all(|c| c == '0' || c == ':');
        let gid = |index: &String| {
            let gid = file(&format!("gids/{index}"));
            (!zero(&gid)).then(|| (gid, file(&format!("gid_attrs/types/{index}"))))
        };
        let mut names = system.list(&format!("{card}/device/net"));
        // A software device's.
        names.extend(system.read(&format!("{card}/parent")));
        names.extend(indices.iter().map(|index| file(&format!("gid_attrs/ndevs/{index}"))));
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        names.dedup();
        let mtu = |name: String| {
            let mtu = system.number(&format!("/sys/class/net/{name}/mtu"));
            (name, mtu)
        };
        Self {
            number,
            state: file("state"),
            physical: file("phys_state"),
            link_layer: file("link_layer"),
            rate: file("rate"),
            gids: indices.iter().filter_map(gid).collect(),
            interfaces: names.into_iter().map(mtu).collect(),
        }
    }

    /// Returns whether it can be used.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.state.contains("ACTIVE")
    }

    /// Returns whether it runs over Ethernet (RoCE, iWARP, software devices).
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == "Ethernet"
    }
}
