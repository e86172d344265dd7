//! Where the rings of RDMA connections lie, and why not elsewhere.
//!
//! | placement | the card finds the memory by | a byte travels |
//! |---|---|---|
//! | [`Placement::GpuDmaBuf`] | `ibv_reg_dmabuf_mr` of [`GpuBuffer::export_dmabuf`](gpunet_cuda::GpuBuffer::export_dmabuf) | card to GPU |
//! | [`Placement::GpuPeerMem`] | `ibv_reg_mr` of the GPU's address, which NVIDIA's peer memory module resolves | card to GPU |
//! | [`Placement::Pinned`] | `ibv_reg_mr` of a [`PinnedRegion`](crate::PinnedRegion) | card to host memory, host memory to GPU |
//!
//! [`choose`] is a pure function of [`Facts`], so that every case is tested without hardware.
//! Neither GPU placement has run yet, for lack of a machine with a GPU and an RDMA card. One fact
//! is known only by trying, whether the card's driver takes dma-bufs
//! ([`Facts::card_takes_dmabuf`]): the caller that registers memory sets it after a refusal, and
//! chooses again.

mod system;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use gpunet_cuda::{Device, FlushOptions, RdmaAttributes, WritesOrdering};

pub use system::{KernelVersion, System};

/// The first Linux with `UVERBS_METHOD_REG_DMABUF_MR` (5.12).
const DMABUF_KERNEL: KernelVersion = KernelVersion { major: 5, minor: 12 };

/// Where rings lie, and how a card is told of them.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::Placement;
///
/// assert_eq!(Placement::Pinned.to_string(), "pinned host memory");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Placement {
    /// In GPU memory, registered as a dma-buf.
    GpuDmaBuf,
    /// In GPU memory, registered through NVIDIA's peer memory module.
    GpuPeerMem,
    /// In pinned host memory. Works with every card and every GPU.
    Pinned,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GpuDmaBuf => "GPU memory by dma-buf",
            Self::GpuPeerMem => "GPU memory by peer memory module",
            Self::Pinned => "pinned host memory",
        })
    }
}

/// The placement that a program asks for. It parses from `auto`, `dma-buf`, `peer-mem` and
/// `pinned`.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Placement, PlacementChoice};
///
/// assert_eq!("pinned".parse(), Ok(PlacementChoice::Only(Placement::Pinned)));
/// assert_eq!(PlacementChoice::default(), PlacementChoice::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PlacementChoice {
    /// The first that works, in the order of [`Placement`].
    #[default]
    Auto,
    /// That one, or an error.
    Only(Placement),
}

impl FromStr for PlacementChoice {
    type Err = UnknownPlacement;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "auto" => Self::Auto,
            "dma-buf" => Self::Only(Placement::GpuDmaBuf),
            "peer-mem" => Self::Only(Placement::GpuPeerMem),
            "pinned" => Self::Only(Placement::Pinned),
            _ => return Err(UnknownPlacement(text.to_owned())),
        })
    }
}

/// A text that names no placement.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::PlacementChoice;
///
/// let error = "gpu".parse::<PlacementChoice>().unwrap_err();
/// assert_eq!(error.to_string(), r#"unknown placement "gpu"; expected auto, dma-buf, peer-mem or pinned"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown placement {0:?}; expected auto, dma-buf, peer-mem or pinned")]
pub struct UnknownPlacement(pub String);

/// Everything that the choice depends on.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, Placement, Reason, why_not};
///
/// let no_gpu = Facts::default();
/// assert!(why_not(&no_gpu, Placement::GpuDmaBuf).contains(&Reason::NoGpu));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// What the GPU offers; `None` without a GPU.
    pub gpu: Option<RdmaAttributes>,
    /// What the machine offers.
    pub system: System,
    /// Whether the card's driver registers dma-bufs; `None` before the first try, which counts as
    /// yes.
    pub card_takes_dmabuf: Option<bool>,
}

impl Facts {
    /// Gathers the facts of a device and of the machine. Makes no context call.
    pub fn gather(device: Option<&Device>) -> Self {
        Self { gpu: device.map(Device::rdma_attributes), system: System::detect(), card_takes_dmabuf: None }
    }
}

/// Why a placement does not work.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, Placement, why_not};
///
/// for reason in why_not(&Facts::gather(None), Placement::GpuDmaBuf) {
///     println!("no rings in GPU memory: {reason}");
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no GPU.
    #[error("no GPU")]
    NoGpu,
    /// There is no RDMA device.
    #[error("no RDMA device (/sys/class/infiniband is empty)")]
    NoCard,
    /// The GPU's memory cannot be exported.
    #[error("the GPU does not export dma-bufs (it needs the open GPU kernel modules)")]
    NoDmabufExport,
    /// The kernel has no call to register a dma-buf.
    #[error("Linux {found} does not register dma-bufs ({needed} is needed)")]
    KernelTooOld {
        /// The running kernel.
        found: KernelVersion,
        /// The oldest that would do.
        needed: KernelVersion,
    },
    /// The card's driver refused a dma-buf.
    #[error("the card's driver does not register dma-bufs")]
    CardRefusesDmabuf,
    /// The GPU does not support GPUDirect RDMA.
    #[error("the GPU does not support GPUDirect RDMA")]
    NoGpuDirect,
    /// The peer memory module is not loaded.
    #[error("neither nvidia_peermem nor nv_peer_mem is loaded")]
    NoPeerModule,
    /// A running kernel could see the word before the data, and the host cannot prevent it.
    #[error("the GPU does not see a card's writes in order, and the host cannot flush them")]
    Unordered,
    /// It would work with a flush for every message, which [`PlacementChoice::Auto`] does not take.
    #[error("every message would need a flush by the host, so it is used only when asked for")]
    NeedsFlush,
}

