//! How GPUs and network cards are connected.

use crate::check::Check;
use crate::facts::topology::{Acs, REDIRECT};
use crate::facts::{CardFacts, Facts, Topology};
use crate::system::pci::{Distance, PciDevice};

pub fn checks(facts: &Facts) -> Vec<Check> {
    let pairs = pairs(facts);
    if pairs.is_empty() {
        let why = "no pair of GPU and card on the PCI bus";
        let advice = "it matters for rings in GPU memory that a card writes";
        let of = |id| Check::unknown(id, why, advice).harmless();
        return vec![of("topology.distance"), numa(facts), iommu(&facts.topology, &[]), of("topology.acs")];
    }
    let mut checks: Vec<Check> = pairs.iter().map(distance).collect();
    checks.push(numa(facts));
    let devices: Vec<&PciDevice> = pairs.iter().flat_map(|pair| [pair.gpu, pair.card]).collect();
    checks.push(iommu(&facts.topology, &devices));
    checks.push(acs(&facts.topology, &pairs));
    checks
}

/// A GPU and the card nearest to it, which would write the rings of its streams.
struct Pair<'a> {
    name: String,
    gpu: &'a PciDevice,
    card: &'a PciDevice,
}

fn pairs(facts: &Facts) -> Vec<Pair<'_>> {
    let on_bus = |card: &'_ CardFacts| card.pci.is_some();
    let nearest = |gpu: &PciDevice| {
        let cards = facts.cards.iter().filter(|card| on_bus(card));
        cards.min_by_key(|card| card.pci.as_ref().map(|at| gpu.distance(at)))
    };
    let pair = |gpu| {
        let card = nearest(gpu)?;
        let name = format!("{} and {}", facts.gpu_name(gpu), card.name);
        Some(Pair { name, gpu, card: card.pci.as_ref()? })
    };
    facts.gpus.iter().filter_map(pair).collect()
}

fn distance(pair: &Pair<'_>) -> Check {
    const ID: &str = "topology.distance";
    let distance = pair.gpu.distance(pair.card);
    let text = distance.to_string();
    let check = match distance {
        Distance::Pix | Distance::Pxb => Check::ok(ID, text),
        Distance::Phb => Check::degraded(
            ID,
            text,
            "a card under the same switch as the GPU is faster, if the machine has one; rings in pinned memory \
             may be as fast",
        ),
        Distance::Node | Distance::Sys => Check::degraded(
            ID,
            text,
            "use the GPU that is near the card (CUDA_VISIBLE_DEVICES), or a card near the GPU: between nodes a \
             card's writes are slow, or do not work",
        ),
    };
    check.on(pair.name.clone())
}

fn numa(facts: &Facts) -> Check {
    const ID: &str = "topology.numa";
    let node = |device: &PciDevice| device.numa_node;
    let gpus: Vec<u32> = facts.gpus.iter().filter_map(node).collect();
    let cards: Vec<u32> = facts.cards.iter().filter_map(|card| node(card.pci.as_ref()?)).collect();
    if facts.gpus.is_empty() {
        return Check::unknown(ID, "no GPU on the PCI bus", "see gpu.devices").harmless();
    }
    if gpus.is_empty() {
        return Check::ok(ID, "one node (or a virtual machine that shows one)");
    }
    let lonely: Vec<String> = facts
        .gpus
        .iter()
        .filter(|gpu| !cards.is_empty() && gpu.numa_node.is_some_and(|node| !cards.contains(&node)))
        .map(|gpu| facts.gpu_name(gpu))
        .collect();
    let text = format!("GPUs on nodes {gpus:?}, cards on {cards:?}");
    if lonely.is_empty() {
        return Check::ok(ID, text);
    }
    let advice = "run programs of these GPUs with `numactl --cpunodebind` of the GPU's node, and prefer GPUs near a card";
    Check::degraded(ID, format!("{text}: none near {}", lonely.join(", ")), advice)
}

fn iommu(topology: &Topology, devices: &[&PciDevice]) -> Check {
    const ID: &str = "topology.iommu";
    if !topology.readable {
        return Check::unknown(ID, "/sys/class cannot be read", "mount /sys");
    }
    if topology.iommus.is_empty() && topology.groups == 0 {
        return Check::ok(ID, "off");
    }
    let kinds: Vec<&String> =
        devices.iter().filter_map(|device| topology.domains.get(&device.address)).collect();
    let passes = topology
        .command_line
        .split_whitespace()
        .any(|word| word == "iommu=pt" || word == "iommu.passthrough=1");
    let text = format!("on ({} groups)", topology.groups);
    if devices.is_empty() {
        return Check::ok(ID, format!("{text}; it matters between a GPU and a card only"));
    }
    if !kinds.is_empty() && kinds.iter().all(|kind| *kind == "identity") || kinds.is_empty() && passes {
        return Check::ok(ID, format!("{text}, passes addresses through"));
    }
    let kinds = kinds.first().map(|kind| format!(", domains of kind {kind}")).unwrap_or_default();
    Check::degraded(
        ID,
        format!("{text}{kinds}: it translates what a card writes to GPU memory, by way of the root complex"),
        "boot with iommu=pt (or off, where nothing else needs it)",
    )
}

