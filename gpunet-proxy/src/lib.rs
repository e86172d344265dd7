//! The proxy: the CPU side of sockets for kernels.
//!
//! [`embed`] starts it inside a program, [`attach`] joins one that runs as a daemon, and [`open`]
//! joins a daemon if there is one and else starts a proxy. [`Proxy::attach_cpu`] and
//! [`Proxy::attach_cuda`] give a device its sockets, and [`Attachment::launch`] runs a kernel that
//! uses them. [`Proxy::host`] gives sockets to tokio tasks.
//!
//! # Floors
//! The modules lie on floors, and a module names those of its own floor and of floors below, never
//! one above. docs/design/floors.md has the table; a test compares the imports with it. What lies
//! on a private floor and is for programs is exported here.
#![deny(unsafe_code)]

mod api;
mod attached;
pub mod daemon;
mod engine;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod host;
mod launch;
mod model;
mod os;
pub mod queue;
pub mod socket;
pub mod team;
mod wire;

pub use api::attachment::Attachment;
pub use api::proxy::{Proxy, attach, embed, open};
pub use attached::device::CloseReport;
pub use attached::device_memory::{self, AllocError, DeviceBuffer};
pub use attached::remote::DaemonInfo;
pub use gpunet_abi as abi;
pub use gpunet_device as device;
pub use host::Host;
pub use launch::program::Program;
pub use launch::running::{KernelError, Launch, LaunchError};
pub use launch::token::LaunchToken;
pub use model::access;
pub use model::attachment_state::{Stats, Usage};
pub use model::config::{self, Config};
pub use model::error::{AttachError, DaemonError, EmbedError, OpenError, SnapshotError, TooManyLaunches};
pub use model::launch::{FinishPolicy, FinishReport};
#[cfg(feature = "settings")]
pub use model::settings;
pub use model::snapshot;
pub use os::{descriptors, errno, files, places, same_host};

/// Returns the RDMA devices of this machine.
///
/// # Errors
/// [`rdma::Unavailable`] says what is missing, and what to do about it.
///
/// # Examples
/// ```
/// match gpunet_proxy::rdma_devices() {
///     Ok(devices) => println!("{} RDMA devices", devices.len()),
///     Err(missing) => println!("no RDMA: {missing}"),
/// }
/// ```
pub fn rdma_devices() -> Result<Vec<rdma::DeviceReport>, rdma::Unavailable> {
    rdma::Rdma::devices()
}

pub use gpunet_core::verbs::rdma;

/// The program of docs/host.md is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/host.md")]
pub struct HostDocument;

/// So is that of docs/symmetric.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/symmetric.md")]
pub struct SymmetricDocument;

/// So is that of docs/queues.md.
#[cfg(doctest)]
#[doc = include_str!("../../docs/queues.md")]
pub struct QueuesDocument;
