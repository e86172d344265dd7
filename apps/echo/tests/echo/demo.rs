//! `gpunet-echo` without a command: both halves in one process.

use crate::process::{Output, command, finish, interrupt};
use crate::program::{ECHO, json, run};
use serde_json::Value;
use std::time::Duration;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

/// Checks one run against its arguments.
fn check(run: &Value, transport: &str, size: u64, connections: u64, count: u64) {
    assert_eq!(run["transport"], transport, "{run}");
    assert_eq!(number(&run["size"]), size, "{run}");
    assert_eq!(number(&run["connections"]), connections, "{run}");
    assert_eq!(number(&run["messages"]), connections * count, "{run}");
    assert_eq!(number(&run["bytes_verified"]), connections * count * size, "{run}");
    assert_eq!(number(&run["errors"]), 0, "{run}");
    let (p50, p99) = (run["rtt_us"]["p50"].as_f64().unwrap(), run["rtt_us"]["p99"].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p99, "{run}");
    assert!(run["gigabytes_per_second"].as_f64().unwrap() > 0.0, "{run}");
}

#[test]
fn both_transports_bring_every_byte_back() {
    // One byte, odd sizes, and one that fits into no ring.
    let report = json(&[
        "--json",
        "--device",
        "cpu",
        "--size",
        "1,64,999,16K,600001",
        "--count",
        "7",
        "--connections",
        "3",
    ]);
    assert_eq!(report["device"], "cpu");
    assert_eq!((number(&report["connections"]), number(&report["messages"])), (30, 210));
    assert_eq!(number(&report["bytes_verified"]), 2 * 3 * 7 * (1 + 64 + 999 + 16_384 + 600_001));
    assert_eq!(number(&report["errors"]), 0);
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 10);
    for (at, run) in runs.iter().enumerate() {
        let size = [1, 64, 999, 16_384, 600_001][at % 5];
        check(run, if at < 5 { "tcp" } else { "peer" }, size, 3, 7);
    }
}

#[test]
fn one_transport_can_be_chosen() {
    for transport in ["tcp", "peer"] {
        let report =
            json(&["--json", "--device", "cpu", "--transport", transport, "--size", "100", "--count", "5"]);
        assert_eq!(report["runs"].as_array().unwrap().len(), 1);
        check(&report["runs"][0], transport, 100, 4, 5);
    }
}

#[test]
fn one_block_serves_many_connections_and_many_blocks_serve_one() {
    for (blocks, connections) in [("1", 9), ("3", 20), ("5", 1)] {
        let text = connections.to_string();
        let args = [
            "--json",
            "--device",
            "cpu",
            "--blocks",
            blocks,
            "--connections",
            &text,
            "--size",
            "3000",
            "--count",
            "9",
        ];
        let report = json(&args);
        check(&report["runs"][0], "tcp", 3000, connections, 9);
        check(&report["runs"][1], "peer", 3000, connections, 9);
    }
}

#[test]
fn hundreds_of_connections_are_opened_at_once() {
    // More than the 256 control slots of a default proxy, which are all held by blocks that
    // connect.
    let report = json(&["--json", "--device", "cpu", "--connections", "400", "--size", "64", "--count", "2"]);
    check(&report["runs"][0], "tcp", 64, 400, 2);
    check(&report["runs"][1], "peer", 64, 400, 2);
}

#[test]
fn blocks_of_several_lanes_do_the_same() {
    let report = json(&[
        "--json",
        "--device",
        "cpu",
        "--threads",
        "3",
        "--connections",
        "2",
        "--size",
        "5,4099",
        "--count",
        "11",
    ]);
    assert_eq!(number(&report["errors"]), 0);
    assert_eq!(number(&report["bytes_verified"]), 2 * 2 * 11 * (5 + 4099));
}

#[test]
fn people_get_a_table() {
    let Output { status, out, err } = run(&["--device", "cpu", "--size", "64,1K", "--count", "20"]);
    assert!(status.success(), "{out}\n{err}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines.len(), 6, "{out}");
    for word in ["device", "transport", "connections", "messages", "bytes verified", "p50", "p99", "GB/s"] {
        assert!(lines[0].contains(word), "{out}");
    }
    assert!(lines[1].contains("tcp") && lines[4].contains("peer") && lines[4].contains("1 KiB"), "{out}");
    assert_eq!(lines[5], "total: 16 connections, 320 messages, 174,080 bytes verified, 0 errors");
    assert!(err.is_empty(), "no bar without a terminal: {err}");
}

#[test]
fn an_interrupted_demonstration_prints_its_totals_and_ends() {
    let child = command(ECHO, &["--json", "--device", "cpu", "--size", "64", "--count", "100000000"])
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    interrupt(&child);
    let Output { status, out, err } = finish(child);
    assert_eq!(status.code(), Some(130), "{out}\n{err}");
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}\n{err}"));
    assert_eq!(report["interrupted"], true);
    assert_eq!(number(&report["errors"]), 0, "{report}");
    assert!(number(&report["messages"]) > 0, "{report}");
    assert_eq!(number(&report["bytes_verified"]), 64 * number(&report["messages"]), "{report}");
}
