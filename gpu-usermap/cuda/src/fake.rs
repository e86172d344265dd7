//! A driver without a GPU, for tests (feature `fake`).
//!
//! Its device memory is memory of the host. A stream does what it is told, in order, on a thread of
//! this module; a wait holds up what is behind it until the word has been stored, by whomever.
//! Kernels do nothing, and run until [`Fake::end_kernels`]. Every release is recorded, so that a
//! test sees when it happened.
//!
//! # Examples
//! ```
//! use gpunet_cuda::{StreamPriority, fake::Fake};
//! use gpunet_region::PinnedRegion;
//!
//! let fake = Fake::new();
//! let gpu = fake.cuda().device(0)?;
//! let words = gpu.register(PinnedRegion::create("words", 4096)?)?;
//! let stream = gpu.create_stream(StreamPriority::Normal)?;
//! // SAFETY: a word of the registered page.
//! unsafe { stream.write_value(words.device_ptr(), 7) }?;
//! stream.synchronize()?;
//! // SAFETY: the page's first word, which nothing writes any more.
//! assert_eq!(unsafe { words.region().base().cast::<u64>().read() }, 7);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(unsafe_code, reason = "stands in for C functions")]

mod driver;
#[cfg(test)]
mod tests;

pub use driver::Fake;
