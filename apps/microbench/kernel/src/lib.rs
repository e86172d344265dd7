//! Kernels that check and measure sockets, written once for GPU and CPU.
//!
//! | kernel | what it does |
//! |---|---|
//! | [`PingPong`] | one block echoes, the other measures round trips |
//! | [`Duplex`] | pairs of blocks exchange verified bytes both ways at once, through many connections |
//! | [`Pairs`] | pairs of groups exchange verified bytes; lanes may be made to diverge |
//! | [`Connects`] | pairs of blocks connect, exchange a byte and close, again and again |
//! | [`Hold`], [`Busy`] | many connections are opened and left open; pairs echo beside them |
//! | [`Incast`] | many senders, one receiver that serves whichever is ready |
//! | [`Flow`] | blocks send or receive as fast as they can |
//! | [`Serve`] | one block echoes for one outside program |
//! | [`Rings`] | a server whose worker, or host, rings for a connection and takes the time |
//! | [`Watch`] | one block echoes for many outside programs, by a poll group |
//! | [`Leave`], [`Stale`] | sockets are left or closed by one launch while another one waits on them |
//! | [`Attend`] | clients are served through panics and while the proxy is stopped |
//! | [`Twice`] | broadcasts of two values of one block |
//! | [`Copy`](struct@Copy) | the copy routine alone, to or from pinned memory |
//! | [`Handoff`], [`Clock`] | time stamps at the steps of a hand-off, and the device's clock to compare them |
//! | [`Bare`] | the floor between two devices: data and flag, without a stream |
//! | [`Triggered`] | prepared messages are filled and released, or messages are sent by the handle |
//! | [`Turns`] | messages are made and checked in the order of queues |
//! | [`PutSignal`], [`Puts`], [`Collective`] | messages, puts, barriers and collectives of teams |
//! | [`HostCalls`] | blocks call a function of the host |
//! | [`WriteRecords`], [`PrintLines`] | warps write records, a block prints lines |
//! | [`Flags`] | the floor: two words between a GPU and a CPU, with or without data |
//!
//! Where a kernel runs pairs, [`Ends`] selects which ends of them the launch runs, so the two ends
//! can be blocks of one device, of two, or of two processes.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

mod bare;
mod connects;
mod copy;
mod duplex;
mod ends;
mod faults;
mod flags;
mod flow;
mod group;
mod handoff;
mod hold;
mod host_calls;
mod incast;
mod pairs;
mod ping_pong;
mod records;
mod rings;
mod serve;
mod symmetric;
mod triggered;
mod turns;
mod watch;

pub use bare::Bare;
pub use connects::Connects;
pub use copy::Copy;
pub use duplex::Duplex;
pub use ends::Ends;
pub use faults::{Attend, Leave, Stale, Twice};
pub use flags::Flags;
pub use flow::{Flow, MOST_CONNECTIONS};
pub use gpunet_app_kernel::{Results, failed};
pub use group::GroupKind;
pub use handoff::{Clock, Handoff};
pub use hold::{Busy, Hold};
pub use host_calls::{HostCalls, MOST_IN_FLIGHT, Message, NEXT};
pub use incast::{Incast, MOST_SENDERS};
pub use pairs::Pairs;
pub use ping_pong::PingPong;
pub use records::{PrintLines, WriteRecords, Written, lines as record_lines};
pub use rings::{BELL, HEARD, Rings};
pub use serve::Serve;
pub use symmetric::{Called, Collective, PutSignal, PutWay, Puts};
pub use triggered::Triggered;
pub use turns::Turns;
pub use watch::Watch;
