//! What runs a proxy: the threads that move bytes and make decisions.
//!
//! | module | what it is |
//! |---|---|
//! | `runtime` | the threads: how they start and stop |
//! | `control` | the control plane: binds, listens, connects, accepts, closes, reaps, on a private tokio runtime |
//! | `shard` | data threads: they scan words, drive the state machines of gpunet-core and move bytes |
//! | `pulse` | the heartbeat that devices watch |
//! | `control_queue` | the control thread's queue, where attachments and users take turns |
//! | `region` | the region that a device and the proxy share: how it is made |

pub(crate) mod control;
pub(crate) mod control_queue;
pub(crate) mod pulse;
pub(crate) mod region;
pub(crate) mod runtime;
pub(crate) mod shard;
