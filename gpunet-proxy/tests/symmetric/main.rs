//! Teams and symmetric memory on the CPU device: members as threads of this program, and as
//! programs.

#[path = "../support/mod.rs"]
mod support;

mod collectives;
mod daemon;
mod death;
mod gpu;
mod joining;
mod kernels;
mod queues;
mod streams;
mod world;
