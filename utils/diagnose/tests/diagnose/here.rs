//! This machine, whatever it has.

use crate::process::{Tree, diagnose, find, object, run, status, text};
use gpunet_proxy::access::Access;
use gpunet_proxy::{Config, daemon};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::Path;
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
    let ask = |more: &[&str], variables: &[(&str, &Path)]| {
        let args = [&["--json", "--only", "daemon"], more].concat();
        let output = diagnose(&args).envs(variables.iter().copied()).output().expect("it starts");
        let (report, code) = (object(&output), output.status.code().expect("an end by itself"));
        let check = find(&report, "daemon.running");
        let evidence = check["evidence"].as_str().expect("evidence").to_owned();
        (check["status"].as_str().expect("a status").to_owned(), evidence, code)
    };
    let option = path.to_str().expect("a plain path");
    let (nowhere, empty) = (Path::new("/nonexistent/gpunetd.sock"), Path::new(""));
    let usual = ("GPUNETD_LISTEN_PATH", path.as_path());
    let ways = [
        (vec![], vec![usual], "by GPUNETD_LISTEN_PATH"),
        (vec![], vec![("GPUNET_DAEMON", &*path), ("GPUNETD_LISTEN_PATH", nowhere)], "by GPUNET_DAEMON"),
        (vec![], vec![("GPUNET_DAEMON", empty), usual], "by GPUNETD_LISTEN_PATH"),
        (vec!["--daemon", option], vec![("GPUNET_DAEMON", nowhere)], "by --daemon"),
    ];
    for (more, variables, by) in ways {
        let (status, evidence, code) = ask(&more, &variables);
        assert_eq!((status.as_str(), code), ("ok", 0), "{evidence}");
        assert!(evidence.starts_with("gpunetd 0.") && evidence.contains(option), "{evidence}");
        assert!(evidence.contains(by), "{evidence}");
    }
    drop(daemon);
    let (status, _, code) = ask(&[], &[("GPUNETD_LISTEN_PATH", &path)]);
    assert_eq!((status.as_str(), code), ("missing", 0), "programs do without it");
    let (status, evidence, code) = ask(&[], &[("GPUNET_DAEMON", &path)]);
    assert_eq!((status.as_str(), code), ("missing", 2), "{evidence}");
}

#[test]
fn tests_that_find_no_process_to_run_in_are_unknown() {
    let program = diagnose(&[]);
    let script = "ulimit -n 6 && exec \"$0\" --json --only limits,selftest";
    let output = Command::new("sh").args(["-c", script]).arg(program.get_program()).output().expect("sh");
    let report = object(&output);
    for id in ["limits.memfd", "selftest.tcp", "selftest.peer"] {
        let check = find(&report, id);
        assert_eq!(check["status"], "unknown", "{check:#}");
        assert!(check["advice"].as_str().is_some_and(|text| text.contains("ulimit -n")), "{check:#}");
    }
    assert_eq!(status(&report, "limits.files"), "degraded");
    let works = &report["works"][0];
    assert_eq!((&works["transports"], &works["failed"]), (&serde_json::json!([]), &serde_json::json!([])));
    assert_eq!(works["untried"], serde_json::json!(["tcp", "peer"]));
    assert_eq!(output.status.code(), Some(1), "{report:#}");
}

#[test]
fn a_cuda_library_that_crashes_is_silent_alone() {
    let tree = Tree::new();
    tree.file(
        "cuda.c",
        "#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n",
    );
    let at = |name: &str| tree.path().join(name);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(at("libcuda.so.1")).arg(at("cuda.c"));
    if !cc.output().is_ok_and(|output| output.status.success()) {
        eprintln!("NOT RUN: a CUDA library that crashes; there is no C compiler here");
        return;
    }
    let only = "machine.loopback,limits.memfd,modules,gpu,rdma,daemon,selftest.peer";
    let mut command = diagnose(&["--json", "--only", only]);
    let report = object(&command.env("LD_LIBRARY_PATH", tree.path()).output().expect("it starts"));
    let driver = find(&report, "gpu.driver");
    assert_eq!(driver["status"], "unknown", "{driver:#}");
    assert!(
        driver["evidence"].as_str().is_some_and(|text| text.ends_with("was killed by signal 6")),
        "{driver:#}"
    );
    assert_eq!(status(&report, "limits.memfd"), "ok");
    assert_eq!(status(&report, "machine.loopback"), "ok");
    assert_eq!(status(&report, "selftest.peer"), "ok");
    for id in ["rdma.libraries", "daemon.running"] {
        assert_ne!(status(&report, id), "unknown", "{id}");
    }
    let checks = report["checks"].as_array().expect("checks").iter();
    let reboot = checks.filter(|check| check["advice"].as_str().is_some_and(|text| text.contains("reboot")));
    for check in reboot {
        let id = check["id"].as_str().expect("an id");
        assert!(id.starts_with("gpu.") || id == "modules.dmabuf_mmap", "{check:#}");
    }
}
