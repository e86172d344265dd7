//! Streams between two attachments: what holds for any stream, and what is special about an arena.

#[path = "../support/mod.rs"]
mod support;

mod closing;
mod moving;
mod pair;
