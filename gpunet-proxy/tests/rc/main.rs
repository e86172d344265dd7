//! Rc over a simulated network: peers that die, links that break, peers that lie, peers that are
//! rsockets, and what all of them leave behind.
//!
//! Each proxy is a host of its own; they share a network and this machine's loopback address.

#[path = "../support/mod.rs"]
mod support;

mod accepting;
mod counts;
mod ending;
mod handshakes;
mod hosts;
mod leaks;
mod liars;
mod links;
mod peer_gone;
mod quiet;
mod raw_peer;
mod requests;
mod rsocket;
mod rsocket_peer;
mod selection;
