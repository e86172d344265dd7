//! Programs of libgdsync, libmp and Hydrozoa, told again with queues, triggers and gates.
//!
//! | program | here |
//! |---|---|
//! | libgdsync: gds_sanity | `gds_sanity` |
//! | libgdsync: gds_poll_lat, gds_kernel_latency, gds_kernel_loopback_latency | `gds_latency` |
//! | libmp: mp_sendrecv, mp_sendrecv_stream, mp_sendrecv_kernel | `mp_sendrecv` |
//! | libmp: mp_pingpong, plain, on a stream, in a kernel | `mp_pingpong` |
//! | libmp: mp_producer_consumer_kernel_stream | `mp_producer_consumer` |
//! | libmp: mp_putget, comm_pingpong | `mp_putget` |
//! | Hydrozoa: its example, with `get_descriptors` | `hydrozoa` |
//!
//! They count and compare bytes where the originals measure. What befalls such programs when a peer fails is in `failures`.

#[path = "../support/mod.rs"]
mod support;

mod failures;
mod gds_latency;
mod gds_sanity;
mod hydrozoa;
mod kernels;
mod mp_pingpong;
mod mp_producer_consumer;
mod mp_putget;
mod mp_sendrecv;
mod ranks;
