//! Both ends as kernels.

use crate::program::{run_on_cpu, serve};

/// Sizes of transfers: one byte, less than a line, whole pages, more than the rings hold, and odd
/// ones.
const SIZES: [(&str, &str, &str); 6] = [
    ("1", "300", "3"),
    ("64", "100", "5"),
    ("777", "50", "3"),
    ("64K", "6", "3"),
    ("1M", "2", "2"),
    ("1048579", "2", "2"),
];

#[test]
fn a_client_and_a_server_process_agree_over_tcp() {
    for (size, count, iterations) in SIZES {
        let test = ["-S", size, "-C", count, "-I", iterations, "--verify", "--transport", "tcp"];
        let server = serve(&test);
        let addr = server.addr.to_string();
        let client = run_on_cpu(&[&["client", &addr], &test[..]].concat());
        assert!(client.status.success(), "{size}: {}{}", client.out, client.err);
        let server = server.finish();
        assert!(server.status.success(), "{size}: {}{}", server.out, server.err);
        for out in [&server.out, &client.out] {
            assert!(out.contains("custom"), "{out}");
            assert!(out.contains("1 connections good") && out.contains("verified, 0 errors"), "{out}");
        }
    }
}

#[test]
fn both_ends_in_one_process_agree_over_tcp_and_peer() {
    for transport in ["tcp", "peer", "auto"] {
        for (size, count, iterations) in SIZES {
            let test = ["both", "-S", size, "-C", count, "-I", iterations];
            let rest = ["--verify", "--json", "--transport", transport];
            let report = run_on_cpu(&[&test[..], &rest].concat()).json();
            assert_eq!(report["errors"], 0, "{report}");
            assert_eq!(report["connections"], 2, "an end each: {report}");
            let row = &report["tests"][0];
            assert_eq!(row["end"], "client", "{report}");
            // Both ends receive their half, and sixteen bytes of sync.
            assert_eq!(report["bytes_received"], row["bytes"].as_u64().unwrap() + 32, "{report}");
        }
    }
}

#[test]
fn small_rings_and_several_lanes_make_no_difference() {
    let test = ["both", "-S", "30001", "-C", "5", "-I", "2", "--verify", "--json", "--ring", "4K"];
    for (transport, threads) in [("tcp", "1"), ("peer", "1"), ("tcp", "3"), ("peer", "4")] {
        let report =
            run_on_cpu(&[&test[..], &["--transport", transport, "--threads", threads]].concat()).json();
        assert_eq!(report["errors"], 0, "{transport}, {threads} lanes: {report}");
    }
}

#[test]
fn several_clients_are_served_one_after_another() {
    let test = ["-S", "500", "-C", "3", "-I", "2", "--verify", "--connections", "3"];
    let server = serve(&test);
    let addr = server.addr.to_string();
    // Each run counts its bytes from 0 again, on both sides.
    let client = run_on_cpu(&[&["client", &addr, "--json"], &test[..]].concat()).json();
    assert_eq!((&client["connections"], &client["errors"]), (&3.into(), &0.into()), "{client}");
    let server = server.finish();
    assert!(server.status.success() && server.out.contains("3 connections good"), "{}", server.out);
}

#[test]
fn a_server_without_end_runs_until_it_is_interrupted() {
    let test = ["-S", "500", "-C", "3", "--verify"];
    let server = serve(&[&test[..], &["--connections", "0"]].concat());
    let addr = server.addr.to_string();
    for _ in 0..2 {
        assert!(run_on_cpu(&[&["client", &addr], &test[..]].concat()).status.success());
    }
    server.interrupt();
    let server = server.finish();
    assert_eq!(server.status.code(), Some(0), "{}{}", server.out, server.err);
    assert!(
        server.out.contains("2 connections good") && server.out.contains("(interrupted)"),
        "{}",
        server.out
    );
    // One that was to serve somebody has not done it.
    let server = serve(&test);
    server.interrupt();
    assert_eq!(server.finish().status.code(), Some(130));
}
