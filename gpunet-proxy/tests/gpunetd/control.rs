//! gpunetctl.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text};
use std::io::Read;
use std::process::{Command, Stdio};

fn gpunetctl(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = clean(GPUNETCTL);
    command.arg("--path").arg(dir.join("d.sock")).args(args);
    command
}

#[test]
fn without_a_daemon_it_says_so() {
    let dir = TempDir::new();
    for args in [&["ss"][..], &["ss", "--json"], &["ss", "--watch"], &["clients"], &["threads"], &["top"]] {
        let output = output(&mut gpunetctl(&dir, args));
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.starts_with("gpunetctl: no gpunetd at ") && line.contains("--path"), "{line}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn an_idle_daemon_has_headings_and_valid_json() {
    let dir = TempDir::new();
    let daemon = Running::start(&mut gpunetd(&dir));
    let sockets = text(&output(&mut gpunetctl(&dir, &["ss"])).stdout);
    let headings: Vec<_> = sockets.split_whitespace().collect();
    assert_eq!(headings[..5], ["State", "Recv-Q", "Send-Q", "In-flight", "Local"], "{sockets}");
    assert_eq!(headings.last(), Some(&"Process"));
    assert!(text(&output(&mut gpunetctl(&dir, &["clients"])).stdout).contains("Undelivered"));
    let json = text(&output(&mut gpunetctl(&dir, &["ss", "--json"])).stdout);
    let snapshot: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(snapshot["pid"], daemon.child.id());
    assert!(snapshot["sockets"].as_array().is_some_and(Vec::is_empty));
    let clients = text(&output(&mut gpunetctl(&dir, &["clients", "--json"])).stdout);
    assert_eq!(clients, "[]\n");
    let threads = text(&output(&mut gpunetctl(&dir, &["threads"])).stdout);
    let cells: Vec<_> = threads.split_whitespace().collect();
    assert_eq!(cells[..6], ["Thread", "Streams", "Busy", "Load", "0", "0"], "{threads}");
    let threads = text(&output(&mut gpunetctl(&dir, &["threads", "--json"])).stdout);
    let threads: serde_json::Value = serde_json::from_str(&threads).expect("JSON");
    assert_eq!((&threads[0]["index"], &threads[0]["streams"]), (&0.into(), &0.into()), "{threads}");
}

#[test]
fn a_watch_prints_again_and_again_until_nobody_reads() {
    let dir = TempDir::new();
    let daemon = Running::start(&mut gpunetd(&dir));
    let mut command = gpunetctl(&dir, &["ss", "--json", "--watch", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let mut read = Vec::new();
    while read.iter().filter(|byte| **byte == b'\n').count() < 3 {
        let mut buffer = [0; 4096];
        let len = stdout.read(&mut buffer).expect("it prints");
        assert!(len > 0);
        read.extend_from_slice(&buffer[..len]);
    }
    for line in text(&read).lines().take(3) {
        let snapshot: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(snapshot["pid"], daemon.child.id());
    }
    drop(stdout);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}
