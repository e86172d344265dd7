//! What kernels and their host exchange beside the sockets: rows of 64-bit numbers.
//!
//! | module | what it has |
//! |---|---|
//! | `numbers` | numbers of a [`gpunet_device::Buffer`], of which records are made |
//! | `results` | [`Results`]: a table whose words hold a number or an errno |
#![cfg_attr(target_arch = "nvptx64", no_std)]

mod numbers;
mod results;

pub use numbers::{NUMBER, get, put};
pub use results::{Results, failed};
