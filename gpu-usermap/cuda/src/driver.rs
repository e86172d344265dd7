//! The driver's library, opened at run time: its functions and constants, what it answers, and how
//! it was set up.
//!
//! | file | holds |
//! |---|---|
//! | `library`, `version` | the library, loaded and initialised; versions of CUDA |
//! | `raw` | symbols, types, constants |
//! | `calls` | one method per call, with a result |
//! | `error` | what the driver answers instead of one |
//! | `environment` | what the environment tells the driver |
//! | `registry` | the devices that a program has opened |

mod calls;
mod environment;
mod error;
mod library;
pub(crate) mod raw;
mod registry;
mod version;

pub(crate) use calls::{Driver, LinkLog, StreamState, Streams};
pub use environment::LazyLoading;
#[cfg(any(test, feature = "fake"))]
pub(crate) use environment::StreamSettings;
pub(crate) use error::log;
pub use error::{CopyError, CudaError, SymbolError, SymbolKind, Unavailable};
pub use library::Cuda;
pub use raw::IpcHandle;
pub use version::DriverVersion;
