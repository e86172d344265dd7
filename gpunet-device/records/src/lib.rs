//! What kernels say about themselves while they run, for GPU and CPU thread blocks.
//!
//! A kernel writes *records* into rings in pinned host memory. Every eight bytes of a record carry
//! a tag, so the host finds a record without the writer's help: nothing is published, no fence and
//! no barrier is passed, and what a kernel has said before it hung or was killed can still be read.
//! [`gprintf!`] writes a record whose text stays on the host's side. Kernels in C and CUDA C++
//! write the same rings by `gpunet_records.h` of gpunet-posix.
//!
//! | module | holds |
//! |---|---|
//! | `unit` | the format of a record in a ring |
//! | `layout` | [`Records`], the kernel's way to the rings, and where everything lies |
//! | `platform` | what differs between GPU and CPU |
//! | `format` | [`Format`], [`formats!`]: what [`gprintf!`] prints |
//! | `recorder` | [`Recorder`]: a group's place to write |
//! | `text` | [`FormatText`]: formats as they lie in the rings' memory, for readers without the kernel's table |
//! | `reader` | [`Reader`]: the host's side of the rings |
//! | `record`, `line`, `printf` | [`Record`], [`Line`]: what a reader has found; lines with texts of Rust and of C |
//! | `span` | spans and counters; [`Mark`]: what a record says of them |
//! | `trace` | [`ChromeTrace`]: writes what a reader has found as a Chrome trace |
//!
//! The host's side is the crate `gpunet-records-host`: it makes rings, reads them, and sends what
//! it finds to other programs.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]
#![deny(unsafe_code)]

mod format;
mod layout;
#[cfg(not(target_arch = "nvptx64"))]
mod line;
#[cfg(all(test, loom))]
mod models;
mod platform;
#[cfg(not(target_arch = "nvptx64"))]
mod printf;
#[cfg(not(target_arch = "nvptx64"))]
mod reader;
#[cfg(not(target_arch = "nvptx64"))]
mod record;
mod recorder;
mod span;
#[cfg(test)]
mod test_rings;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(target_arch = "nvptx64"))]
mod text;
#[cfg(not(target_arch = "nvptx64"))]
mod trace;
mod unit;

pub use format::{
    Argument, Arguments, Format, FormatInfo, Hole, Level, MAX_ARGUMENTS, Piece, Type, check, piece,
};
pub use layout::{Records, Shape, WhenFull};
#[cfg(not(target_arch = "nvptx64"))]
pub use line::{Line, NoLine};
#[cfg(not(target_arch = "nvptx64"))]
pub use reader::{Found, Reader};
#[cfg(not(target_arch = "nvptx64"))]
pub use record::Record;
pub use recorder::Recorder;
#[cfg(not(target_arch = "nvptx64"))]
pub use span::Mark;
#[cfg(not(target_arch = "nvptx64"))]
pub use text::FormatText;
#[cfg(not(target_arch = "nvptx64"))]
pub use trace::{ChromeTrace, TraceCounts};
pub use unit::{Head, Kind, MAX_WORDS, NONE_BYTE, NONE_SM};
