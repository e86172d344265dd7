//! Running gpunet-echo.

use crate::process::{Output, Server, command, finish};

pub const ECHO: &str = env!("CARGO_BIN_EXE_gpunet-echo");

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    finish(command(ECHO, args).spawn().expect("the program starts"))
}

/// Runs the program to its end, which must be a success, and reads the object it prints.
pub fn json(args: &[&str]) -> serde_json::Value {
    run(args).json()
}

/// Starts a server on the CPU device.
pub fn serve(args: &[&str]) -> Server {
    Server::start(command(ECHO, &[&["server"], args, &["--device", "cpu"]].concat()))
}

/// Interrupts a server and waits for its end.
pub fn stop(server: Server) -> Output {
    server.interrupt();
    server.finish()
}
