//! The operations of a queue as kernels of one block each.
//!
//! A queue on a CUDA stream carries its operations out by stream memory operations and copies, with
//! positions that it knows when it enqueues them. A captured graph repeats its operations, so their
//! positions are found when they run: in the device's table. A driver without stream memory
//! operations needs kernels, too.
//!
//! | kernel | operation | file |
//! |---|---|---|
//! | [`QueueSend`], [`QueueRecv`] | the next bytes of a taken direction, from and into memory of the device | `messages` |
//! | [`QueuePost`], [`QueueWait`] | a trigger, a gate | `words` |
//! | [`QueueWrite`], [`QueueWaitWord`] | a word of the program's own | `words` |
//! | [`QueueTeam`] | what a member of a team does: puts, signals, waits, collectives | `team` |
//!
//! `record` has what each of them tells the host program when it is done.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

mod messages;
mod record;
mod team;
mod words;

pub use messages::{QueueRecv, QueueSend};
pub use record::Record;
pub use team::{QueueTeam, TeamAction, TeamOperation};
pub use words::{QueuePost, QueueWait, QueueWaitWord, QueueWrite};

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{QueuePost, QueueRecv, QueueSend, QueueTeam, QueueWait, QueueWaitWord, QueueWrite};
    use gpunet_device::kernel_entry;

    kernel_entry!(queue_send, "gpunet_queue_send", QueueSend);
    kernel_entry!(queue_recv, "gpunet_queue_recv", QueueRecv);
    kernel_entry!(queue_post, "gpunet_queue_post", QueuePost);
    kernel_entry!(queue_wait, "gpunet_queue_wait", QueueWait);
    kernel_entry!(queue_write, "gpunet_queue_write", QueueWrite);
    kernel_entry!(queue_wait_word, "gpunet_queue_wait_word", QueueWaitWord);
    kernel_entry!(queue_team, "gpunet_queue_team", QueueTeam);
}
