//! What the PCI bus reports about a GPU.

use crate::check::Check;
use crate::checks::size;
use crate::facts::Facts;
use crate::system::pci::PciDevice;

/// The checks of this file.
pub const IDS: [&str; 2] = ["gpu.bar1", "gpu.link"];

/// A GPU without resizable BAR has 256 MiB, of which the driver takes a part; the device's rings
/// alone are 256 MiB by default.
const WINDOW: u64 = 512 << 20;

pub fn of_all(facts: &Facts) -> Vec<Check> {
    if facts.gpus.is_empty() {
        let why = "the PCI bus shows no NVIDIA GPU (/sys/bus/pci)";
        return IDS.iter().map(|id| Check::unknown(id, why, "see gpu.devices; mount /sys")).collect();
    }
    let of = |gpu: &PciDevice| [bar1(gpu), link(gpu)].map(|check| check.on(facts.gpu_name(gpu)));
    facts.gpus.iter().flat_map(of).collect()
}

fn bar1(gpu: &PciDevice) -> Check {
    const ID: &str = "gpu.bar1";
    // The registers lie in the first, the memory in the second. Which numbers they have depends on
    // which of them are of 64 bits, which take two: 0 and 1 on an A100, 0 and 2 on an H100.
    match gpu.bars.iter().copied().filter(|&size| size > 0).nth(1) {
        None => Check::unknown(
            ID,
            format!("/sys shows no second memory window among {:?}", gpu.bars),
            "look at `nvidia-smi -q -d MEMORY` (BAR1)",
        ),
        Some(window) if window >= WINDOW => Check::ok(ID, size(window)),
        Some(window) => Check::degraded(
            ID,
            format!(
                "{}: rings that a network card writes, and mappings for the CPU, do not fit",
                size(window)
            ),
            "enable resizable BAR and above-4G decoding in the firmware's setup; with vGPU, a larger profile",
        ),
    }
}

fn link(gpu: &PciDevice) -> Check {
    const ID: &str = "gpu.link";
    let speed = gpu.speed.as_deref().unwrap_or("speed unknown");
    match gpu.lanes {
        // A virtual machine's emulated bridge reports 0 or 255.
        None | Some((0 | 255, _) | (_, 0 | 255)) => {
            Check::unknown(ID, "/sys does not show the link", "look at `nvidia-smi -q` (PCIe link width)")
                .harmless()
        }
        Some((now, most)) if now < most => Check::degraded(
            ID,
            format!("x{now} of x{most}, {speed}"),
            "seat the GPU in a slot with all lanes, look at the slot's bifurcation and at `dmesg` (AER)",
        ),
        // The speed goes down while the GPU idles, so it tells nothing.
        Some((now, _)) => Check::ok(ID, format!("x{now}, {speed} at this moment")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Status;

    fn gpu() -> PciDevice {
        PciDevice {
            address: "0000:3b:00.0".into(),
            path: Vec::new(),
            numa_node: None,
            bars: vec![16 << 20, 256 << 30],
            lanes: Some((16, 16)),
            speed: Some("32.0 GT/s PCIe".into()),
        }
    }

    #[test]
    fn a_small_window_and_missing_lanes_are_told() {
        assert_eq!(bar1(&gpu()).status, Status::Ok);
        let wide = bar1(&PciDevice { bars: vec![16 << 20, 0, 128 << 30, 0, 32 << 20], ..gpu() });
        assert_eq!((wide.status, wide.evidence.as_str()), (Status::Ok, "128 GiB"));
        let small = bar1(&PciDevice { bars: vec![16 << 20, 256 << 20], ..gpu() });
        assert_eq!(small.status, Status::Degraded);
        assert!(small.evidence.starts_with("256 MiB"), "{small:?}");
        assert_eq!(bar1(&PciDevice { bars: Vec::new(), ..gpu() }).status, Status::Unknown);
        assert_eq!(link(&gpu()).status, Status::Ok);
        assert_eq!(link(&PciDevice { lanes: Some((8, 16)), ..gpu() }).status, Status::Degraded);
        assert_eq!(link(&PciDevice { lanes: None, ..gpu() }).status, Status::Unknown);
    }
}
