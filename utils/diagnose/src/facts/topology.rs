//! What lies between devices: the IOMMU, and bridges that send traffic up to it.

use crate::system::System;
use crate::system::pci::PciDevice;
use std::collections::BTreeMap;

/// Facts of the connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// IOMMUs that translate: their names.
    pub iommus: Vec<String>,
    /// IOMMU groups.
    pub groups: usize,
    /// The kernel's command line.
    pub command_line: String,
    /// Which kind of domain each device of interest is in, such as `identity` or `DMA-FQ`.
    pub domains: BTreeMap<String, String>,
    /// Each bridge above a device of interest.
    pub bridges: BTreeMap<String, Acs>,
    /// `/sys/class` can be read.
    pub readable: bool,
}

/// Access control services of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acs {
    /// It has none.
    None,
    /// It has them; the bits that are set.
    Set(u16),
    /// Only root may read that far.
    Hidden,
}

/// PCI: the extended capabilities begin here.
const EXTENDED: usize = 0x100;
/// PCI_EXT_CAP_ID_ACS
const ACS: u32 = 0x0d;
/// The control register's offset in that capability.
const CONTROL: usize = 6;
/// Request redirect and completion redirect: traffic between two devices goes up to the root.
pub const REDIRECT: u16 = 0x04 | 0x08;

impl Topology {
    /// Reads them, with the bridges above `devices`.
    pub fn read<'a>(system: &System, devices: impl Iterator<Item = &'a PciDevice>) -> Self {
        let (mut bridges, mut domains) = (BTreeMap::new(), BTreeMap::new());
        for device in devices {
            for bridge in device.bridges() {
                bridges.entry(bridge.clone()).or_insert_with(|| acs(system, bridge));
            }
            let kind = system.read(&format!("/sys/bus/pci/devices/{}/iommu_group/type", device.address));
            if let Some(kind) = kind {
                domains.insert(device.address.clone(), kind);
            }
        }
        Self {
            iommus: system.list("/sys/class/iommu"),
            groups: system.list("/sys/kernel/iommu_groups").len(),
            command_line: system.read("/proc/cmdline").unwrap_or_default(),
            domains,
            bridges,
            readable: system.exists("/sys/class"),
        }
    }
}

fn acs(system: &System, bridge: &str) -> Acs {
    let config = system.bytes(&format!("/sys/bus/pci/devices/{bridge}/config")).unwrap_or_default();
    find_acs(&config)
}

/// Follows the list of extended capabilities.
fn find_acs(config: &[u8]) -> Acs {
    let word = |at: usize| Some(u32::from_le_bytes(config.get(at..at + 4)?.try_into().ok()?));
    if config.len() <= EXTENDED {
        return Acs::Hidden;
    }
    let mut at = EXTENDED;
    // There is room for this many; a longer list is circular.
    for _ in 0..(4096 - EXTENDED) / 8 {
        let Some(header) = word(at) else { break };
        if header & 0xffff == ACS {
            let control = config.get(at + CONTROL..at + CONTROL + 2);
            return control.map_or(Acs::None, |bytes| Acs::Set(u16::from_le_bytes([bytes[0], bytes[1]])));
        }
        at = (header >> 20) as usize;
        if at < EXTENDED {
            break;
        }
    }
    Acs::None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_control_is_found_in_the_list_of_capabilities() {
        let mut config = vec![0; 4096];
        // Advanced error reporting, then ACS at 0x148.
        config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        config[0x148..0x14c].copy_from_slice(&(ACS | 1 << 16).to_le_bytes());
        config[0x14e] = 0x1d;
        assert_eq!(find_acs(&config), Acs::Set(0x1d));
        assert_eq!(find_acs(&config[..64]), Acs::Hidden);
        assert_eq!(find_acs(&vec![0; 4096]), Acs::None);
        // A list that leads back to itself.
        config[0x100..0x104].copy_from_slice(&(0x0001_u32 | 0x100 << 20).to_le_bytes());
        assert_eq!(find_acs(&config), Acs::None);
    }
}
