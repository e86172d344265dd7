//! The built program, end to end: no GPU, no root, no network beyond loopback.
//!
//! | module | what is run |
//! |---|---|
//! | `ends` | both ends as kernels: over tcp between processes, over tcp and peer in one |
//! | `foreign` | one end a kernel, the other a plain TCP program of the test that speaks the protocol, or breaks it |
//! | `original` | one end a kernel, the other the unmodified rstream over plain sockets, where it is installed |
//! | `command_line` | help, and bad command lines |
//! | `program`, `process` | starting, stopping and reading the program |

mod command_line;
mod ends;
mod foreign;
mod original;
#[path = "../../../common/tests/support/process.rs"]
mod process;
mod program;