fn acs(topology: &Topology, pairs: &[Pair<'_>]) -> Check {
    const ID: &str = "topology.acs";
    let bridges: Vec<&String> =
        pairs.iter().flat_map(|pair| [pair.gpu, pair.card]).flat_map(PciDevice::bridges).collect();
    let of = |bridge: &String| topology.bridges.get(bridge).copied().unwrap_or(Acs::Hidden);
    let redirecting: Vec<&str> = bridges
        .iter()
        .filter(|bridge| matches!(of(bridge), Acs::Set(bits) if bits & REDIRECT != 0))
        .map(|bridge| bridge.as_str())
        .collect();
    if let Some(first) = redirecting.first() {
        return Check::degraded(
            ID,
            format!(
                "{} bridges send traffic between devices up to the root complex ({first})",
                redirecting.len()
            ),
            "turn ACS off for bare metal, in the firmware's setup or by setpci on the bridges (as root); in a \
             virtual machine, enable ATS on card and GPU instead",
        );
    }
    if bridges.iter().any(|bridge| of(bridge) == Acs::Hidden) {
        return Check::unknown(
            ID,
            "the bridges' registers beyond the first 64 bytes are for root only",
            "run as root to know (`lspci -vvv` shows ACSCtl)",
        );
    }
    Check::ok(ID, format!("{} bridges, none redirects", bridges.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Impact, Status};

    fn device(path: &[&str], numa_node: Option<u32>) -> PciDevice {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let address = path.last().cloned().unwrap_or_default();
        PciDevice { address, path, numa_node, bars: Vec::new(), lanes: None, speed: None }
    }

    fn facts(gpu: PciDevice, card: PciDevice) -> Facts {
        let mut facts = crate::facts::none();
        facts.topology.readable = true;
        facts.gpus = vec![gpu];
        facts.cards = vec![CardFacts { name: "mlx5_0".into(), pci: Some(card), ..CardFacts::default() }];
        facts
    }

    fn near() -> Facts {
        facts(
            device(&["pci0000:16", "0000:16:02.0", "0000:17:00.0", "0000:18:00.0", "0000:19:00.0"], Some(0)),
            device(&["pci0000:16", "0000:16:02.0", "0000:17:00.0", "0000:18:01.0", "0000:1a:00.0"], Some(0)),
        )
    }

    fn of<'a>(checks: &'a [Check], id: &str) -> &'a Check {
        checks.iter().find(|check| check.id == id).expect("told")
    }

    #[test]
    fn neighbours_are_fine_and_strangers_are_not() {
        assert_eq!(of(&checks(&near()), "topology.distance").status, Status::Ok);
        let far = facts(
            device(&["pci0000:16", "0000:16:02.0", "0000:19:00.0"], Some(0)),
            device(&["pci0000:a0", "0000:a0:02.0", "0000:a1:00.0"], Some(1)),
        );
        let checks = checks(&far);
        assert!(of(&checks, "topology.distance").evidence.starts_with("SYS"), "{checks:?}");
        assert_eq!(of(&checks, "topology.numa").status, Status::Degraded);
    }

    #[test]
    fn an_iommu_that_translates_costs_and_one_that_passes_does_not() {
        let mut facts = near();
        assert_eq!(of(&checks(&facts), "topology.iommu").status, Status::Ok);
        facts.topology.iommus = vec!["dmar0".into()];
        facts.topology.groups = 40;
        assert_eq!(of(&checks(&facts), "topology.iommu").status, Status::Degraded);
        facts.topology.command_line = "quiet iommu=pt".into();
        assert_eq!(of(&checks(&facts), "topology.iommu").status, Status::Ok);
        facts.topology.domains.insert("0000:19:00.0".into(), "DMA-FQ".into());
        assert_eq!(of(&checks(&facts), "topology.iommu").status, Status::Degraded);
    }

    #[test]
    fn redirecting_bridges_are_named_and_hidden_ones_unknown() {
        let mut facts = near();
        assert_eq!(of(&checks(&facts), "topology.acs").status, Status::Unknown);
        for bridge in ["0000:16:02.0", "0000:17:00.0", "0000:18:00.0", "0000:18:01.0"] {
            facts.topology.bridges.insert(bridge.to_owned(), Acs::Set(0x01));
        }
        assert_eq!(of(&checks(&facts), "topology.acs").status, Status::Ok);
        facts.topology.bridges.insert("0000:18:00.0".to_owned(), Acs::Set(0x1d));
        let checks = checks(&facts);
        assert!(of(&checks, "topology.acs").evidence.contains("0000:18:00.0"), "{checks:?}");
    }

    #[test]
    fn without_a_pair_nothing_is_claimed() {
        let checks = checks(&crate::facts::none());
        assert_eq!(of(&checks, "topology.distance").status, Status::Unknown);
        assert_eq!(of(&checks, "topology.distance").impact, Impact::Nothing);
    }
}
