//! A daemon that the system gives little.

use crate::daemon::{GPUNETD, Running, TempDir, answers, clean, gpunetd, output, text, until};
use crate::support::cgroup::MemoryCgroup;
use crate::support::{copy_program, not_run};
use gpunet_proxy::{AttachError, Config, DaemonError, daemon};
use rustix::process::Signal;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn in_a_memory_cgroup_programs_get_errors_and_the_daemon_lives() {
    let group = match MemoryCgroup::new(128 << 20) {
        Ok(group) => group,
        Err(why) => return not_run("a daemon in a memory cgroup", &why),
    };
    let dir = TempDir::new();
    let path = dir.join("d.sock");
    let checked = output(&mut group.command(gpunetd(&dir).arg("--check")));
    let checked = text(&checked.stdout);
    let line = "# all users together: ring_memory = 100663296 ";
    assert!(checked.contains(line) && checked.contains("raise the limit"), "{checked}");
    let mut daemon = Running::start(&mut group.command(&gpunetd(&dir)));
    daemon.until_logged("raise the limit of this process's memory cgroup");
    let refusal = |error| match error {
        AttachError::Daemon(DaemonError::Refused { errno, reason }) => (errno, reason),
        other => panic!("{other}"),
    };
    let usual = gpunet_proxy::attach(&path, Config::default()).expect("a daemon");
    let (errno, reason) = refusal(usual.attach_cpu().expect_err("more than there is"));
    assert_eq!(errno, 105, "ENOBUFS: {reason}");
    assert!(reason.contains("cgroup") && reason.contains("shared_rings"), "{reason}");
    let small = Config { shared_rings: 16 << 20, ..Config::small() };
    let proxy = gpunet_proxy::attach(&path, small).expect("a daemon");
    let mut held = Vec::new();
    let refused = loop {
        match proxy.attach_cpu() {
            Ok(attachment) => held.push(attachment),
            Err(error) => break error,
        }
    };
    assert_eq!(refusal(refused).0, 105, "ENOBUFS");
    assert!(held.len() > 2, "{}", held.len());
    until("the memory of all of them is made", || {
        let clients = daemon::snapshot(&path).expect("the daemon lives").clients;
        clients.len() == held.len() && clients.iter().all(|client| client.ring_bytes == 16 << 20)
    });
    drop(held);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

/// A daemon that root's limits do not spare: of another user, where this one is root.
fn of_another(dir: &TempDir) -> Command {
    if !rustix::process::geteuid().is_root() {
        return gpunetd(dir);
    }
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("our own");
    copy_program(GPUNETD.as_ref(), &dir.join("gpunetd"));
    let mut command = clean(dir.join("gpunetd").to_str().expect("text"));
    command.arg("--listen-path").arg(dir.join("d.sock")).args(["--rc", "off", "--drain-s", "2"]);
    command.uid(4242).gid(4242).current_dir("/");
    command
}

#[test]
fn without_any_more_threads_a_daemon_serves_and_ends_in_order() {
    let dir = TempDir::new();
    let mut daemon = Running::start(&mut of_another(&dir));
    let mut lower = clean("prlimit");
    lower.args(["--pid", &daemon.child.id().to_string(), "--nproc=0:0"]);
    if rustix::process::geteuid().is_root() {
        lower.uid(4242).gid(4242);
    }
    if !lower.status().is_ok_and(|status| status.success()) {
        return not_run(
            "a daemon that gets no more threads",
            "prlimit (util-linux) is not there, or may not",
        );
    }
    let path = dir.join("d.sock");
    for _ in 0..3 {
        let proxy = gpunet_proxy::attach(&path, Config::small()).expect("a daemon");
        let (one, other) = (proxy.attach_cpu().expect("attached"), proxy.attach_cpu().expect("attached"));
        assert_eq!(daemon::snapshot(&path).expect("an answer").clients.len(), 2);
        assert_eq!(one.close().undelivered, 0);
        // As if it had died.
        proxy.abort();
        drop(other);
        until("both are forgotten", || daemon::snapshot(&path).expect("an answer").clients.is_empty());
    }
    assert!(answers(&path));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
}
