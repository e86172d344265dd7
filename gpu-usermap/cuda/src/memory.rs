//! Memory that a GPU uses, its own and the host's, and the ways to share it with other processes and with network cards.

mod buffer;
mod dmabuf;
mod import;
mod rdma;
mod registration;
mod shareable;

pub use buffer::GpuBuffer;
pub use dmabuf::{DmaBuf, DmabufError, DmabufRoute};
pub use import::{ExportCheck, ImportError, ImportedBuffer};
pub use rdma::{FlushOptions, FlushScope, RdmaAttributes, RdmaCallError, WritesOrdering};
pub use registration::{RegisterError, Registration};
pub use shareable::{NotShareable, ShareableBuffer};
