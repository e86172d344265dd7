//! Help, and bad command lines.

use crate::process::fails_on_a_full_disk;
use crate::program::{RSTREAM, run, run_on_cpu};
use std::net::TcpListener;

#[test]
fn a_bad_command_line_gets_one_line_and_code_2() {
    for (args, word) in [
        (&[][..], "server, client or both"),
        (&["server", "--size", "many"], "many"),
        (&["server", "--device", "abacus"], "abacus"),
        (&["server", "--transport", "peer"], "--daemon"),
        (&["client"], "ADDR"),
        (&["both", "--all", "-C", "3"], "--count"),
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", output.err);
        assert!(output.out.is_empty() && output.err.lines().count() == 1, "{args:?}: {}", output.err);
        assert!(output.err.starts_with("gpunet-rstream: ") && output.err.contains(word), "{}", output.err);
    }
}

#[test]
fn help_has_examples() {
    for args in [&["--help"][..], &["server", "--help"], &["client", "--help"], &["both", "--help"]] {
        let output = run(args);
        assert!(output.status.success());
        assert!(output.out.contains("Examples:") && output.out.contains("rstream -s HOST"), "{}", output.out);
    }
}

#[test]
fn a_taken_port_is_said_clearly() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = run_on_cpu(&["server", &addr, "--transport", "tcp"]);
    assert_eq!(output.status.code(), Some(1), "{}{}", output.out, output.err);
    assert!(output.err.contains("address in use") && output.err.contains(&addr), "{}", output.err);
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_the_reason() {
    let output = run(&["both", "--device", "cuda:99"]);
    assert_eq!(output.status.code(), Some(1), "{}{}", output.out, output.err);
    assert!(output.err.contains("cuda:99") && output.err.lines().count() == 1, "{}", output.err);
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    fails_on_a_full_disk(RSTREAM, &["--help"]);
    fails_on_a_full_disk(RSTREAM, &["both", "--device", "cpu", "--transport", "tcp", "-S", "64", "-C", "1"]);
}
