//! CPU mappings of GPU memory, and the reasons where there are none.
//!
//! With a mapping the proxy stores a word straight into the memory in which a kernel polls: a load
//! from there takes 0.14 us, one from pinned host memory 1.19 us (on an H200). Linux has two ways
//! to get one:
//!
//! | backend | needs | file |
//! |---|---|---|
//! | [`BackendKind::Gdrdrv`] | GDRCopy's kernel module, version 2.0 or later, and permission for `/dev/gdrdrv` | `mapping/gdrdrv.rs` |
//! | [`BackendKind::DmaBuf`] | a CUDA driver of 13.3 or later, with the open kernel modules | `mapping/dmabuf.rs` |
//!
//! [`backends`] returns for each whether it works on this machine, and exactly why not. [`map`]
//! maps. Where neither works, words that the CPU writes lie in pinned host memory instead
//! ([`Device::register`](gpunet_cuda::Device::register)).
//!
//! Neither backend has run yet: the machines this was made on have no `/dev/gdrdrv` and a driver of
//! 13.0. The ABI is that of GDRCopy's sources; copies, words and ranges are tested on ordinary
//! memory.
//!
//! | files | hold |
//! |---|---|
//! | `view`, `copy`, `word`, `barrier` | a mapping: copies, words, and what makes stores leave the CPU |
//! | `pin` | GDRCopy's calls |
//! | `kind`, `error` | the backends by name; why there is no mapping |
//!
//! # Rules for the CPU
//! - **Write, do not read.** Writes are posted and combined; a read is a round trip over the bus of
//!   about a microsecond for every 8 bytes (or 64, with [`Mapping::read`]). Nothing polls through a
//!   mapping.
//! - **No slice, no reference.** A mapping hands out copies and words. The GPU writes the memory at
//!   any time.
//! - **Not in a child process.** gdrdrv's mappings are not inherited by fork, and nobody promises
//!   it of the others.

mod barrier;
mod copy;
mod dmabuf;
mod error;
mod gdrdrv;
mod kind;
mod pin;
#[cfg(test)]
mod tests;
mod view;
mod word;

use std::ops::Range;
use std::path::Path;

use gpunet_cuda::{Cuda, DeviceAttribute, DeviceQuery, GpuBuffer, Unavailable};

pub use error::{AccessError, GdrdrvVersion, MappingUnavailable, NotMapped};
pub use kind::BackendKind;
pub use view::{Mapping, MemoryType};
pub use word::MappedWord;

/// Where the kernel module puts its device file.
const GDRDRV: &str = "/dev/gdrdrv";

/// The backends that [`map`] may try.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::mapping::{BackendChoice, map};
///
/// # let buffer = gpu_usermap::cuda::Cuda::load()?.device(0)?.alloc(4096)?;
/// let mapping = map(&buffer, 0..4096, BackendChoice::Gdrdrv)?;
/// # drop(mapping);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// gdrdrv, then the dma-buf: the module is proven, mapping dma-bufs is new.
    #[default]
    Auto,
    /// Only gdrdrv.
    Gdrdrv,
    /// Only the dma-buf.
    DmaBuf,
    /// None: the words stay in pinned host memory.
    None,
}

impl BackendChoice {
    fn allows(self, kind: BackendKind) -> bool {
        match self {
            Self::Auto => true,
            Self::Gdrdrv => kind == BackendKind::Gdrdrv,
            Self::DmaBuf => kind == BackendKind::DmaBuf,
            Self::None => false,
        }
    }
}

/// One way to map GPU memory, and whether it works here.
///
/// # Examples
/// ```
/// use gpu_usermap::mapping::backends;
///
/// for backend in backends() {
///     match backend.usable {
///         Ok(()) => println!("{} works", backend.kind),
///         Err(why) => println!("{} does not: {why}", backend.kind),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Which backend.
    pub kind: BackendKind,
    /// `Ok` if [`map`] can try it on this machine, otherwise why not. A buffer may still be
    /// refused, for its address or for lack of room.
    pub usable: Result<(), MappingUnavailable>,
}

