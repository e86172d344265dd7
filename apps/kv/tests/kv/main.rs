//! `gpunet-kv` as its users run it: the built program on the CPU device, with clients of this suite and foreign ones.

mod client;
mod commands;
mod compare;
mod foreign;
mod hostile;
mod program;
mod vectors;

#[path = "../../../common/tests/support/process.rs"]
mod process;
