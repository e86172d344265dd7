//! What gpunet's programs share: the device that kernels run on, and Ctrl-C.
#![deny(unsafe_code)]

pub mod device;
pub mod interrupt;
