//! Queues on CUDA streams: on a GPU where there is one, else on a driver that stands in for it
//! (gpu-usermap's `fake`), which carries out what is enqueued and has no kernels. A test that needs
//! kernels says so when it did not run.

mod exchange;
mod failures;
mod graphs;
mod refusals;
mod support;
