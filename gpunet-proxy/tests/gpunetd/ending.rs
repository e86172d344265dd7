//! Signals.

use crate::daemon::{Running, TempDir, clean, gpunetd};
use rustix::process::Signal;
use std::path::Path;

#[test]
fn told_to_end_it_ends_well_and_takes_its_socket_along() {
    for signal in [Signal::TERM, Signal::INT] {
        let dir = TempDir::new();
        let mut daemon = Running::start(&mut gpunetd(&dir));
        daemon.signal(signal);
        assert_eq!(daemon.end(), 0, "{}", daemon.log());
        daemon.until_logged("everything is delivered");
        assert!(!dir.join("d.sock").exists());
    }
}

#[test]
fn a_reload_takes_limits_and_names_what_needs_a_restart() {
    let dir = TempDir::new();
    let file = dir.file("f.toml", "threads = 1\n");
    let mut daemon = Running::start(gpunetd(&dir).arg("--config").arg(&file));
    dir.file("f.toml", "threads = 2\nlinger_s = 1\n[limits]\nsockets = 7\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("reloaded: other limits from now on");
    assert!(daemon.log().contains("need a restart keys=\"threads, linger_s\""), "{}", daemon.log());
    dir.file("f.toml", "threads = 1\n[limits]\nsockets = 7\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("reloaded: the same limits");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0);
}

#[test]
fn a_bad_file_changes_nothing() {
    let dir = TempDir::new();
    let file = dir.file("f.toml", "[limits]\nsockets = 7\n");
    let mut daemon = Running::start(gpunetd(&dir).arg("--config").arg(&file));
    dir.file("f.toml", "[limits]\nsokets = 7\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("not reloaded, the settings stay as they are");
    daemon.until_logged("sokets");
    std::fs::remove_file(&file).expect("removed");
    daemon.signal(Signal::HUP);
    daemon.until_logged("cannot read");
    dir.file("f.toml", "[limits]\nsockets = 7\n");
    daemon.signal(Signal::HUP);
    daemon.until_logged("reloaded: the same limits");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0);
}

#[test]
fn settings_are_read_from_files_only() {
    let dir = TempDir::new();
    let fifo = dir.join("fifo");
    assert!(clean("mkfifo").arg(&fifo).status().expect("it runs").success());
    for (path, why) in [(fifo.as_path(), "no regular file"), (Path::new("/dev/zero"), "no regular file")] {
        let mut daemon = Running::spawn(gpunetd(&dir).arg("--config").arg(path));
        assert_eq!(daemon.end(), 1);
        daemon.until_logged(why);
    }
    let file = dir.file("f.toml", "threads = 1\n");
    let mut daemon = Running::start(gpunetd(&dir).arg("--config").arg(&file));
    std::fs::rename(&fifo, &file).expect("replaced");
    daemon.signal(Signal::HUP);
    daemon.until_logged("not reloaded");
    std::fs::remove_file(&file).expect("removed");
    std::fs::File::create(&file).and_then(|file| file.set_len(1 << 40)).expect("a file with a hole");
    daemon.signal(Signal::HUP);
    daemon.until_logged("longer than 1048576 bytes");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn the_log_can_be_json() {
    let dir = TempDir::new();
    let mut daemon = Running::start(gpunetd(&dir).args(["--log-format", "json"]));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0);
    daemon.until_logged("everything is delivered");
    for line in daemon.log().lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(event["message"].is_string() && event["level"].is_string(), "{line}");
    }
}
