//! The C side of RDMA, by hand: types, numbers and functions of libibverbs and librdmacm.
//!
//! These are the facts of the public ABI (sonames libibverbs.so.1 and librdmacm.so.1, stable since
//! 2014); no header is needed to build, no library to start. [`mod@layout`] lists sizes, offsets
//! and numbers for the test that compares them with the headers where those are installed.
//!
//! A type that libibverbs allocates is declared as far as it is read here and never made by value.

mod layout;
mod library;
pub(super) mod numbers;
mod types;

pub use layout::layout;
pub(super) use library::Library;
pub(super) use types::*;
