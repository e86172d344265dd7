//! `gpunet-echo client` against servers that are not gpunet.

use crate::process::Output;
use crate::program::{json, run};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// Serves every connection by `serve`, on threads, until the test ends.
fn tcp_server(address: &str, serve: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind(address).expect("loopback has a free port");
    let addr = listener.local_addr().expect("a listener has an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    addr
}

fn echo(mut stream: TcpStream) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(n @ 1..) = stream.read(&mut bytes) {
        if stream.write_all(&bytes[..n]).is_err() {
            return;
        }
    }
}

#[test]
fn a_plain_tcp_echo_server_is_a_good_peer() {
    let addr = tcp_server("127.0.0.1:0", echo).to_string();
    let args = [
        "client",
        &addr,
        "--json",
        "--device",
        "cpu",
        "--connections",
        "5",
        "--size",
        "64,70000",
        "--count",
        "20",
    ];
    let report = json(&args);
    assert_eq!((&report["errors"], &report["messages"]), (&0.into(), &200.into()), "{report}");
    assert_eq!(report["bytes_verified"], 5 * 20 * (64 + 70_000), "{report}");
    assert_eq!(report["runs"][0]["transport"], "auto", "{report}");
}

#[test]
fn a_name_and_ipv6_are_addresses_too() {
    let port = tcp_server("127.0.0.1:0", echo).port();
    let named = format!("localhost:{port}");
    assert_eq!(
        json(&["client", &named, "--json", "--device", "cpu", "--size", "64", "--count", "5"])["errors"],
        0
    );
    if TcpListener::bind("[::1]:0").is_err() {
        eprintln!("NOT RUN: this machine has no IPv6 loopback");
        return;
    }
    let addr = tcp_server("[::1]:0", echo).to_string();
    assert_eq!(
        json(&["client", &addr, "--json", "--device", "cpu", "--size", "64", "--count", "5"])["errors"],
        0
    );
}

#[test]
fn fewer_blocks_take_the_connections_in_turn() {
    let addr = tcp_server("127.0.0.1:0", echo).to_string();
    let report = json(&[
        "client",
        &addr,
        "--json",
        "--device",
        "cpu",
        "--blocks",
        "2",
        "--connections",
        "7",
        "--size",
        "500",
        "--count",
        "3",
    ]);
    assert_eq!((&report["connections"], &report["messages"]), (&7.into(), &21.into()), "{report}");
}

/// Runs a client that must fail, and returns its error.
fn failure(addr: &SocketAddr) -> String {
    let addr = addr.to_string();
    let Output { status, out, err } =
        run(&["client", &addr, "--device", "cpu", "--connections", "2", "--size", "1000", "--count", "50"]);
    assert_eq!(status.code(), Some(1), "{out}\n{err}");
    assert!(!err.trim().is_empty(), "an error is explained: {out}");
    err
}

#[test]
fn a_refused_connection_is_said_clearly() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let err = failure(&gone);
    assert!(err.contains("connection refused") && err.contains(&gone.to_string()), "{err}");
}

#[test]
fn a_server_that_changes_a_byte_is_caught() {
    let addr = tcp_server("127.0.0.1:0", |mut stream| {
        let mut bytes = vec![0; 1000];
        while stream.read_exact(&mut bytes).is_ok() {
            bytes[777] ^= 0x10;
            let _ = stream.write_all(&bytes);
        }
    });
    let err = failure(&addr);
    assert!(err.contains("byte 777"), "{err}");
}

#[test]
fn a_server_that_hangs_up_is_reported_not_waited_for() {
    let addr = tcp_server("127.0.0.1:0", |mut stream| {
        let mut bytes = vec![0; 300];
        let _ = stream.read_exact(&mut bytes);
        let _ = stream.write_all(&bytes);
    });
    let err = failure(&addr);
    // With bytes unread a close is a reset, else it is the stream's end.
    assert!(err.contains("reset by peer") || err.contains("ended the stream"), "{err}");
}

#[test]
fn socat_is_a_good_peer() {
    if Command::new("socat").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("NOT RUN: socat is not installed");
        return;
    }
    // A port that was free a moment ago; socat cannot tell which one it took.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("TCP4-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork");
    let mut socat = Command::new("socat").args([&listen, "EXEC:cat"]).spawn().expect("socat starts");
    let addr = format!("127.0.0.1:{port}");
    let start = std::time::Instant::now();
    while TcpStream::connect(&addr).is_err() && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let Output { status, out, err } =
        run(&["client", &addr, "--json", "--device", "cpu", "--size", "64,30000", "--count", "20"]);
    let _ = socat.kill();
    let _ = socat.wait();
    assert!(status.success(), "{out}\n{err}");
}
