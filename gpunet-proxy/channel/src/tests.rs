//! Ends that lie, and GPUs without a GPU.

#[allow(unsafe_code)]
mod gpu;
mod liars;
