//! The kernels of `gpunet-symmetric`: NVSHMEM's examples, written once for GPU and CPU thread
//! blocks.
//!
//! | kernel | what its blocks do | calls |
//! |---|---|---|
//! | [`Hello`] | tell everybody who they are | `p`, `barrier` |
//! | [`Ring`] | give a number to the right | `p`, `barrier` |
//! | [`PutBlock`] | each block puts its share to the right | `put`, `signal_add`, `wait_until` |
//! | [`RingBroadcast`] | pass on what member 0 has, chunk by chunk | `put_signal`, `wait_until` |
//! | [`RingReduce`] | sum up along the ring, and pass the sum on; each block its share | `put_signal`, `wait_until`, `p`, `g` |
//! | [`OnStream`] | takes turns with a queue, which gathers | `signal`, `wait_until`, `p`, `g` |
//! | [`Collectives`] | gather, exchange, reduce | `all_gather`, `all_to_all`, `reduce`, `broadcast` |
//! | [`ThreadGroup`] | gather by a block, by a warp, by a thread | `all_gather` |
//! | [`MoeShuffle`] | send tokens to their experts and back, wherever those are | `all_gather`, `put_nbi`, `signal_add`, `wait_until` |
//! | [`Jacobi`] | solve Laplace's equation, each block a band of the grid | `put_signal`, `wait_until`, `signal_add`, `reduce` |
//!
//! Every block leaves its errno in an element of its own part of `results`.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

mod collectives;
mod hello;
mod jacobi;
mod moe_shuffle;
mod on_stream;
mod put_block;
mod ring;
mod ring_broadcast;
mod ring_reduce;
mod signals;
mod thread_group;

pub use collectives::Collectives;
pub use hello::Hello;
pub use jacobi::Jacobi;
pub use moe_shuffle::{MoeShuffle, expert};
pub use on_stream::OnStream;
pub use put_block::PutBlock;
pub use ring::Ring;
pub use ring_broadcast::RingBroadcast;
pub use ring_reduce::RingReduce;
pub use signals::{SUMMED, TOLD, signals};
pub use thread_group::{Gatherer, ThreadGroup};

use gpunet_device::{Group, Result, SymmetricPtr, TeamHandle};

/// The block leaves how it has fared in its element of this member's part.
fn leave<G: Group>(g: &G, team: TeamHandle, results: SymmetricPtr<i32>, result: Result<()>) {
    if g.is_leader() {
        let errno = result.err().map_or(0, |error| error.errno());
        // A host that has given too few elements finds its own mark in them.
        let _ = team.p(results.at(g.index() as usize), errno, team.rank());
    }
}

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{
        Collectives, Hello, Jacobi, MoeShuffle, OnStream, PutBlock, Ring, RingBroadcast, RingReduce,
        ThreadGroup,
    };
    use gpunet_device::kernel_entry;

    kernel_entry!(hello, "gpunet_symmetric_hello", Hello);
    kernel_entry!(ring, "gpunet_symmetric_ring", Ring);
    kernel_entry!(on_stream, "gpunet_symmetric_on_stream", OnStream);
    kernel_entry!(put_block, "gpunet_symmetric_put_block", PutBlock);
    kernel_entry!(ring_broadcast, "gpunet_symmetric_ring_broadcast", RingBroadcast);
    kernel_entry!(ring_reduce, "gpunet_symmetric_ring_reduce", RingReduce);
    kernel_entry!(collectives, "gpunet_symmetric_collectives", Collectives);
    kernel_entry!(thread_group, "gpunet_symmetric_thread_group", ThreadGroup);
    kernel_entry!(moe_shuffle, "gpunet_symmetric_moe_shuffle", MoeShuffle);
    kernel_entry!(jacobi, "gpunet_symmetric_jacobi", Jacobi);
}
