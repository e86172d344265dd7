//! Metrics by HTTP.

use crate::daemon::{LONG, Running, TempDir, gpunetd};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A daemon with metrics, and where they are.
fn start(dir: &TempDir) -> (Running, SocketAddr) {
    let daemon = Running::start(gpunetd(dir).args(["--metrics", "127.0.0.1:0"]));
    let log = daemon.log();
    let addr = log.split("addr=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("it says where");
    let addr = addr.parse().expect("an address");
    (daemon, addr)
}

fn ask(addr: SocketAddr, request: &str) -> String {
    let mut connection = TcpStream::connect(addr).expect("connected");
    connection.set_read_timeout(Some(LONG)).expect("set");
    connection.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    answer
}

/// A connection that has sent `said`, and will neither send more nor read.
fn hold(addr: SocketAddr, said: &str) -> TcpStream {
    let mut connection = TcpStream::connect(addr).expect("connected");
    // It may be closed in the middle.
    let _ = connection.write_all(said.as_bytes());
    connection
}

#[test]
fn a_scrape_has_all_series() {
    let dir = TempDir::new();
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
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    let end = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert!(ask(addr, &format!("GET / {end}")).starts_with("HTTP/1.1 404 "));
    assert!(ask(addr, &format!("POST /metrics {end}")).starts_with("HTTP/1.1 405 "));
    assert!(ask(addr, "nonsense\r\n\r\n").starts_with("HTTP/1.1 400 "));
}

#[test]
fn a_connection_gets_one_answer() {
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    let answer = ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    assert!(answer.ends_with("# EOF\n"), "all of it, and then the end: {answer}");
}

#[test]
fn a_client_that_sends_no_more_gets_its_answer() {
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    let mut connection = hold(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    connection.shutdown(std::net::Shutdown::Write).expect("open");
    connection.set_read_timeout(Some(LONG)).expect("set");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn connections_that_say_nothing_do_not_hold_up_a_scrape() {
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    let half = "GET /metrics HTTP/1.1\r\nHost:";
    let _held: Vec<_> = (0..256).map(|at| hold(addr, if at % 2 == 0 { "" } else { half })).collect();
    let answer = ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn connections_that_ask_and_never_read_do_not_hold_up_a_scrape() {
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    // Few enough for the buffers of the requests, and too many for those of the answers.
    let many = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1500);
    let _held: Vec<_> = (0..64).map(|_| hold(addr, &many)).collect();
    let answer = ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("# EOF\n"), "{answer}");
}

#[test]
fn a_port_in_use_is_named() {
    let dir = TempDir::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let addr = taken.local_addr().expect("bound").to_string();
    let mut daemon = Running::spawn(gpunetd(&dir).args(["--metrics", &addr]));
    assert_eq!(daemon.end(), 1);
    daemon.until_logged(&format!("cannot serve metrics at {addr}"));
    assert!(!dir.join("d.sock").exists(), "it takes its socket along");
}
