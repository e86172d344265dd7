//! The built program, end to end: no GPU, no root, no network beyond loopback.
//!
//! | module | what is run |
//! |---|---|
//! | `here` | everything on this machine, whatever it has; a machine without loopback; a daemon |
//! | `tree` | machines that are made up as file trees: an empty one, a bad one, a good one |
//! | `command_line` | selection, listing, JSON, and bad command lines |
//! | `process` | running the program; file trees |

mod command_line;
mod here;
mod process;
mod tree;
