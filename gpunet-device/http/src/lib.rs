//! HTTP/1.1 for servers in kernels, on GPUs and CPU thread blocks.
//!
//! A service of gpunet-serve has a [`Connection`] in its state. In each turn it makes an [`Http`]
//! of it, takes requests ([`Http::next`]) and answers them ([`Http::answer`], [`Http::begin`]).
//! There is no allocation: requests are parsed where they were received.
//!
//! | part | modules |
//! |---|---|
//! | what is on the wire | `status` ([`Status`]), `method` ([`Method`]), `syntax` (lines and characters), `head` (request line and fields, [`Limits`]), `chunked` (bodies in chunks) |
//! | what a service is given | `request` ([`Request`]), `router` ([`Router`]) |
//! | what a service does | `connection` ([`Connection`], [`Http`], [`Step`]), `reply` ([`Reply`], [`Body`]: what an answer is made of), `answer` (whole answers, streams, server-sent events) |
//! | a request without a service | [`alone`] |
//! | JSON | `json` ([`json::Reader`], [`json::Writer`]) |
//!
//! # What is refused
//!
//! A request that another program might understand otherwise is refused, and its connection is
//! closed: two lengths, a length beside Transfer-Encoding, codings other than `chunked`, lines that
//! end with a bare LF, a bare CR, control characters, folded fields, white space before a colon,
//! chunk sizes that are no hexadecimal numbers, fragments in targets, HTTP/1.1 without one Host.
//! Each length has a limit ([`Limits`]).
//!
//! # Why this crate parses by itself
//!
//! `httparse` and `serde-json-core` read `&[u8]`. Received bytes lie in a ring that another program
//! may be able to write, in two pieces if they wrap around its end. There is no such reference to
//! them, and a GPU would load through one without coherence. Each lane would need a copy.
//! `httparse` 1.10 also leaves panics with formatted messages in the PTX, which the rules of the
//! PTX build refuse. It accepts lines that end with a bare LF, begins each look from the first
//! byte, and leaves lengths, chunks and Expect to its caller. `serde-json-core` needs a type for
//! each shape. `httparse` and `serde_json` are what `utils/fuzz` compares this crate with.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![forbid(unsafe_code)]

pub mod alone;
mod answer;
mod chunked;
mod connection;
#[cfg(fuzzing)]
pub mod fuzzing;
mod head;
pub mod json;
mod method;
mod reply;
mod request;
mod router;
mod status;
mod syntax;

pub use connection::{Connection, Http, Step};
pub use head::Limits;
pub use method::{Method, Methods};
pub use reply::{Body, Reply};
pub use request::Request;
pub use router::Router;
pub use status::Status;
