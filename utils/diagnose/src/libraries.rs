//! The answers of libraries and system calls, as data: CUDA, verbs, network interfaces, memory
//! files, a daemon.
//!
//! Each is asked in a child process of its own, so that one that hangs or crashes does not affect
//! the others. The answers are serialised on their way to the parent.

mod ask;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// Everything that was asked.
#[derive(Clone, Debug)]
pub struct Libraries {
    /// CUDA, and the kernel modules that are asked with it.
    pub driver: Result<Driver, NoAnswer>,
    /// libibverbs and librdmacm.
    pub rdma: Result<Rdma, NoAnswer>,
    /// What needs no driver.
    pub system: Result<SystemAnswer, NoAnswer>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// It was not asked for.
    NotAsked(String),
    /// No process could be started to ask.
    NotStarted(String),
    /// The process that asked hung or crashed.
    BrokenOff(String),
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NotAsked(why) | Self::NotStarted(why) | Self::BrokenOff(why)) = self;
        f.write_str(why)
    }
}

impl Libraries {
    /// Nothing was asked.
    #[must_use]
    pub fn not_asked(why: &str) -> Self {
        let none = NoAnswer::NotAsked(why.to_owned());
        Self { driver: Err(none.clone()), rdma: Err(none.clone()), system: Err(none) }
    }

    /// The GPUs that CUDA shows.
    #[must_use]
    pub fn gpus(&self) -> &[Gpu] {
        let cuda = self.driver.as_ref().ok().and_then(|driver| driver.cuda.as_ref().ok());
        cuda.map(|cuda| &cuda.gpus[..]).unwrap_or_default()
    }

    /// The RDMA devices that libibverbs opens.
    #[must_use]
    pub fn cards(&self) -> &[Card] {
        let verbs = self.rdma.as_ref().ok().and_then(|rdma| rdma.verbs.as_ref().ok());
        verbs.map(|cards| &cards[..]).unwrap_or_default()
    }
}

/// The answer of NVIDIA's driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    /// The CUDA driver, or why there is none.
    pub cuda: Result<Cuda, String>,
    /// Whether the CPU can map GPU memory by gdrdrv.
    pub gdrdrv: Result<(), String>,
    /// Whether it can by a dma-buf.
    pub dmabuf_mmap: Result<(), String>,
}

/// The answer of the RDMA libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rdma {
    /// The RDMA devices that libibverbs opens, or why there are none.
    pub verbs: Result<Vec<Card>, NoVerbs>,
    /// Whether an event channel of rdma_cm can be made and a device be opened.
    pub rdma_cm: Result<(), String>,
}

/// The answers of system calls and of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemAnswer {
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

/// The CUDA driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cuda {
    /// Major and minor version of CUDA.
    pub version: (u32, u32),
    /// Kernels are loaded when they are first used, because the user asked for that.
    pub lazy: bool,
    /// The GPUs that this process may use.
    pub gpus: Vec<Gpu>,
    /// GPUs that the driver lists and cannot describe.
    pub failed: Vec<(u32, String)>,
}

/// A GPU. `None`: the driver is too old to tell.
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
    pub placement: RcPlacement,
}

/// Where rings of rc streams lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RcPlacement {
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
pub struct Daemon {
    /// Where it was looked for.
    pub path: String,
    /// What names this path.
    pub by: String,
    /// Programs are told to use it, and do not start without it.
    pub named: bool,
    /// What was there.
    pub found: DaemonFound,
}

/// What was found where a daemon is expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DaemonFound {
    /// It answers.
    Runs {
        /// Its process.
        pid: u32,
        /// Its version.
        version: String,
        /// Its data threads.
        data_threads: u32,
    },
    /// Nobody listens there.
    Absent,
    /// It is there, but does not serve this user.
    Refuses {
        /// In its words.
        why: String,
    },
}

/// A machine without anything, for tests of checks.
#[cfg(test)]
pub(crate) fn nothing() -> Libraries {
    let daemon = Daemon {
        path: "/run/gpunet/gpunetd.sock".to_owned(),
        by: "the system's place".to_owned(),
        named: false,
        found: DaemonFound::Absent,
    };
    Libraries {
        driver: Ok(Driver {
            cuda: Err("no libcuda.so.1".to_owned()),
            gdrdrv: Err("no /dev/gdrdrv".to_owned()),
            dmabuf_mmap: Err("no libcuda.so.1".to_owned()),
        }),
        rdma: Ok(Rdma {
            verbs: Err(NoVerbs { libraries: false, why: "no libibverbs.so.1".to_owned() }),
            rdma_cm: Err("no librdmacm.so.1".to_owned()),
        }),
        system: Ok(SystemAnswer { addresses: Vec::new(), loopback: Some(true), memfd: Ok(()), daemon }),
    }
}

/// A machine whose CUDA shows this, for tests of checks.
#[cfg(test)]
pub(crate) fn with_cuda(cuda: Cuda) -> Libraries {
    let driver = Driver { cuda: Ok(cuda), gdrdrv: Ok(()), dmabuf_mmap: Ok(()) };
    Libraries { driver: Ok(driver), ..nothing() }
}
