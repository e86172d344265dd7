//! The ways to map GPU memory, by name.

use std::fmt;

/// A way to map GPU memory.
///
/// # Examples
/// ```
/// use gpu_usermap::mapping::BackendKind;
///
/// assert_eq!(BackendKind::DmaBuf.to_string(), "dma-buf mmap");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// GDRCopy's kernel module.
    Gdrdrv,
    /// `mmap` of an exported dma-buf.
    DmaBuf,
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gdrdrv => "gdrdrv",
            Self::DmaBuf => "dma-buf mmap",
        })
    }
}
