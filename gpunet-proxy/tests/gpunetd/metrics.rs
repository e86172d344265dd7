//! Metrics by HTTP.

use crate::daemon::{Dir, Running, gpunetd};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A daemon with metrics, and where they are.
fn start(dir: &Dir) -> (Running, SocketAddr) {
    let daemon = Running::start(gpunetd(dir).args(["--metrics", "127.0.0.1:0"]));
    let log = daemon.log();
    let addr = log.split("addr=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("it says where");
    let addr = addr.parse().expect("an address");
    (daemon, addr)
}

fn ask(addr: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(addr).expect("connected");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn a_scrape_has_all_series() {
    let dir = Dir::new();
    let (_daemon, addr) = start(&dir);
    let answer = ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("head and body");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    for series in [
        "gpunet_clients 0",
        "gpunet_sockets{state=\"established\",transport=\"tcp\"} 0",
        "gpunet_sent_bytes_total{transport=\"peer\"} 0",
        "gpunet_streams_opened_total 0",
        "gpunet_undelivered_bytes_total 0",
        "gpunet_ring_bytes 0",
    ] {
        assert!(body.lines().any(|line| line == series), "{series} is not in\n{body}");
    }
    assert!(body.ends_with("# EOF\n"));
}

#[test]
fn there_is_nothing_else() {
    let dir = Dir::new();
    let (_daemon, addr) = start(&dir);
    let end = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(ask(addr, &format!("GET / {end}")).starts_with("HTTP/1.1 404 "));
    assert!(ask(addr, &format!("POST /metrics {end}")).starts_with("HTTP/1.1 405 "));
    assert!(ask(addr, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_port_in_use_is_named() {
    let dir = Dir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let addr = taken.local_addr().expect("bound").to_string();
    let mut daemon = Running::spawn(gpunetd(&dir).args(["--metrics", &addr]));
    assert_eq!(daemon.end(), 1);
    daemon.until_logged(&format!("cannot serve metrics at {addr}"));
    assert!(!dir.join("d.sock").exists(), "it takes its socket along");
}
