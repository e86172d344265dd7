//! Memory that a GPU uses, its own and the host's, and the ways to share it with other processes
//! and with network cards.
//!
//! | file | holds |
//! |---|---|
//! | `buffer` | GPU memory: allocation and copies |
//! | `registration` | host memory that a GPU reaches |
//! | `shareable`, `import` | memory that others can map; memory of others |
//! | `growing` | addresses to which such memory comes in pieces |
//! | `dmabuf`, `rdma` | memory that other drivers reach; what the writes of a network card need |

mod buffer;
mod dmabuf;
mod growing;
mod import;
mod rdma;
mod registration;
mod shareable;

pub use buffer::GpuBuffer;
pub(crate) use dmabuf::owned;
pub use dmabuf::{DmaBuf, DmabufError, DmabufRoute};
pub use growing::GrowingBuffer;
pub use import::{ExportCheck, ImportError, ImportedBuffer};
pub use rdma::{FlushOptions, FlushScope, RdmaAttributes, RdmaCallError, WritesOrdering};
pub use registration::{RegisterError, Registration};
pub use shareable::{NotShareable, ShareableBuffer};
