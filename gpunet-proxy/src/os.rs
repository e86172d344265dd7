//! What the proxy asks of the operating system, and what it makes of its threads and descriptors.
//! Nothing here knows of sockets of a device.
//!
//! | module | what it is |
//! |---|---|
//! | [`places`], [`files`] | where a daemon listens; files that are written whole |
//! | [`descriptors`], `errno` | what to say when there are none left; the errno of an error |
//! | `doorbell`, `readiness` | eventfds that wake threads; descriptors that wake tasks |
//! | `cpus`, `thread_pool`, `user_work` | threads: pinned to CPUs, for slow work, for what takes as long as a user likes |
//! | `peer`, `client_socket` | who is at the other end of a Unix socket; a connection whose close may take long |
//! | [`same_host`] | how two processes of one user on one host find each other |
//! | `log_limiter`, `plain` | what the log is not told again; plain structures as bytes |

pub(crate) mod client_socket;
pub(crate) mod cpus;
pub mod descriptors;
pub(crate) mod doorbell;
pub mod errno;
pub mod files;
pub(crate) mod log_limiter;
#[allow(unsafe_code)]
pub(crate) mod peer;
pub mod places;
#[allow(unsafe_code)]
pub(crate) mod plain;
#[allow(unsafe_code)]
pub(crate) mod readiness;
pub mod same_host;
pub(crate) mod thread_pool;
pub(crate) mod user_work;
