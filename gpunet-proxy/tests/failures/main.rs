//! Everything that goes wrong ends in an errno at the socket it concerns: no hang, no abort, and
//! the others run on.

#[path = "../support/mod.rs"]
mod support;

mod ahead;
mod connecting;
mod finishing;
mod lifecycle;
mod limits;
mod many;
mod peer_gone;
mod races;
mod scribbles;
mod stale;
mod stopping;
mod threads;
