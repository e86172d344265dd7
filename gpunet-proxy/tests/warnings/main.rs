//! What the log says when something goes wrong that somebody can mend: once, and with the setting
//! to change.

#[path = "../support/mod.rs"]
mod support;

mod descriptors;
mod limits;
mod lines;
mod starting;
mod teams;
mod undelivered;
