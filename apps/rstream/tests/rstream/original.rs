//! The original program, over its plain sockets (`-T s`), as either end. Its rsockets need RDMA;
//! the protocol is the same.
//!
//! It is searched in `PATH`, or at the path in the variable `RSTREAM`.

use crate::program::{run_on_cpu, serve};
use std::ffi::OsString;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const TESTS: [[&str; 6]; 4] = [
    ["-S", "1", "-C", "200", "-I", "3"],
    ["-S", "777", "-C", "50", "-I", "3"],
    ["-S", "65536", "-C", "20", "-I", "3"],
    ["-S", "1048579", "-C", "2", "-I", "2"],
];

/// Starts it with verification.
fn rstream(args: &[&str]) -> Child {
    let program = std::env::var_os("RSTREAM").unwrap_or_else(|| OsString::from("rstream"));
    let mut command = Command::new(program);
    command.args(["-T", "s", "-T", "v"]).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("rstream starts")
}

fn is_installed() -> bool {
    let program = std::env::var_os("RSTREAM").unwrap_or_else(|| OsString::from("rstream"));
    // It has no option that does nothing; an unknown one makes it print its usage.
    let found = Command::new(program).arg("-x").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("NOT RUN: rstream is not installed (Debian: rdmacm-utils)");
    }
    found
}

/// Waits for its end. It reports errors on stdout, not only by its exit code.
fn check(child: Child) {
    let output: Output = child.wait_with_output().expect("rstream can be waited for");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("custom") && !text.contains("failed"), "{text}");
}

#[test]
fn the_original_is_a_good_client() {
    if !is_installed() {
        return;
    }
    for test in TESTS {
        let server = serve(&[&test[..], &["--verify", "--transport", "tcp"]].concat());
        let port = server.addr.port().to_string();
        check(rstream(&[&["-s", "127.0.0.1", "-p", &port], &test[..]].concat()));
        let server = server.finish();
        assert!(server.status.success(), "{test:?}: {}{}", server.out, server.err);
    }
}

#[test]
fn the_original_is_a_good_server() {
    if !is_installed() {
        return;
    }
    for test in TESTS {
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
        let server = rstream(&[&["-b", "127.0.0.1", "-p", &port], &test[..]].concat());
        let addr = format!("127.0.0.1:{port}");
        let args = [&["client", &addr, "--verify", "--transport", "tcp"], &test[..]].concat();
        // It does not say when it listens, and serves the first connection that it gets.
        let start = Instant::now();
        let client = loop {
            let client = run_on_cpu(&args);
            if !client.err.contains("connection refused") || start.elapsed() > Duration::from_secs(20) {
                break client;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(client.status.success(), "{test:?}: {}{}", client.out, client.err);
        check(server);
    }
}
