//! This machine, whatever it has.

use crate::process::{Tree, diagnose, find, object, run, status, text};
use gpunet_proxy::access::Access;
use gpunet_proxy::{Config, daemon};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::process::Command;

#[test]
fn every_check_is_told_and_the_cpu_passes_its_self_tests() {
    let output = run(&["--json"]);
    let report = object(&output);
    let listed = text(&run(&["--list"]));
    for id in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        // Ports that are down, and what is required, are not told here.
        let optional =
            id.starts_with("require.") || id.starts_with("rdma.") && status(&report, "rdma.devices") == "ok";
        if !optional {
            find(&report, id);
        }
    }
    let checks = report["checks"].as_array().expect("checks");
    let on_cpu: Vec<_> = checks.iter().filter(|check| check["subject"] == "cpu").collect();
    assert!(on_cpu.len() >= 5, "{report:#}");
    assert!(on_cpu.iter().all(|check| check["status"] == "ok"), "{on_cpu:#?}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{report:#}");
    for check in checks.iter().filter(|check| check["status"] != "ok") {
        assert!(check["advice"].is_string(), "no advice: {check:#}");
    }
}

#[test]
fn the_order_test_has_counted_what_a_writer_without_rules_leaves() {
    let report = object(&run(&["--json", "--only", "selftest.order"]));
    let evidence = find(&report, "selftest.order")["evidence"].as_str().expect("evidence").to_owned();
    assert!(
        evidence.starts_with("0 stale words") && evidence.contains("all 102400 are counted"),
        "{evidence}"
    );
}

#[test]
fn a_required_gpu_that_is_not_there_is_exit_code_2() {
    let output = run(&["--json", "--only", "machine", "--require", "gpu"]);
    let report = object(&output);
    if status(&report, "require.gpu") == "ok" {
        eprintln!("NOT RUN: a required GPU that is not there; this machine has one");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{report:#}");
    assert_eq!(report["verdict"], "cannot-work");
}

#[test]
fn without_a_loopback_interface_the_tcp_echo_fails_and_so_does_the_machine() {
    let isolated = |program: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--map-root-user", program]);
        command
    };
    if !isolated("true").output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT RUN: a machine without loopback; `unshare --net --map-root-user` is not allowed here");
        return;
    }
    let program = diagnose(&[]);
    let program = program.get_program().to_str().expect("a plain path");
    let output =
        isolated(program).args(["--json", "--only", "machine,selftest"]).output().expect("it starts");
    let report = object(&output);
    assert_eq!(status(&report, "machine.loopback"), "missing");
    assert_eq!(status(&report, "selftest.tcp"), "missing");
    assert_eq!(find(&report, "selftest.tcp")["impact"], "fatal");
    assert_eq!(status(&report, "selftest.peer"), "ok", "the other tests went on");
    assert_eq!(report["works"][0]["failed"], serde_json::json!(["tcp"]));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_daemon_is_found_with_its_version() {
    let tree = Tree::new();
    let path = tree.path().join("gpunetd.sock");
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free path");
    rustix::net::listen(&socket, 8).expect("a listener");
    let daemon = daemon::start(socket, Config::small(), Access::default()).expect("a daemon");
    let ask = || {
        let mut command = diagnose(&["--json", "--only", "daemon"]);
        object(&command.env("GPUNETD_LISTEN_PATH", &path).output().expect("it starts"))
    };
    let report = ask();
    assert_eq!(status(&report, "daemon.running"), "ok", "{report:#}");
    assert!(
        find(&report, "daemon.running")["evidence"].as_str().is_some_and(|text| text.contains("gpunetd 0."))
    );
    drop(daemon);
    assert_eq!(status(&ask(), "daemon.running"), "missing");
}
