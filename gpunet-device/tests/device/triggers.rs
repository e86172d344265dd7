//! Triggers and gates of directions that the host has taken; the tests play the host and the proxy.

mod already;
mod calls;
mod gates;
mod locked;
mod messages;
mod releases;