/// Error of [`choose`]: the wanted placement does not work here.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, Placement, PlacementChoice, Reason, choose};
///
/// let wanted = PlacementChoice::Only(Placement::GpuPeerMem);
/// let refused = choose(&Facts::default(), wanted).unwrap_err();
/// assert!(refused.reasons.contains(&Reason::NoGpu));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{placement}: {}", join(reasons))]
pub struct PlacementRefused {
    /// The one that was wanted.
    pub placement: Placement,
    /// Why it does not work, at least one.
    pub reasons: Vec<Reason>,
}

/// Chooses where rings lie.
///
/// [`PlacementChoice::Auto`] never fails: pinned memory always works. [`why_not`] returns why it
/// passed over the others.
///
/// # Errors
/// [`PlacementRefused`] if one placement was wanted and does not work here.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, Placement, PlacementChoice, choose};
///
/// let facts = Facts::default(); // a machine without GPU and RDMA
/// assert_eq!(choose(&facts, PlacementChoice::Auto), Ok(Placement::Pinned));
/// let refused = choose(&facts, PlacementChoice::Only(Placement::GpuDmaBuf)).unwrap_err();
/// assert!(refused.to_string().starts_with("GPU memory by dma-buf: no GPU, no RDMA device"));
/// ```
pub fn choose(facts: &Facts, wanted: PlacementChoice) -> Result<Placement, PlacementRefused> {
    match wanted {
        PlacementChoice::Auto => {
            let mut gpu = [Placement::GpuDmaBuf, Placement::GpuPeerMem].into_iter();
            Ok(gpu.find(|&placement| why_not(facts, placement).is_empty()).unwrap_or(Placement::Pinned))
        }
        PlacementChoice::Only(placement) => {
            let mut reasons = why_not(facts, placement);
            reasons.retain(|reason| *reason != Reason::NeedsFlush);
            match reasons.is_empty() {
                true => Ok(placement),
                false => Err(PlacementRefused { placement, reasons }),
            }
        }
    }
}

/// Returns every reason against a placement; none if [`PlacementChoice::Auto`] may take it.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, Placement, why_not};
///
/// assert_eq!(why_not(&Facts::default(), Placement::Pinned), [], "pinned memory always works");
/// ```
pub fn why_not(facts: &Facts, placement: Placement) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if placement == Placement::Pinned {
        return reasons;
    }
    let mut unless = |fine: bool, reason: Reason| {
        if !fine {
            reasons.push(reason);
        }
    };
    unless(facts.gpu.is_some(), Reason::NoGpu);
    unless(!facts.system.rdma_devices.is_empty(), Reason::NoCard);
    if let (Placement::GpuDmaBuf, Some(found)) = (placement, facts.system.kernel) {
        unless(found >= DMABUF_KERNEL, Reason::KernelTooOld { found, needed: DMABUF_KERNEL });
    }
    if placement == Placement::GpuDmaBuf {
        unless(facts.card_takes_dmabuf != Some(false), Reason::CardRefusesDmabuf);
    } else {
        unless(facts.system.peer_module.is_some(), Reason::NoPeerModule);
    }
    if let Some(gpu) = &facts.gpu {
        match placement {
            Placement::GpuDmaBuf => unless(gpu.dma_buf == Some(true), Reason::NoDmabufExport),
            _ => unless(gpu.gpu_direct == Some(true), Reason::NoGpuDirect),
        }
        match flush_of(gpu) {
            Flush::Needless => {}
            Flush::Needed => reasons.push(Reason::NeedsFlush),
            Flush::Impossible => reasons.push(Reason::Unordered),
        }
    }
    reasons
}

/// Returns whether every message in GPU memory needs
/// [`Device::flush_gpudirect_rdma_writes`](gpunet_cuda::Device::flush_gpudirect_rdma_writes)
/// between its completion and its word.
///
/// # Examples
/// ```
/// use gpu_usermap::placement::{Facts, needs_flush};
///
/// assert!(!needs_flush(&Facts::default()), "there is no GPU");
/// ```
pub fn needs_flush(facts: &Facts) -> bool {
    facts.gpu.as_ref().is_some_and(|gpu| flush_of(gpu) != Flush::Needless)
}

#[derive(PartialEq, Eq)]
enum Flush {
    Needless,
    Needed,
    Impossible,
}

/// A driver that does not tell (before 11.3), or tells something unknown, counts as the worst case.
fn flush_of(gpu: &RdmaAttributes) -> Flush {
    if gpu.writes_ordering.is_some_and(WritesOrdering::ordered_for_owner) {
        Flush::Needless
    } else if gpu.flush_options.is_some_and(FlushOptions::from_host) {
        Flush::Needed
    } else {
        Flush::Impossible
    }
}

pub(crate) fn join(reasons: &[Reason]) -> String {
    reasons.iter().map(Reason::to_string).collect::<Vec<_>>().join(", ")
}
