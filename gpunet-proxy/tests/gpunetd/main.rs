//! The programs gpunetd and gpunetctl, as their users start them.

mod attached;
mod control;
mod daemon;
mod ending;
mod logs;
mod metrics;
mod scarce;
mod settings;
mod starting;
mod supervised;
mod trace;

#[path = "../support/mod.rs"]
mod support;
