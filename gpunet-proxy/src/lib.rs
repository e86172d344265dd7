//! The proxy: the CPU side of sockets for kernels.
//!
//! [`embed`] starts it inside a program, [`attach`] joins one that runs as a daemon, and [`open`] joins a
//! daemon if there is one and else starts a proxy. [`Proxy::attach_cpu`] and [`Proxy::attach_cuda`] give a
//! device its sockets, and [`Attachment::launch`] runs a kernel that uses them. [`Proxy::host`] gives sockets
//! to tokio tasks.
//!
//! | layer | modules |
//! |---|---|
//! | facade | `proxy` ([`Proxy`]), `attachment` ([`Attachment`]), `token` ([`LaunchToken`]), `launches` and `socket_table` (what ends with a launch), `program` ([`Program`]), `launch` ([`Launch`]), [`device_memory`]; [`host`]: tokio streams and listeners over every transport; [`team`]: symmetric memory; [`daemon`]: sessions of attached programs |
//! | runtime | `runtime`: the threads, how they start and stop; `session` and `wire`: a program's connection to a daemon, and the frames on it; `link`: what both ask of a proxy; `agent`: what maps memory for an attachment; `mapped`: memory as a device has it; [`places`]: where a daemon listens |
//! | planes | `shard`: threads that scan words, drive the state machines of gpunet-core and move bytes; `control`: binds, listens, connects, accepts, closes, reaps, on a private tokio runtime; `pulse`: the heartbeat that devices watch |
//! | model | `model`: what they say to each other and keep, [`config`] and [`snapshot`] among it; [`access`]: who may use a daemon, and how much |
//!
//! Beside them: [`descriptors`], what to say when there are none left; `log_limiter`, what the log is not told again.
#![deny(unsafe_code)]

pub mod access;
mod agent;
mod attachment;
mod client_socket;
mod control;
mod control_queue;
mod cpus;
pub mod daemon;
pub mod descriptors;
#[allow(unsafe_code)]
pub mod device_memory;
mod doorbell;
mod errno;
pub mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod host;
#[allow(unsafe_code)]
mod launch;
mod launches;
mod link;
mod log_limiter;
#[allow(unsafe_code)]
mod mapped;
mod model;
#[allow(unsafe_code)]
mod peer;
mod placement;
pub mod places;
#[allow(unsafe_code)]
mod plain;
mod program;
mod proxy;
mod pulse;
pub mod queue;
#[allow(unsafe_code)]
mod readiness;
mod region;
mod runtime;
mod session;
mod shard;
pub mod socket;
mod socket_table;
pub mod team;
mod thread_pool;
mod token;
mod user_work;
mod wire;

pub use attachment::Attachment;
pub use attachment::device::CloseReport;
pub use attachment::remote::DaemonInfo;
pub use device_memory::{AllocError, DeviceBuffer};
pub use gpunet_abi as abi;
pub use gpunet_device as device;
pub use host::Host;
pub use launch::{KernelError, Launch, LaunchError};
pub use model::attachment_state::{Stats, Usage};
pub use model::config::{self, Config};
pub use model::error::{AttachError, DaemonError, EmbedError, OpenError, TooManyLaunches};
pub use model::launch::{FinishPolicy, FinishReport};
#[cfg(feature = "settings")]
pub use model::settings;
pub use model::snapshot;
pub use program::Program;
pub use proxy::{Proxy, attach, embed, open};
pub use token::LaunchToken;

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
