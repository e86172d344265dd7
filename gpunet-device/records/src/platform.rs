//! The differences between the GPU and the CPU: storing units, counting, and where a group runs.
//!
//! `nvptx` and `cpu` define the same functions.
#![allow(unsafe_code)]

#[cfg(target_arch = "nvptx64")]
mod nvptx;
#[cfg(target_arch = "nvptx64")]
pub(crate) use nvptx::*;

#[cfg(not(target_arch = "nvptx64"))]
mod cpu;
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) use cpu::*;
