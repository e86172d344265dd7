//! What libraries and system calls say, as data: CUDA, verbs, network interfaces, memory files, a daemon.
//!
//! It is asked for in a child process, and so has to survive the way to the parent.

mod ask;

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Everything that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Libraries {
    /// The CUDA driver, or why there is none.
    pub cuda: Result<Cuda, String>,
    /// Whether the CPU can map GPU memory by gdrdrv.
    pub gdrdrv: Result<(), String>,
    /// Whether it can by a dma-buf.
    pub dmabuf_mmap: Result<(), String>,
    /// The RDMA devices that libibverbs opens, or why there are none.
    pub verbs: Result<Vec<Card>, NoVerbs>,
    /// Whether an event channel of rdma_cm can be made and a device be opened.
    pub rdma_cm: Result<(), String>,
    /// Addresses of this machine: interface and address.
    pub addresses: Vec<(String, IpAddr)>,
    /// Whether this network namespace's loopback interface is up. (`/sys` may show another's.)
    pub loopback: Option<bool>,
    /// Whether a sealed memory file can be made.
    pub memfd: Result<(), String>,
    /// A daemon.
    pub daemon: Daemon,
}

/// Why there are no verbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoVerbs {
    /// The libraries are there; what is missing is a device, or the permission to use it.
    pub libraries: bool,
    /// The reason.
    pub why: String,
}

/// What the CUDA driver says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuda {
    /// Major and minor version of CUDA.
    pub version: (u32, u32),
    /// Kernels are loaded when they are first used, because the user wants it so.
    pub lazy: bool,
    /// The GPUs that this process may use.
    pub gpus: Vec<Gpu>,
    /// Those that the driver lists and does not describe.
    pub failed: Vec<(u32, String)>,
}

/// A GPU. `None`: the driver is older than the question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// CUDA's number.
    pub ordinal: u32,
    /// The product.
    pub name: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Bytes.
    pub memory: u64,
    /// As `/sys/bus/pci/devices` spells it.
    pub pci: Option<String>,
    /// Who may use it, if not any number of processes.
    pub restricted: Option<String>,
    /// Host memory can be registered.
    pub host_registration: Option<bool>,
    /// The virtual memory calls work, and give file descriptors.
    pub shareable: Option<bool>,
    /// A network card can reach memory of `cuMemAlloc`.
    pub gpudirect: Option<bool>,
    /// GPU memory can be exported as a dma-buf.
    pub dmabuf: Option<bool>,
    /// Who sees a card's writes in order: `owner`, `all devices`, `nobody`.
    pub ordering: Option<String>,
    /// A running kernel of this GPU sees them in order.
    pub ordered: Option<bool>,
    /// The host can flush them.
    pub flush: Option<bool>,
    /// The rings of rc streams lie there.
    pub placement: Place,
}

/// Where rings of rc streams lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// In GPU memory.
    pub in_gpu_memory: bool,
    /// In words.
    pub chosen: String,
    /// Why not in GPU memory: by dma-buf; by the peer memory module.
    pub not: Vec<String>,
}

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// Such as `mlx5_0`.
    pub name: String,
    /// `InfiniBand` (RoCE too), `iWARP` or another.
    pub transport: String,
    /// libibverbs can register dma-bufs.
    pub dmabuf_call: bool,
    /// Its ports, or why it does not open.
    pub ports: Result<Vec<Port>, String>,
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// From 1.
    pub number: u8,
    /// `Active`, `Init`, `Down`...
    pub state: String,
    /// It runs over Ethernet.
    pub ethernet: bool,
    /// Bytes of a packet.
    pub mtu: Option<u32>,
}

/// What is known of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Daemon {
    /// It answers.
    Runs {
        /// Where.
        path: String,
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
        /// Its data threads.
        data_threads: u32,
    },
    /// Nobody listens there.
    Absent {
        /// Where it was looked for.
        path: String,
    },
    /// It is there, and does not serve this user.
    Refuses {
        /// In its words.
        why: String,
    },
}

/// A machine without anything, for tests of checks.
#[cfg(test)]
pub(crate) fn nothing() -> Libraries {
    Libraries {
        cuda: Err("no libcuda.so.1".to_owned()),
        gdrdrv: Err("no /dev/gdrdrv".to_owned()),
        dmabuf_mmap: Err("no libcuda.so.1".to_owned()),
        verbs: Err(NoVerbs { libraries: false, why: "no libibverbs.so.1".to_owned() }),
        rdma_cm: Err("no librdmacm.so.1".to_owned()),
        addresses: Vec::new(),
        loopback: Some(true),
        memfd: Ok(()),
        daemon: Daemon::Absent { path: "/run/gpunet/gpunetd.sock".to_owned() },
    }
}
