//! What gpunet's programs share: whose proxy they use, the device that kernels run on, and Ctrl-C.
#![deny(unsafe_code)]

pub mod device;
pub mod interrupt;
pub mod proxy;
