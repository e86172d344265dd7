//! Metrics by HTTP.

use crate::daemon::{LONG, Running, TempDir, gpunetd, until};
use gpunet_proxy::device::{Group, Kernel, Net};
use gpunet_proxy::{Config, FinishPolicy};
use gpunet_records::{Kind, Recorder, Records};
use gpunet_records_host::{Rings, Settings};
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

gpunet_records::formats! {
    mod counted: Info {
        STEPS: Info() = "steps \"a\\b\"\n";
    }
}

/// Each block counts to ten times its number and one, and writes more than its ring keeps.
#[derive(Clone, Copy)]
#[repr(C)]
struct Counts {
    net: Net,
    records: Records,
}

impl Kernel for Counts {
    const ENTRY: &'static str = "counts";
    fn run<G: Group>(self, g: &G) {
        let mut recorder = Recorder::open(g, self.net, self.records);
        for _ in 0..100 {
            recorder.record(g, Kind::new(1), [1]);
        }
        for value in 1..=10 * (i64::from(g.index()) + 1) {
            recorder.count(g, counted::STEPS, value);
        }
        recorder.close(g);
    }
}

#[test]
fn counters_of_kernels_and_lost_records_are_series() {
    let dir = TempDir::new();
    let (_daemon, addr) = start(&dir);
    let scrape = || ask(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("a daemon");
    let attachment = proxy.attach_cpu().expect("attached");
    let settings = Settings { records: 64, formats: counted::TABLE, ..Settings::new(2) };
    let rings = Rings::create(&attachment, settings).expect("rings").0;
    let program = attachment.load("", 1).expect("the CPU device");
    // SAFETY: the rings are dropped after the launch.
    let launch = unsafe { attachment.launch(&program, 3, 1, |net| Counts { net, records: rings.records() }) };
    launch.expect("it starts").finish(FinishPolicy::Close).expect("it ends");
    // 330 and 30 records if each block has had a ring; a block that found none has lost its own.
    let value = |text: &str, series: &str, label: &str| {
        let line = text.lines().find(|line| line.starts_with(series) && line.contains(label));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    until("the records are counted", || {
        let text = scrape();
        let written = value(&text, "gpunet_kernel_records_total{client=", "command=");
        let lost = |reason: &str| {
            value(&text, "gpunet_kernel_records_lost_total{", &format!("reason=\"{reason}\"")).unwrap_or(0)
        };
        assert_eq!(lost("malformed"), 0, "{text}");
        written.is_some_and(|written| written + lost("refused") == 360)
    });
    let text = scrape();
    let name = r#",name="steps \"a\\b\"\n"}"#;
    let sum = value(&text, "gpunet_kernel_counter{", name).expect("a counter");
    assert!((10..=60).contains(&sum) && sum.is_multiple_of(10), "{text}");
    assert!(value(&text, "gpunet_kernel_records_lost_total{", "reason=\"overwritten\"") > Some(0), "{text}");
    for line in [
        "# TYPE gpunet_kernel_records counter",
        "# TYPE gpunet_kernel_records_lost counter",
        "# TYPE gpunet_kernel_counter gauge",
        "# HELP gpunet_kernel_records Records that kernels have written.",
        "gpunet_kernel_counters_cut 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    drop(attachment);
}
