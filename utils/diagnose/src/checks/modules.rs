//! Kernel modules, their device files and parameters.

use super::no_driver;
use crate::check::Check;
use crate::facts::{Facts, Modules};
use crate::libraries::{Driver, Libraries, NoAnswer};
use crate::system::Opens;

pub fn checks(facts: &Facts) -> Vec<Check> {
    let modules = &facts.modules;
    let on_bus = !facts.gpus.is_empty();
    let with_cards = !facts.cards.is_empty();
    let dmabuf = dmabuf_serves(&facts.libraries);
    vec![
        nvidia(modules, on_bus),
        nvidia_uvm(modules),
        peermem(modules, with_cards && on_bus, dmabuf),
        gdrdrv(modules, facts.libraries.driver.as_ref().ok()),
        dmabuf_mmap(&facts.libraries.driver),
        rdma(modules),
        parameters(modules),
    ]
}

fn dmabuf_serves(libraries: &Libraries) -> bool {
    let gpus = libraries.gpus();
    !gpus.is_empty() && gpus.iter().all(|gpu| gpu.dmabuf == Some(true))
}

fn nvidia(modules: &Modules, on_bus: bool) -> Check {
    const ID: &str = "modules.nvidia";
    match (&modules.nvidia, modules.nvidia_open) {
        (Some(version), Some(true)) => Check::ok(ID, format!("{version}, open kernel modules")),
        (Some(version), Some(false)) => Check::degraded(
            ID,
            format!("{version}, proprietary kernel modules: they export no dma-bufs"),
            "install the open kernel modules (nvidia-open; Turing or newer)",
        ),
        (Some(version), None) => Check::ok(ID, version.clone()),
        (None, _) if !modules.readable => Check::unknown(ID, "/sys/module cannot be read", "mount /sys"),
        (None, _) if on_bus => Check::missing(
            ID,
            "not loaded, and there is an NVIDIA GPU",
            "install the NVIDIA driver; modprobe nvidia (as root); `dmesg` says why it does not load",
        ),
        (None, _) => Check::missing(ID, "not loaded", "nothing to do without an NVIDIA GPU"),
    }
}

fn nvidia_uvm(modules: &Modules) -> Check {
    const ID: &str = "modules.nvidia_uvm";
    if modules.nvidia.is_none() {
        return Check::unknown(ID, "no NVIDIA driver", "see modules.nvidia");
    }
    let files = ["/dev/nvidiactl", "/dev/nvidia-uvm"].into_iter().zip(modules.nvidia_files);
    for (file, opens) in files {
        match opens {
            Opens::Yes => {}
            Opens::Absent => {
                let advice =
                    "nvidia-modprobe -u -c 0 (as root); in a container, start it with the GPU (--gpus all)";
                return Check::missing(ID, format!("{file} is missing"), advice);
            }
            Opens::Denied => {
                let advice = format!("give this user read and write permission for {file}");
                return Check::missing(ID, format!("no permission to open {file}"), advice);
            }
        }
    }
    if !modules.nvidia_uvm {
        return Check::missing(ID, "nvidia_uvm is not loaded", "modprobe nvidia_uvm (as root)");
    }
    Check::ok(ID, "loaded, device files open")
}

fn peermem(modules: &Modules, with_both: bool, dmabuf: bool) -> Check {
    const ID: &str = "modules.peermem";
    if let Some(name) = &modules.peermem {
        return Check::ok(ID, format!("{name}, loaded"));
    }
    if !modules.readable {
        return Check::unknown(ID, "/sys/module cannot be read", "mount /sys");
    }
    let advice = "modprobe nvidia_peermem (as root); it replaces nv_peer_mem";
    match (with_both, dmabuf) {
        (true, true) => Check::missing(ID, "not loaded, and not needed: dma-bufs do it", advice).harmless(),
        (true, false) => Check::missing(ID, "not loaded", advice),
        (false, _) => {
            Check::missing(ID, "not loaded, and not needed without both a GPU and an RDMA device", advice)
                .harmless()
        }
    }
}

/// Mapping of GPU memory by the CPU, which nothing needs yet.
fn gdrdrv(modules: &Modules, driver: Option<&Driver>) -> Check {
    const ID: &str = "modules.gdrdrv";
    let advice = "optional: install GDRCopy 2.0 or later (gdrdrv-dkms) and let this user open /dev/gdrdrv";
    let version = modules.gdrdrv.as_deref();
    match (version, modules.gdrdrv_file, driver.map(|driver| &driver.gdrdrv)) {
        (Some(version), Opens::Yes, Some(Ok(()))) => Check::ok(ID, format!("{version}, answers")),
        (_, Opens::Yes, Some(Ok(()))) => Check::ok(ID, "answers"),
        (_, _, Some(Err(why))) => {
            let loaded = version.map(|version| format!("gdrdrv {version} loaded: ")).unwrap_or_default();
            Check::missing(ID, format!("{loaded}{why}; words stay in pinned memory"), advice).harmless()
        }
        (Some(version), Opens::Yes, None) => {
            Check::unknown(ID, format!("{version}, not asked"), advice).harmless()
        }
        (_, Opens::Denied, _) => Check::missing(ID, "no permission to open /dev/gdrdrv", advice).harmless(),
        _ => Check::missing(ID, "/dev/gdrdrv is missing", advice).harmless(),
    }
}

