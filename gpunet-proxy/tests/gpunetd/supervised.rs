//! As a service of systemd.

use crate::daemon::{GPUNETD, LONG, Running, TempDir, answers, clean, gpunetd};
use crate::support::daemon::bound;
use rustix::process::Signal;
use socket2::{Socket, Type};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// systemd's end of the notifications.
struct Manager(UnixDatagram);

impl Manager {
    fn new(path: &Path) -> Self {
        Self::at(&SocketAddr::from_pathname(path).expect("short enough"))
    }

    fn at(addr: &SocketAddr) -> Self {
        let socket = UnixDatagram::bind_addr(addr).expect("bound");
        socket.set_read_timeout(Some(LONG)).expect("set");
        Self(socket)
    }

    /// The next notification that has `line`.
    fn until(&self, line: &str) -> String {
        let (start, mut buffer) = (Instant::now(), [0; 4096]);
        while start.elapsed() < LONG {
            let len = self.0.recv(&mut buffer).unwrap_or_else(|error| panic!("no {line}: {error}"));
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if text.lines().any(|found| found == line) {
                return text;
            }
        }
        panic!("no {line}");
    }
}

#[test]
fn it_says_when_it_is_ready_reloads_lives_and_stops() {
    let dir = TempDir::new();
    let manager = Manager::new(&dir.join("notify"));
    let file = dir.file("f.toml", "");
    let mut command = gpunetd(&dir);
    command
        .arg("--config")
        .arg(&file)
        .env("NOTIFY_SOCKET", dir.join("notify"))
        .env("WATCHDOG_USEC", "200000");
    let mut daemon = Running::spawn(&mut command);
    assert!(manager.until("READY=1").contains("STATUS=clients attach at "));
    assert!(answers(&dir.join("d.sock")), "ready means ready");
    manager.until("WATCHDOG=1");
    daemon.signal(Signal::HUP);
    let reloading = manager.until("RELOADING=1");
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    manager.until("READY=1");
    daemon.signal(Signal::TERM);
    assert!(manager.until("STOPPING=1").contains("EXTEND_TIMEOUT_USEC="));
    assert_eq!(daemon.end(), 0);
}

#[test]
fn it_finds_an_abstract_socket() {
    let dir = TempDir::new();
    let name = dir.join("notify").to_str().expect("text").to_owned();
    let manager = Manager::at(&SocketAddr::from_abstract_name(&name).expect("short enough"));
    let daemon = Running::start(gpunetd(&dir).env("NOTIFY_SOCKET", format!("@{name}")));
    manager.until("READY=1");
    assert!(!daemon.log().contains("cannot tell systemd"), "{}", daemon.log());
}

#[test]
fn a_watchdog_of_no_time_is_none() {
    let dir = TempDir::new();
    let manager = Manager::new(&dir.join("notify"));
    let mut command = gpunetd(&dir);
    command.env("NOTIFY_SOCKET", dir.join("notify")).env("WATCHDOG_USEC", "0");
    let mut daemon = Running::start(&mut command);
    manager.until("READY=1");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

/// A command that runs gpunetd with `socket` as systemd passes it.
fn activated(socket: &Socket, count: u32) -> Command {
    // Not every sh knows descriptors of two digits.
    let mut command = clean("bash");
    let fd = socket.as_raw_fd();
    // The shell's descriptors from 3 on are the passed ones.
    let passed = (3..3 + count).map(|at| format!("{at}<&{fd} ")).collect::<String>();
    let script = format!("LISTEN_PID=$$ LISTEN_FDS={count} exec \"$0\" \"$@\" {passed}");
    socket.set_cloexec(false).expect("set");
    command.arg("-c").arg(script).arg(GPUNETD).args(["--rc", "off", "--drain-s", "2"]);
    command
}

#[test]
fn it_takes_the_socket_that_systemd_passes_and_leaves_it() {
    let dir = TempDir::new();
    let path = dir.join("s.sock");
    let socket = bound(&path, Type::SEQPACKET, true);
    let mut daemon = Running::spawn(&mut activated(&socket, 1));
    daemon.until_logged("clients attach at the socket of systemd");
    let output = crate::daemon::output(
        clean(crate::daemon::GPUNETCTL).arg("--path").arg(&path).args(["ss", "--json"]),
    );
    assert!(output.status.success(), "{}", crate::daemon::text(&output.stderr));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
    assert!(path.exists(), "the file is systemd's");
}

#[test]
fn other_sockets_are_refused() {
    let dir = TempDir::new();
    for (name, kind, listen, count, word) in [
        ("stream", Type::STREAM, true, 1, "SOCK_SEQPACKET"),
        ("quiet", Type::SEQPACKET, false, 1, "SOCK_SEQPACKET"),
        ("two", Type::SEQPACKET, true, 2, "2 sockets are too many"),
    ] {
        let socket = bound(&dir.join(name), kind, listen);
        let mut daemon = Running::spawn(&mut activated(&socket, count));
        assert_eq!(daemon.end(), 1, "{name}: {}", daemon.log());
        daemon.until_logged(word);
    }
}

#[test]
fn sockets_meant_for_another_process_are_none_of_its_business() {
    let dir = TempDir::new();
    let _daemon = Running::start(gpunetd(&dir).env("LISTEN_PID", "1").env("LISTEN_FDS", "1"));
    assert!(answers(&dir.join("d.sock")));
}

#[test]
fn for_journald_the_level_comes_first_and_the_time_is_left_out() {
    let dir = TempDir::new();
    let daemon = Running::start(gpunetd(&dir).env("JOURNAL_STREAM", "8:1"));
    let log = daemon.log();
    assert!(log.lines().all(|line| line.starts_with("<6>") && line.contains("INFO gpunetd")), "{log}");
}
