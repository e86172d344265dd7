//! PCI devices as `/sys/bus/pci` shows them: where they are attached, how far apart they are.

use super::System;
use std::fmt;

/// A PCI device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciDevice {
    /// Such as `0000:3b:00.0`.
    pub address: String,
    /// From the root complex to the device: `pci0000:3a`, then the address of each bridge, then its
    /// own.
    pub path: Vec<String>,
    /// Its memory's node; `None` on a machine with one.
    pub numa_node: Option<u32>,
    /// Bytes of each of the first six resources; 0 for one that is not there, or of ports and not
    /// of memory.
    pub bars: Vec<u64>,
    /// Lanes in use, and the most that the device has.
    pub lanes: Option<(u32, u32)>,
    /// The link's speed now, as Linux words it.
    pub speed: Option<String>,
}

/// How far apart two devices are, in the words of `nvidia-smi topo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// At most one switch between them.
    Pix,
    /// Several switches.
    Pxb,
    /// Through the CPU's host bridge.
    Phb,
    /// Between two host bridges of one NUMA node.
    Node,
    /// Between two NUMA nodes.
    Sys,
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pix => "PIX (one PCIe switch at most)",
            Self::Pxb => "PXB (several PCIe switches)",
            Self::Phb => "PHB (through the CPU's host bridge)",
            Self::Node => "NODE (between host bridges of one NUMA node)",
            Self::Sys => "SYS (between NUMA nodes)",
        })
    }
}

/// Where devices are listed.
const DEVICES: &str = "/sys/bus/pci/devices";
/// NVIDIA's vendor number.
const NVIDIA: &str = "0x10de";

impl PciDevice {
    /// Reads the device of that address.
    #[must_use]
    pub fn read(system: &System, address: &str) -> Option<Self> {
        let at = format!("{DEVICES}/{}", address.to_ascii_lowercase());
        let target = system.target(&at)?;
        let file = |name: &str| system.read(&format!("{at}/{name}"));
        let lanes = |name| file(name)?.parse().ok();
        Some(Self {
            address: address.to_ascii_lowercase(),
            path: path_of(&target),
            numa_node: file("numa_node").and_then(|text| text.parse().ok()),
            bars: file("resource").map(|text| sizes(&text)).unwrap_or_default(),
            lanes: lanes("current_link_width").zip(lanes("max_link_width")),
            speed: file("current_link_speed"),
        })
    }

    /// The device behind a link such as `/sys/class/infiniband/mlx5_0/device`.
    #[must_use]
    pub fn behind(system: &System, link: &str) -> Option<Self> {
        let target = system.target(link)?;
        let address = target.rsplit('/').next()?;
        if is_address(address) { Self::read(system, address) } else { None }
    }

    /// NVIDIA's GPUs, whether or not a driver has them.
    #[must_use]
    pub fn gpus(system: &System) -> Vec<Self> {
        let is_gpu = |address: &String| {
            let file = |name: &str| system.read(&format!("{DEVICES}/{address}/{name}"));
            // Display controllers: VGA (0x0300) and 3D (0x0302).
            file("vendor").as_deref() == Some(NVIDIA)
                && file("class").is_some_and(|class| class.starts_with("0x03"))
        };
        let addresses = system.list(DEVICES);
        addresses.iter().filter(|a| is_gpu(a)).filter_map(|a| Self::read(system, a)).collect()
    }

    /// How far it is to another device.
    #[must_use]
    pub fn distance(&self, other: &Self) -> Distance {
        if self.path.first() != other.path.first() {
            let nodes = self.numa_node.zip(other.numa_node);
            return if nodes.is_some_and(|(a, b)| a != b) { Distance::Sys } else { Distance::Node };
        }
        let common = self.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
        // What lies beyond the last common element, of the longer of both: a port of the common
        // switch, then the device itself; each further pair is another switch.
        let beyond = self.path.len().max(other.path.len()).saturating_sub(common);
        match common {
            0 | 1 => Distance::Phb,
            _ if beyond <= 2 => Distance::Pix,
            _ => Distance::Pxb,
        }
    }

