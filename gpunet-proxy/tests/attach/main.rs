//! Programs that attach to a daemon, and what becomes of either when the other misbehaves or dies.
//!
//! The daemon runs in the test's process, behind a socket; programs that are killed are this test
//! binary, started again.

#[path = "../support/mod.rs"]
mod support;

mod arenas;
mod death;
mod fuzz;
mod hostile;
mod limits;
mod no_way;
mod peers;
mod raw;
mod strangers;
mod use_it;
