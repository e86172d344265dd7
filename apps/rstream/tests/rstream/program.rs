//! Running gpunet-rstream.

use crate::process::{Output, Server, command, finish};

pub const RSTREAM: &str = env!("CARGO_BIN_EXE_gpunet-rstream");

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    finish(command(RSTREAM, args).spawn().expect("the program starts"))
}

/// Runs the program on the CPU device to its end.
pub fn run_on_cpu(args: &[&str]) -> Output {
    run(&[args, &["--device", "cpu"]].concat())
}

/// Starts a server on the CPU device, on a free port.
pub fn serve(args: &[&str]) -> Server {
    Server::start(command(RSTREAM, &[&["server", "127.0.0.1:0", "--device", "cpu"], args].concat()))
}
