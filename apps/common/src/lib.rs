//! What gpunet's programs share: what their command lines have in common, whose proxy they use, the device that kernels
//! run on, a running kernel with its memory, and Ctrl-C.
#![deny(unsafe_code)]

pub mod cli;
pub mod device;
pub mod interrupt;
pub mod proxy;
pub mod work;
