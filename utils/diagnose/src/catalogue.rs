//! The names of all checks.

/// A check's name and what it asks.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Group and name: `gpu.bar1`.
    pub id: &'static str,
    /// The question, in a few words.
    pub title: &'static str,
}

const fn entry(id: &'static str, title: &'static str) -> Entry {
    Entry { id, title }
}

/// Every check, in the order of reports.
pub const ALL: &[Entry] = &[
    entry("machine.kernel", "Linux is new enough"),
    entry("machine.cpus", "CPUs for spinning threads"),
    entry("machine.memory", "memory for rings"),
    entry("machine.loopback", "the loopback interface"),
    entry("machine.container", "container"),
    entry("machine.vm", "virtual machine"),
    entry("limits.memfd", "memory files can be made and sealed"),
    entry("limits.memlock", "locked memory (for RDMA)"),
    entry("limits.files", "open files (one for each TCP connection)"),
    entry("limits.shm", "size of /dev/shm"),
    entry("limits.somaxconn", "connections that may wait to be accepted"),
    entry("modules.nvidia", "NVIDIA's kernel driver"),
    entry("modules.nvidia_uvm", "the module that CUDA needs"),
    entry("modules.peermem", "GPU memory for network cards by nvidia_peermem"),
    entry("modules.gdrdrv", "GPU memory for the CPU by gdrdrv (GDRCopy)"),
    entry("modules.dmabuf_mmap", "GPU memory for the CPU by dma-buf"),
    entry("modules.rdma", "modules and device files for RDMA"),
    entry("modules.parameters", "parameters of NVIDIA's driver"),
    entry("gpu.driver", "CUDA driver"),
    entry("gpu.devices", "GPUs"),
    entry("gpu.compute", "compute capability"),
    entry("gpu.mode", "who may use the GPU"),
    entry("gpu.registration", "host memory can be registered"),
    entry("gpu.sharing", "GPU memory between programs"),
    entry("gpu.gpudirect", "GPUDirect RDMA"),
    entry("gpu.dmabuf", "dma-buf export"),
    entry("gpu.ordering", "order of a network card's writes"),
    entry("gpu.placement", "rings of rc streams in GPU memory"),
    entry("gpu.bar1", "window for other devices (BAR1)"),
    entry("gpu.link", "PCIe link"),
    entry("rdma.libraries", "libibverbs and librdmacm"),
    entry("rdma.devices", "RDMA devices"),
    entry("rdma.cm", "rdma_cm"),
    entry("rdma.provider", "user-space driver of the card"),
    entry("rdma.port", "port: state, link layer, rate"),
    entry("rdma.gids", "port: addresses (GIDs)"),
    entry("rdma.mtu", "port: packet size"),
    entry("rdma.address", "port: IP address"),
    entry("topology.distance", "PCIe distance between GPU and card"),
    entry("topology.numa", "GPU, card and CPUs on one NUMA node"),
    entry("topology.iommu", "IOMMU"),
    entry("topology.acs", "bridges that redirect traffic between devices"),
    entry("daemon.running", "gpunetd"),
    entry("selftest.ptx", "kernels load"),
    entry("selftest.words", "words between device and CPU"),
    entry("selftest.ring", "bytes through rings, with CRC"),
    entry("selftest.order", "no stale data behind a word"),
    entry("selftest.lines", "no small message in pieces"),
    entry("selftest.streams", "CUDA streams wait for words"),
    entry("selftest.tcp", "echo over TCP"),
    entry("selftest.peer", "echo through memory"),
    entry("selftest.rc", "echo over RDMA"),
];

/// Checks of `--require`, which are in reports only if it is given.
pub const REQUIRED: &[Entry] = &[
    entry("require.gpu", "a GPU that passes its self-tests"),
    entry("require.rdma", "an RDMA device that programs can use"),
    entry("require.gpudirect", "rings of rc streams in GPU memory"),
];

/// The question of a check.
#[must_use]
pub fn title(id: &str) -> &'static str {
    ALL.iter().chain(REQUIRED).find(|entry| entry.id == id).map_or("", |entry| entry.title)
}

/// The groups, in order.
#[must_use]
pub fn groups() -> Vec<&'static str> {
    let mut groups: Vec<_> = ALL.iter().filter_map(|entry| entry.id.split('.').next()).collect();
    groups.dedup();
    groups
}

/// Returns the checks of these ids and groups; all if none is given.
///
/// # Errors
/// A name is unknown; the message lists the known ones.
pub fn select(names: &[String]) -> Result<Vec<&'static str>, String> {
    let unknown =
        |name: &&String| !ALL.iter().any(|entry| entry.id == **name) && !groups().contains(&name.as_str());
    if let Some(name) = names.iter().find(unknown) {
        let ids: Vec<_> = ALL.iter().map(|entry| entry.id).collect();
        return Err(format!(
            "there is no check {name:?}; groups: {}; checks: {}",
            groups().join(", "),
            ids.join(", ")
        ));
    }
    let wanted = |id: &&str| {
        names.is_empty() || names.iter().any(|name| name == id || id.split('.').next() == Some(name.as_str()))
    };
    Ok(ALL.iter().map(|entry| entry.id).filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn ids_and_groups_select_and_wrong_names_list_the_right_ones() {
        assert_eq!(select(&[]).expect("all").len(), ALL.len());
        assert_eq!(select(&names(&["gpu.bar1", "daemon"])).expect("two"), ["gpu.bar1", "daemon.running"]);
        let error = select(&names(&["gpu.bar7"])).expect_err("none");
        assert!(
            error.contains("\"gpu.bar7\"") && error.contains("selftest") && error.contains("gpu.bar1"),
            "{error}"
        );
    }

    #[test]
    fn names_are_unique_and_groups_lie_together() {
        let mut ids: Vec<_> = ALL.iter().map(|entry| entry.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), ALL.len());
        let mut sorted = groups();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), groups().len());
    }
}
