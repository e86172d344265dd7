//! Errors of rings.

use gpu_usermap::RegionError;
use gpu_usermap::cuda::RegisterError;
use gpunet_proxy::AllocError;

/// Why rings cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Such rings cannot be.
    #[error(
        "no rings of {records} records with payloads of {payload} bytes: at most 1048576 records, and {longest} bytes",
        longest = gpunet_records::Shape::MAX_PAYLOAD
    )]
    Shape {
        /// Records of a ring.
        records: u32,
        /// Bytes of a payload.
        payload: usize,
    },
    /// There are too many formats.
    #[error("{formats} formats and {texts} texts: 32768 at most together")]
    Texts {
        /// Formats of the table.
        formats: usize,
        /// Formats whose texts kernels write.
        texts: u32,
    },
    /// There is no pinned memory for them.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// CUDA does not take the pinned memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// There is no device memory for them.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}