fn dmabuf_mmap(driver: &Result<Driver, NoAnswer>) -> Check {
    const ID: &str = "modules.dmabuf_mmap";
    match driver {
        Err(why) => no_driver(ID, why).harmless(),
        Ok(driver) => match &driver.dmabuf_mmap {
            Ok(()) => Check::ok(ID, "the driver maps dma-bufs"),
            Err(why) => {
                let advice = "optional: a driver for CUDA 13.3 or later, with the open kernel modules";
                Check::missing(ID, format!("{why}; words stay in pinned memory"), advice).harmless()
            }
        },
    }
}

fn rdma(modules: &Modules) -> Check {
    const ID: &str = "modules.rdma";
    if !modules.readable {
        return Check::unknown(ID, "/sys/module cannot be read", "mount /sys");
    }
    let missing = modules.rdma_missing.join(", ");
    match modules.rdma_cm_file {
        // Built into the kernel, they do not show as modules.
        Opens::Yes => Check::ok(ID, "/dev/infiniband/rdma_cm opens"),
        Opens::Denied => Check::missing(
            ID,
            "no permission to open /dev/infiniband/rdma_cm",
            "let this user read and write the files in /dev/infiniband",
        ),
        Opens::Absent if missing.is_empty() => Check::missing(
            ID,
            "modules are loaded, /dev/infiniband/rdma_cm is missing",
            "in a container, give it /dev/infiniband (--device)",
        ),
        Opens::Absent => Check::missing(
            ID,
            format!("not loaded: {missing}"),
            "modprobe rdma_ucm ib_uverbs (as root), with a card",
        ),
    }
}

/// None of them is needed: gpunet does otherwise what they were for.
fn parameters(modules: &Modules) -> Check {
    const ID: &str = "modules.parameters";
    let Some(parameters) = &modules.parameters else {
        let why = "/proc/driver/nvidia/params cannot be read";
        return Check::unknown(ID, why, "gpunet needs no parameter of the driver").harmless();
    };
    let value = |name: &str| parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    let registry = value("RegistryDwords").unwrap_or_default();
    let mapping = if registry.contains("PeerMappingOverride=1") { "1" } else { "not set" };
    let memops = value("EnableStreamMemOPs").unwrap_or("gone");
    Check::ok(
        ID,
        format!(
            "PeerMappingOverride {mapping}, EnableStreamMemOPs {memops}: neither is needed (no GPU rings a card's \
             doorbell, and CUDA 12 has its memory operations always)"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{Impact, Status};

    fn modules() -> Modules {
        Modules { readable: true, ..Modules::default() }
    }

    #[test]
    fn a_gpu_without_a_driver_is_told_from_a_machine_without_a_gpu() {
        assert!(nvidia(&modules(), true).evidence.contains("there is an NVIDIA GPU"));
        assert!(nvidia(&modules(), false).advice.expect("advice").contains("nothing to do"));
        let closed = Modules { nvidia: Some("570.1".into()), nvidia_open: Some(false), ..modules() };
        assert_eq!(nvidia(&closed, true).status, Status::Degraded);
    }

    #[test]
    fn peermem_matters_only_where_a_card_has_no_other_way() {
        assert_eq!(peermem(&modules(), true, false).impact, Impact::Costs);
        assert_eq!(peermem(&modules(), true, true).impact, Impact::Nothing);
        assert_eq!(peermem(&modules(), false, false).impact, Impact::Nothing);
        let loaded = Modules { peermem: Some("nvidia_peermem 580".into()), ..modules() };
        assert_eq!(peermem(&loaded, true, false).status, Status::Ok);
    }

    #[test]
    fn device_files_of_the_driver_are_asked_for() {
        let loaded = Modules { nvidia: Some("580".into()), nvidia_uvm: true, ..modules() };
        assert!(nvidia_uvm(&loaded).evidence.contains("/dev/nvidiactl is missing"));
        let closed = Modules { nvidia_files: [Opens::Yes, Opens::Denied], ..loaded.clone() };
        assert!(nvidia_uvm(&closed).evidence.contains("no permission to open /dev/nvidia-uvm"));
        let open = Modules { nvidia_files: [Opens::Yes; 2], ..loaded };
        assert_eq!(nvidia_uvm(&open).status, Status::Ok);
        assert_eq!(nvidia_uvm(&modules()).status, Status::Unknown);
    }

    #[test]
    fn parameters_of_old_are_shown_and_not_demanded() {
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let parameters_of = |pairs| parameters(&Modules { parameters: Some(pairs), ..modules() });
        let check = parameters_of(vec![
            set("RegistryDwords", "PeerMappingOverride=1;"),
            set("EnableStreamMemOPs", "0"),
        ]);
        assert_eq!(check.status, Status::Ok);
        assert!(check.evidence.contains("PeerMappingOverride 1, EnableStreamMemOPs 0"), "{check:?}");
        assert_eq!(parameters_of(Vec::new()).status, Status::Ok);
        assert_eq!(parameters(&modules()).status, Status::Unknown);
    }

    #[test]
    fn what_rdma_lacks_is_named() {
        assert!(rdma(&modules()).evidence.contains("ib_uverbs"));
        let denied = Modules { rdma_cm_file: Opens::Denied, ..modules() };
        assert!(rdma(&denied).evidence.contains("no permission"));
    }
}
