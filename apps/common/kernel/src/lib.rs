//! What kernels and their host exchange beside the sockets: rows of 64-bit numbers.
//!
//! | module | what it has |
//! |---|---|
//! | `numbers` | [`put`] and [`get`]: the numbers in a [`gpunet_device::Buffer`]. Records consist of them |
//! | `results` | [`Results`]: a table whose words hold a number or an errno |
#![cfg_attr(target_arch = "nvptx64", no_std)]

mod numbers;
mod results;

pub use numbers::{NUMBER, get, put};
pub use results::{Results, failed};
