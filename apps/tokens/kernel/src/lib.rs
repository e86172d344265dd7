//! The kernel of `gpunet-tokens`: a server of completions in the form of OpenAI's API. Its last
//! blocks run the model; the others serve HTTP.
//!
//! | part | module |
//! |---|---|
//! | a place in memory for the request of each connection | `slots` |
//! | which part of a text may be sent: stop sequences, characters | `text` |
//! | errors | `refusal` |
//! | what a request asks for | `request` |
//! | answers and events | `answer` |
//! | what is counted and measured | `metrics` |
//! | the batches and their steps | `batch` |
//! | settings, and what blocks share ([`Tokens`]) | `shared` |
//! | a request of a connection, from turn to turn | `session` |
//! | the loop of a block of the model | `engine` |
//! | routes | `service` |
//! | steps of the model without a server ([`Steps`]) | `steps` |
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]
#![deny(unsafe_code)]

mod answer;
mod batch;
mod engine;
mod metrics;
mod refusal;
mod request;
mod service;
mod session;
mod shared;
mod slots;
mod steps;
mod text;

pub use service::State;
pub use shared::{Shared, Tokens};
pub use steps::Steps;

#[cfg(target_arch = "nvptx64")]
#[allow(unsafe_code)]
mod entries {
    use super::{Steps, Tokens};
    use gpunet_device::kernel_entry;
    use gpunet_serve::Server;

    kernel_entry!(tokens, "gpunet_tokens", Server<Tokens>);
    kernel_entry!(steps, "gpunet_tokens_steps", Steps);
}
