//! Common parts of gpunet's programs: parts of their command lines, the choice of the proxy and of
//! the device that kernels run on, a running kernel with its memory, and Ctrl-C.
//!
//! | file | holds |
//! |---|---|
//! | `cli` | sizes, addresses, transports, one-line errors, output |
//! | `device`, `proxy` | where kernels run; which proxy is used |
//! | `kernel` | a running kernel with its memory |
//! | `error`, `interrupt` | errors that end a program; Ctrl-C and SIGTERM |
#![deny(unsafe_code)]

pub mod cli;
pub mod device;
pub mod error;
pub mod interrupt;
pub mod kernel;
pub mod proxy;
