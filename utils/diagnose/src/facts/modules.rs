//! Kernel modules, their device files and parameters.

use crate::system::{Opens, System};

/// Facts of modules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modules {
    /// `/sys/module` can be read.
    pub readable: bool,
    /// NVIDIA's driver: its version, if loaded.
    pub nvidia: Option<String>,
    /// Its kind: the open kernel modules, or not; `None` if it does not say.
    pub nvidia_open: Option<bool>,
    /// The module that CUDA needs beside it.
    pub nvidia_uvm: bool,
    /// `/dev/nvidiactl` and `/dev/nvidia-uvm`.
    pub nvidia_files: [Opens; 2],
    /// The loaded peer memory module, and its version.
    pub peermem: Option<String>,
    /// gdrdrv's version, if loaded.
    pub gdrdrv: Option<String>,
    /// gdrdrv's device file.
    pub gdrdrv_file: Opens,
    /// Modules for RDMA that are not loaded.
    pub rdma_missing: Vec<String>,
    /// `/dev/infiniband/rdma_cm`.
    pub rdma_cm_file: Opens,
    /// The driver's parameters that matter, as it reports them: name and value.
    pub parameters: Option<Vec<(String, String)>>,
}

impl Default for Modules {
    fn default() -> Self {
        Self::read(&System::under(std::path::Path::new("/nonexistent")))
    }
}

/// What RDMA programs need from the kernel.
const RDMA: [&str; 4] = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_ucm"];
/// Where peer memory shows: the modules, then the list of MLNX_OFED's own interface.
const PEERMEM: [&str; 2] = ["nvidia_peermem", "nv_peer_mem"];
const PEERS: [&str; 2] = ["/sys/kernel/mm/memory_peers/nv_mem", "/sys/kernel/mm/memory_peers/nv_mem_nc"];
/// Parameters that this tool has something to say about.
const PARAMETERS: [&str; 3] = ["RegistryDwords", "EnableStreamMemOPs", "GrdmaPciTopoCheckOverride"];

impl Modules {
    /// Reads them.
    #[must_use]
    pub fn read(system: &System) -> Self {
        let loaded = |name: &str| {
            let version = || system.module_version(name).unwrap_or_else(|| "version unknown".to_owned());
            system.has_module(name).then(version)
        };
        let named = |name: &&str| loaded(name).map(|version| format!("{name} {version}"));
        let peers = || PEERS.iter().find(|path| system.exists(path)).map(|path| (*path).to_owned());
        let about = system.read("/proc/driver/nvidia/version");
        let parameters = system.read("/proc/driver/nvidia/params").map(|text| {
            let pair = |line: &str| {
                let (name, value) = line.split_once(':')?;
                let wanted = PARAMETERS.contains(&name.trim());
                wanted.then(|| (name.trim().to_owned(), value.trim().trim_matches('"').to_owned()))
            };
            text.lines().filter_map(pair).collect()
        });
        Self {
            readable: !system.list("/sys/module").is_empty(),
            nvidia: loaded("nvidia"),
            nvidia_open: about.map(|text| text.contains("Open Kernel Module")),
            nvidia_uvm: system.has_module("nvidia_uvm"),
            nvidia_files: ["/dev/nvidiactl", "/dev/nvidia-uvm"].map(|path| system.opens(path)),
            peermem: PEERMEM.iter().find_map(named).or_else(peers),
            gdrdrv: loaded("gdrdrv"),
            gdrdrv_file: system.opens("/dev/gdrdrv"),
            rdma_missing: RDMA
                .into_iter()
                .filter(|name| !system.has_module(name))
                .map(str::to_owned)
                .collect(),
            rdma_cm_file: system.opens("/dev/infiniband/rdma_cm"),
            parameters,
        }
    }
}
