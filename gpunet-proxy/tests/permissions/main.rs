//! What another user may and may not do, and that a program which scribbles harms only itself. Real
//! processes, a real gpunetd; as root, because only root can start programs of another user.

#[path = "../gpunetd/daemon.rs"]
#[allow(dead_code, reason = "its suite uses all of it")]
mod daemon;
#[path = "../support/mod.rs"]
mod support;

mod limits;
mod memory;
mod program;
mod scribbler;
mod teams;

/// Not a test: the program that the tests start.
#[test]
fn program() {
    if let Some(role) = std::env::var_os(program::ROLE) {
        program::run(role.to_str().expect("text"));
    }
}
