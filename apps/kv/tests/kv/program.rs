//! The program under test.

use crate::process::{Output, Server, command, fails_on_a_full_disk, finish};

const KV: &str = env!("CARGO_BIN_EXE_gpunet-kv");

/// Starts a server on the CPU device, at a free port.
pub fn serve(args: &[&str]) -> Server {
    let memory: &[&str] = if args.contains(&"--memory") { &[] } else { &["--memory", "16M"] };
    Server::start(command(KV, &[&["127.0.0.1:0", "--device", "cpu"], memory, args].concat()))
}

/// Interrupts a server and returns what it printed at its end.
pub fn stop(server: Server) -> Output {
    server.interrupt();
    let output = server.finish();
    assert!(output.status.success(), "{:?}\n{}\n{}", output.status, output.out, output.err);
    output
}

/// Runs the program to its end.
pub fn run(args: &[&str]) -> Output {
    finish(command(KV, args).spawn().expect("the program starts"))
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    fails_on_a_full_disk(KV, &["--help"]);
}
