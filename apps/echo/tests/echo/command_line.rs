//! Help, and bad command lines.

use crate::process::{Output, command, fails_on_a_full_disk, finish};
use crate::program::{ECHO, run};
use std::process::{Command, Stdio};

#[test]
fn a_bad_command_line_gets_one_line_and_code_2() {
    for (args, word) in [
        (&["--frobnicate"][..], "--frobnicate"),
        (&["--size", "many"], "many"),
        (&["--size", "0"], "1 to 256M"),
        (&["--device", "abacus"], "abacus"),
        (&["--threads", "4096"], "4096"),
        (&["--connections", "0"], "0"),
        (&["--connections", "5000"], "1..=2048"),
        (&["--transport", "pigeon"], "pigeon"),
        (&["client"], "ADDR"),
        (&["client", "no-port"], "no-port"),
        (&["client", "127.0.0.1:1", "--transport", "peer"], "--daemon"),
        (&["server", "127.0.0.1:70000"], "127.0.0.1:70000"),
        (&["server", "127.0.0.1:0", "--count", "3"], "--count"),
        (&["serve"], "serve"),
    ] {
        let Output { status, out, err } = run(args);
        assert_eq!(status.code(), Some(2), "{args:?}: {err}");
        assert!(out.is_empty(), "{args:?}: {out}");
        assert_eq!(err.lines().count(), 1, "{args:?}: {err}");
        assert!(
            err.starts_with("gpunet-echo: ") && err.contains(word) && err.contains("--help"),
            "{args:?}: {err}"
        );
    }
}

#[test]
fn help_has_examples() {
    for args in [&["--help"][..], &["server", "--help"], &["client", "--help"]] {
        let Output { status, out, .. } = run(args);
        assert!(status.success());
        assert!(out.contains("Examples:") && out.contains("nc -N HOST"), "{out}");
        assert!(out.contains("--device") && out.contains("--json"), "{out}");
    }
}

#[test]
fn a_gpu_that_is_not_there_is_named_with_the_reason() {
    let Output { status, out, err } = run(&["--device", "cuda:99"]);
    assert_eq!(status.code(), Some(1), "{out}{err}");
    assert!(err.contains("cuda:99") && err.lines().count() == 1, "{err}");
}

#[test]
fn too_few_descriptors_are_named() {
    // Fewer than four, and the system cannot load the program; with twenty it may start.
    for few in 4..=16 {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &few.to_string(), ECHO, "--device", "cpu"]);
        shell.args(["--connections", "1", "--size", "64", "--count", "1"]);
        let shell = shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let Output { status, err, .. } = finish(shell.spawn().expect("a shell"));
        assert_eq!(status.code(), Some(1), "{few}: {err}");
        assert!(err.contains("ulimit -n") && err.lines().count() == 1, "{few}: {err}");
    }
}

#[test]
fn probe_says_what_there_is() {
    let Output { status, out, err } = run(&["probe"]);
    assert!(status.success(), "{err}");
    assert!(out.contains("CUDA"), "{out}");
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let demo =
        ["--device", "cpu", "--connections", "1", "--size", "64", "--count", "1", "--transport", "tcp"];
    let mut logged = command(ECHO, &demo);
    let Output { err, .. } = finish(logged.env("GPUNET_LOG", "debug").spawn().expect("the program starts"));
    assert!(err.contains("DEBUG") && !err.contains('\x1b'), "{err}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let demo = [
        "--device",
        "cpu",
        "--connections",
        "1",
        "--size",
        "64",
        "--count",
        "1",
        "--transport",
        "tcp",
        "--json",
    ];
    for args in [&["--help"][..], &["probe"], &demo] {
        fails_on_a_full_disk(ECHO, args);
    }
}
