//! The errors of the programs.

use gpunet_app::error::AppError;
use gpunet_records_host::wire::WireError;
use std::io;

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error that any of the programs can have.
    #[error(transparent)]
    App(AppError),
    /// There are no rings.
    #[error(transparent)]
    Rings(gpunet_records_host::Error),
    /// Collectors cannot connect, or this one cannot.
    #[error("{0}: {1}")]
    Address(String, io::Error),
    /// What it was sent is no stream of records.
    #[error(transparent)]
    Wire(WireError),
    /// The trace cannot be written.
    #[error("cannot write {0}: {1}; name another file by --trace")]
    Trace(String, io::Error),
    /// The system refuses a thread.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// Records are not what was written.
    #[error("{0}")]
    Differs(String),
}

impl<E> From<E> for Error
where
    AppError: From<E>,
{
    fn from(error: E) -> Self {
        Self::App(error.into())
    }
}
