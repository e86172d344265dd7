//! Whole arrays between two processes.
//!
//! A [`Channel`] sends arrays, with type and shape, over several connections as one; where both
//! ends are on one machine and of one user, it copies them once, from memory to memory. Either end
//! may be the CPU's memory or a GPU's. docs/tensors.md has the whole picture.
//!
//! A transfer is whole or an error. [`Sender::send`] returns when the other end has every byte in
//! its place, so who sends too much waits. Nothing is allocated for what a header says before it
//! was judged.
//!
//! ```
//! use gpunet_channel::{Array, ArrayMut, Channel, ChannelListener, ChannelOptions, Dtype};
//!
//! let options = ChannelOptions::default();
//! let listener = ChannelListener::bind("127.0.0.1:0".parse()?, &options)?;
//! let addr = listener.local_addr()?;
//! let trainer = std::thread::spawn(move || -> Result<(), gpunet_channel::ChannelError> {
//!     let weights = vec![0.5f32; 1 << 20];
//!     let outcome = listener.accept()?.send(&Array::of(&weights).with_shape(&[1024, 1024])?)?;
//!     println!("{} bytes by {}", outcome.bytes, outcome.via);
//!     Ok(())
//! });
//! let mut weights = vec![0f32; 1 << 20];
//! let mut channel = Channel::connect(addr, &options)?;
//! channel.recv_into(&mut ArrayMut::of(&mut weights).with_shape(&[1024, 1024])?)?;
//! assert_eq!(weights[7], 0.5);
//! trainer.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//! | module | what it is |
//! |---|---|
//! | `error` | what can go wrong; why bytes were not copied from memory to memory |
//! | `dtype` | what the elements of an array are |
//! | `array` | arrays and their memory |
//! | `header` | what travels, as bytes |
//! | `wire` | a connection, and those of a channel |
//! | `pieces` | a transfer, cut into what threads take one by one |
//! | `local`, `process_memory` | the other end's process on this machine, and its memory |
//! | `mappings`, `gpu` | its GPU memory that is mapped here; copies of GPU memory |
//! | `handshake` | several connections become a channel |
//! | `tuner` | how many connections a transfer goes over |
//! | `shared` | settings, and what both halves of a channel have |
//! | `under_way` | the transfers of a pipeline |
//! | `sender`, `receiver`, `channel`, `listener` | what programs use |

#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

mod array;
mod channel;
mod dtype;
mod error;
mod gpu;
mod handshake;
mod header;
mod listener;
mod local;
mod mappings;
mod pieces;
mod process_memory;
mod receiver;
mod sender;
mod shared;
mod tuner;
mod under_way;
mod wire;

pub use array::{Array, ArrayMut, Description, Received, ReceivedOnGpu};
pub use channel::{Channel, Side};
pub use dtype::{Dtype, MAX_DIMS};
pub use error::{ChannelError, Reason};
pub use handshake::MAX_STREAMS;
pub use header::{MAX_ARRAYS, MAX_NAME};
pub use listener::ChannelListener;
pub use receiver::{Incoming, ReceivePipeline, Receiver};
pub use sender::{Pipeline, Sender};
pub use shared::{ChannelOptions, Ender, Outcome, TransferOptions, Via};

/// The program of docs/tensors.md is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/tensors.md")]
pub struct TensorsDocument;

#[cfg(test)]
mod tests;