/// Returns the ways to map GPU memory on this machine, in the order in which [`map`] tries them.
pub fn backends() -> Vec<Backend> {
    backends_with(&Cuda::load())
}

pub(crate) fn backends_with(cuda: &Result<Cuda, Unavailable>) -> Vec<Backend> {
    vec![
        Backend { kind: BackendKind::Gdrdrv, usable: gdrdrv::check(Path::new(GDRDRV)) },
        Backend { kind: BackendKind::DmaBuf, usable: dmabuf_anywhere(cuda) },
    ]
}

fn dmabuf_anywhere(cuda: &Result<Cuda, Unavailable>) -> Result<(), MappingUnavailable> {
    let cuda = cuda.as_ref().map_err(|why| MappingUnavailable::NoDriver(why.clone()))?;
    dmabuf::check_version(cuda.driver_version())?;
    let exports = |ordinal| {
        DeviceQuery::new(cuda, ordinal)
            .and_then(|gpu| gpu.attribute(DeviceAttribute::DmaBuf))
            .is_ok_and(|value| value != 0)
    };
    match cuda.device_count().is_ok_and(|count| (0..count).any(exports)) {
        true => Ok(()),
        false => Err(MappingUnavailable::Export(gpunet_cuda::DmabufError::Unsupported)),
    }
}

/// Maps a part of a buffer, given in bytes from its start, into this process.
///
/// It makes system calls on the calling thread, and for a dma-buf one call on the device's agent
/// thread; none of them waits for a running kernel. The mapping shares the buffer and is undone
/// before the buffer is freed. It takes address space in the GPU's BAR1 (64 KiB pages with gdrdrv),
/// of which some GPUs have only 256 MiB.
///
/// # Errors
/// [`NotMapped`] has the reason of each backend. A range that is not within the buffer is a mistake
/// of the caller ([`MappingUnavailable::OutOfBounds`]); the rest are facts of the machine, after
/// which pinned memory serves.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::cuda::Cuda;
/// use gpu_usermap::mapping::{BackendChoice, map};
///
/// let buffer = Cuda::load()?.device(0)?.alloc(2 << 20)?;
/// let mut mapping = map(&buffer, 0..4096, BackendChoice::Auto)?;
/// mapping.write(0, b"from the CPU")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn map(buffer: &GpuBuffer, range: Range<usize>, choice: BackendChoice) -> Result<Mapping, NotMapped> {
    map_at(Path::new(GDRDRV), buffer, range, choice)
}

fn map_at(
    gdrdrv: &Path,
    buffer: &GpuBuffer,
    range: Range<usize>,
    choice: BackendChoice,
) -> Result<Mapping, NotMapped> {
    let mut reasons = Vec::new();
    for kind in [BackendKind::Gdrdrv, BackendKind::DmaBuf] {
        let tried = check(buffer, &range, choice.allows(kind)).and_then(|()| match kind {
            BackendKind::Gdrdrv => gdrdrv::map(gdrdrv, buffer, range.clone()),
            BackendKind::DmaBuf => dmabuf::map(buffer, range.clone()),
        });
        match tried {
            Ok(mapping) => return Ok(mapping),
            Err(reason) => reasons.push((kind, reason)),
        }
    }
    Err(NotMapped { reasons })
}

fn check(buffer: &GpuBuffer, range: &Range<usize>, allowed: bool) -> Result<(), MappingUnavailable> {
    if !allowed {
        return Err(MappingUnavailable::NotWanted);
    }
    if range.start >= range.end || range.end > buffer.len() {
        let (start, end) = (range.start, range.end);
        return Err(MappingUnavailable::OutOfBounds { start, end, size: buffer.len() });
    }
    if !barrier::KNOWN {
        return Err(MappingUnavailable::NoStoreFence { arch: std::env::consts::ARCH });
    }
    Ok(())
}
