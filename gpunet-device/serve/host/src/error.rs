//! Errors of a server.

use gpu_usermap::RegionError;
use gpu_usermap::cuda::{CopyError, RegisterError};
use gpunet_proxy::{AllocError, KernelError, LaunchError};
use std::net::SocketAddr;
use std::time::Duration;

/// Why a server cannot be started, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server cannot listen on the address.
    #[error("cannot listen on {addr}: {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The errno.
        error: gpunet_device::Error,
    },
    /// All blocks would be workers.
    #[error("of {blocks} blocks, {workers} are workers: none is left to serve connections")]
    Workers {
        /// Blocks of the launch.
        blocks: u32,
        /// Those that the service wants as workers.
        workers: u32,
    },
    /// It did not report within this time whether it listens.
    #[error("the server's kernel did not start within {0:?}")]
    NotStarted(Duration),
    /// It did not end within this time after it was cancelled.
    #[error("the server's kernel did not end within {0:?} after it was cancelled")]
    Stuck(Duration),
    /// A block ended although it was not asked to.
    #[error("block {block} of the server ended: {error}")]
    Ended {
        /// Which.
        block: u32,
        /// Why.
        error: gpunet_device::Error,
    },
    /// Device memory.
    #[error(transparent)]
    Memory(#[from] AllocError),
    /// The copy of the data to the device.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The launch.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The kernel failed.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The memory for counters and log.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The same, on a GPU.
    #[error(transparent)]
    Register(#[from] RegisterError),
}
