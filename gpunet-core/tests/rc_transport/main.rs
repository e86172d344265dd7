//! The rc transport over a simulated network, driven as a proxy drives it.

#[path = "../verbs/buffer.rs"]
mod buffer;
mod listeners;
mod streams;
mod world;