    /// The bridges between the root complex and the device.
    #[must_use]
    pub fn bridges(&self) -> &[String] {
        let end = self.path.len().saturating_sub(1);
        self.path.get(1..end).unwrap_or_default()
    }
}

/// `../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0` without what is no PCI element.
fn path_of(target: &str) -> Vec<String> {
    let element = |part: &&str| part.starts_with("pci") || is_address(part);
    target.split('/').filter(element).map(str::to_owned).collect()
}

/// Returns whether the text is like `0000:3b:00.0`.
fn is_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    parts.len() == 4 && text.contains('.') && parts.iter().all(|part| u32::from_str_radix(part, 16).is_ok())
}

/// IORESOURCE_IO of Linux's ioport.h.
const PORTS: u64 = 0x100;

/// The sizes of the first six lines of `resource`: start, end and flags, in hexadecimal.
fn sizes(text: &str) -> Vec<u64> {
    let number = |part: &str| u64::from_str_radix(part.trim_start_matches("0x"), 16).unwrap_or(0);
    let size = |line: &str| {
        let mut parts = line.split_whitespace().map(number);
        let mut next = || parts.next().unwrap_or(0);
        let (start, end, flags) = (next(), next(), next());
        if end > start && flags & PORTS == 0 { end - start + 1 } else { 0 }
    };
    text.lines().take(6).map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(path: &[&str], numa_node: Option<u32>) -> PciDevice {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let address = path.last().cloned().unwrap_or_default();
        PciDevice { address, path, numa_node, bars: Vec::new(), lanes: None, speed: None }
    }

    #[test]
    fn distances_are_those_of_nvidia_smi() {
        let gpu =
            device(&["pci0000:16", "0000:16:02.0", "0000:17:00.0", "0000:18:00.0", "0000:19:00.0"], Some(0));
        let same_switch =
            device(&["pci0000:16", "0000:16:02.0", "0000:17:00.0", "0000:18:01.0", "0000:1a:00.0"], Some(0));
        let two_switches = device(
            &[
                "pci0000:16",
                "0000:16:02.0",
                "0000:17:00.0",
                "0000:18:02.0",
                "0000:1b:00.0",
                "0000:1c:00.0",
                "0000:1d:00.0",
            ],
            Some(0),
        );
        let other_port = device(&["pci0000:16", "0000:16:04.0", "0000:20:00.0"], Some(0));
        let other_bridge = device(&["pci0000:30", "0000:30:02.0", "0000:31:00.0"], Some(0));
        let other_node = device(&["pci0000:a0", "0000:a0:02.0", "0000:a1:00.0"], Some(1));
        assert_eq!(gpu.distance(&same_switch), Distance::Pix);
        assert_eq!(gpu.distance(&two_switches), Distance::Pxb);
        assert_eq!(gpu.distance(&other_port), Distance::Phb);
        assert_eq!(gpu.distance(&other_bridge), Distance::Node);
        assert_eq!(gpu.distance(&other_node), Distance::Sys);
        assert_eq!(other_node.distance(&gpu), Distance::Sys);
        assert_eq!(gpu.bridges(), ["0000:16:02.0", "0000:17:00.0", "0000:18:00.0"]);
    }

    #[test]
    fn resources_are_sized_and_links_are_read() {
        let text = "0x00000000c0000000 0x00000000c0ffffff 0x0000000000040200\n\
                    0x0000200000000000 0x0000203fffffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x0000000000003000 0x000000000000307f 0x0000000000040101";
        assert_eq!(sizes(text), [16 << 20, 256 << 30, 0, 0]);
        assert_eq!(
            path_of("../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"),
            ["pci0000:3a", "0000:3a:00.0", "0000:3b:00.0"]
        );
        assert!(is_address("10000:e1:00.0") && !is_address("mlx5_0") && !is_address("pci0000:3a"));
    }
}
