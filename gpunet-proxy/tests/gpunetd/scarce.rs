//! A daemon that the system gives little.

use crate::daemon::{GPUNETD, Running, TempDir, answers, clean, gpunetd, output, text, until};
use crate::support::cgroup::MemoryCgroup;
use crate::support::{copy_program, not_run};
use gpunet_proxy::{AttachError, Config, DaemonError, daemon};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
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

#[test]
fn a_client_that_asks_for_more_than_the_limit_of_file_sizes_is_refused() {
    let dir = TempDir::new();
    let mut limited = clean("bash");
    // In units of 1,024 bytes.
    limited.args(["-c", "ulimit -f 32768 && exec \"$0\" \"$@\"", GPUNETD]);
    limited.arg("--listen-path").arg(dir.join("d.sock")).args(["--rc", "off", "--drain-s", "2"]);
    let mut daemon = Running::start(&mut limited);
    let attach = |config| gpunet_proxy::attach(&dir.join("d.sock"), config).expect("a daemon").attach_cpu();
    let innocent = attach(Config::small()).expect("attached");
    match attach(Config { shared_rings: 64 << 20, ..Config::small() }) {
        Err(AttachError::Daemon(DaemonError::Refused { errno, reason })) => {
            assert_eq!(errno, libc::EFBIG, "{reason}");
            assert!(reason.contains("33554432 bytes: raise it (`ulimit -f`)"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(innocent.close().unfinished, 0, "the daemon lives");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

/// Where the client of the next test attaches.
const DAEMON: &str = "GPUNET_TEST_DAEMON_PATH";

#[test]
fn a_client_without_descriptors_hears_of_its_limit() {
    let dir = TempDir::new();
    let daemon = Running::start(gpunetd(&dir).args(["--threads", "2"]));
    let mut client = clean("/proc/self/exe");
    client.args(["--exact", "scarce::a_client_at_its_limit", "--ignored", "--nocapture"]);
    let done = output(client.env(DAEMON, dir.join("d.sock")));
    let said = text(&done.stdout) + &text(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}\n{}", daemon.log());
}

#[test]
#[ignore = "a part of `a_client_without_descriptors_hears_of_its_limit`, which runs it as a process of its own"]
fn a_client_at_its_limit() {
    let path = std::env::var_os(DAEMON).expect("it says where");
    let proxy = gpunet_proxy::attach(path.as_ref(), Config::small()).expect("a daemon");
    let limit = getrlimit(Resource::Nofile);
    // An attachment needs five more than there are: for the connection, the region, a doorbell for
    // each of two data threads, and the session's own.
    let refusals: Vec<_> = (3..)
        .map_while(|current| {
            setrlimit(Resource::Nofile, Rlimit { current: Some(current), ..limit }).expect("a lower limit");
            proxy.attach_cpu().err().map(|refused| refused.to_string())
        })
        .collect();
    assert!(refusals.iter().any(|refused| refused.contains("what the daemon passes")), "{refusals:?}");
    for refused in refusals {
        assert!(refused.contains("`ulimit -n`), which is "), "{refused}");
    }
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
