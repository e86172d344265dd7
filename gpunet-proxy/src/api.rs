//! What programs call: a proxy, an attachment, and what they make of it.
//!
//! | module | what it is |
//! |---|---|
//! | `proxy` | starting a proxy, or joining a daemon |
//! | `attachment` | the sockets of a device |
//! | `kernels`, `sockets`, `queues`, `teams`, `hosts` | what is made of an attachment: launches of kernels, sockets that the host program opens, queues, teams, sockets for tokio |

pub(crate) mod attachment;
mod hosts;
#[allow(unsafe_code)]
mod kernels;
pub(crate) mod proxy;
mod queues;
mod sockets;
mod teams;
