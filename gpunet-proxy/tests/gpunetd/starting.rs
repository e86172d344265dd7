//! Taking the path.

use crate::daemon::{GPUNETD, Running, TempDir, answers, clean, gpunetd, until};
use crate::support::daemon::bound;
use crate::support::process::{library_threads, takes_no_signal};
use crate::support::{copy_program, not_run};
use rustix::process::Signal;
use socket2::Type;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

#[test]
fn a_stale_socket_is_replaced() {
    let dir = TempDir::new();
    let path = dir.join("d.sock");
    drop(bound(&path, Type::SEQPACKET, true));
    assert!(path.exists());
    // A child that another test has just forked holds it until it becomes its program.
    until("nobody holds it", || !answers(&path));
    let mut daemon = Running::start(&mut gpunetd(&dir));
    assert!(answers(&path));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn a_daemon_that_was_killed_leaves_a_path_that_can_be_taken() {
    let dir = TempDir::new();
    let mut first = Running::start(&mut gpunetd(&dir));
    first.signal(Signal::KILL);
    assert_eq!(first.end(), -9);
    assert!(dir.join("d.sock").exists());
    let second = Running::start(&mut gpunetd(&dir));
    assert!(answers(&dir.join("d.sock")), "{}", second.log());
}

#[test]
fn a_second_daemon_is_refused_and_says_who_runs() {
    let dir = TempDir::new();
    let first = Running::start(&mut gpunetd(&dir));
    let mut second = Running::spawn(&mut gpunetd(&dir));
    assert_eq!(second.end(), 1);
    second.until_logged(&format!("pid {}", first.child.id()));
    assert!(second.log().contains("gpunetd already runs at"), "{}", second.log());
    assert!(answers(&dir.join("d.sock")), "the first one is unharmed");
}

#[test]
fn too_few_descriptors_are_named() {
    let dir = TempDir::new();
    // Fewer than four, and the system cannot load the program.
    let started = (4..40).find(|few| {
        let mut shell = clean("sh");
        shell.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &few.to_string(), GPUNETD, "--rc", "off"]);
        let mut daemon = Running::spawn(shell.arg("--listen-path").arg(dir.join("d.sock")));
        let mut ended = None;
        until("it runs or has ended", || {
            ended = ended.or_else(|| daemon.child.try_wait().expect("a child").map(|status| status.code()));
            ended.is_some() || daemon.log().contains("clients attach at")
        });
        if let Some(code) = ended {
            assert_eq!(code, Some(1), "{few}: {}", daemon.log());
            daemon.until_logged("ulimit -n");
        }
        ended.is_none()
    });
    assert!(started.is_some_and(|few| few > 8), "{started:?}");
}

#[test]
fn of_many_that_start_at_once_one_runs() {
    let dir = TempDir::new();
    // A stale socket, for all of them to want to remove.
    drop(bound(&dir.join("d.sock"), Type::SEQPACKET, true));
    let mut all: Vec<_> = (0..8).map(|_| Running::spawn(&mut gpunetd(&dir))).collect();
    let mut ended = vec![None; all.len()];
    until("seven of eight have ended", || {
        for (code, daemon) in ended.iter_mut().zip(&mut all) {
            *code = daemon.child.try_wait().expect("our child").map(|status| status.code());
        }
        ended.iter().flatten().count() == 7
    });
    assert!(ended.iter().flatten().all(|code| *code == Some(1)), "{ended:?}");
    until("the eighth answers", || answers(&dir.join("d.sock")));
}

#[test]
fn what_is_no_socket_of_ours_stays() {
    let dir = TempDir::new();
    let path = dir.file("d.sock", "somebody's file");
    let mut daemon = Running::spawn(&mut gpunetd(&dir));
    assert_eq!(daemon.end(), 1);
    daemon.until_logged("is no socket of gpunetd");
    assert_eq!(std::fs::read_to_string(&path).expect("still there"), "somebody's file");
    std::fs::remove_file(&path).expect("removed");
    let _other = bound(&path, Type::STREAM, true);
    let mut daemon = Running::spawn(&mut gpunetd(&dir));
    assert_eq!(daemon.end(), 1);
    daemon.until_logged("is no socket of gpunetd");
    assert!(path.exists());
}

/// A daemon that does without a lock because of what is at its path.
fn runs_without_its_lock(dir: &TempDir) {
    let mut daemon = Running::start(&mut gpunetd(dir));
    daemon.until_logged("no file of this user, so it is not locked");
    assert!(daemon.log().contains("remove it"), "{}", daemon.log());
    assert!(answers(&dir.join("d.sock")));
    // Another one sees by the socket that it runs.
    let mut second = Running::spawn(&mut gpunetd(dir));
    assert_eq!(second.end(), 1);
    second.until_logged("gpunetd already runs at");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

#[test]
fn a_lock_file_of_another_user_keeps_nobody_from_starting() {
    let dir = TempDir::new();
    let lock = dir.file("d.sock.lock", "");
    if std::os::unix::fs::chown(&lock, Some(4242), Some(4242)).is_err() {
        return not_run("a lock file of another user", "only root makes files of others");
    }
    std::fs::set_permissions(&lock, Permissions::from_mode(0o600)).expect("set");
    let theirs = std::fs::File::open(&lock).expect("opened");
    rustix::fs::flock(&theirs, rustix::fs::FlockOperation::LockExclusive).expect("locked");
    runs_without_its_lock(&dir);
    // A daemon of a user that cannot even open it, in a directory where everybody can write.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).expect("set");
    copy_program(Path::new(GPUNETD), &dir.join("gpunetd"));
    let mut other = clean(dir.join("gpunetd").to_str().expect("text"));
    other.args(["--rc", "off", "--listen-path"]).arg(dir.join("d.sock")).uid(4243).gid(4243).current_dir("/");
    let _daemon = Running::start(&mut other);
    assert!(answers(&dir.join("d.sock")));
}

#[test]
fn what_is_no_regular_file_is_not_locked() {
    let dir = TempDir::new();
    let lock = dir.join("d.sock.lock");
    let made = clean("mkfifo").arg(&lock).status().expect("it runs");
    assert!(made.success());
    runs_without_its_lock(&dir);
    // With a reader, it can be opened at once.
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&lock).expect("opened");
    runs_without_its_lock(&dir);
    assert!(lock.symlink_metadata().expect("still there").file_type().is_fifo());
    drop(reader);
    std::fs::remove_file(&lock).expect("removed");
    std::fs::create_dir(&lock).expect("made");
    runs_without_its_lock(&dir);
    std::fs::remove_dir(&lock).expect("removed");
    let socket = bound(&lock, Type::SEQPACKET, true);
    runs_without_its_lock(&dir);
    drop(socket);
    std::fs::remove_file(&lock).expect("removed");
    let _daemon = Running::start(&mut gpunetd(&dir));
}

#[test]
fn a_link_at_the_locks_path_is_not_followed() {
    let dir = TempDir::new();
    let elsewhere = dir.join("elsewhere");
    symlink(&elsewhere, dir.join("d.sock.lock")).expect("linked");
    runs_without_its_lock(&dir);
    assert!(!elsewhere.exists(), "made nothing elsewhere");
    dir.file("elsewhere", "somebody's file");
    runs_without_its_lock(&dir);
}

fn mode(path: &Path) -> String {
    let mode = path.symlink_metadata().expect("there").permissions().mode();
    format!("{:04o}", mode & 0o7777)
}

/// A daemon at `path`, started with a file creation mask.
fn masked(mask: &str, path: &Path) -> Running {
    let mut shell = clean("sh");
    shell.args(["-c", "umask \"$0\" && exec \"$@\"", mask, GPUNETD, "--rc", "off", "--socket-mode", "0646"]);
    Running::start(shell.arg("--listen-path").arg(path))
}

#[test]
fn directory_and_mode_are_as_wanted_whatever_the_umask() {
    for mask in ["000", "022", "077", "777"] {
        let dir = TempDir::new();
        let path = dir.join("a/b/d.sock");
        let _daemon = masked(mask, &path);
        let modes = ["a", "a/b", "a/b/d.sock", "a/b/d.sock.lock"].map(|name| mode(&dir.join(name)));
        assert_eq!(modes, ["0755", "0755", "0646", "0600"], "umask {mask}");
    }
}

#[test]
fn a_directory_that_exists_stays_as_it_is() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.join("a")).expect("made");
    std::fs::set_permissions(dir.join("a"), Permissions::from_mode(0o710)).expect("set");
    let _daemon = masked("077", &dir.join("a/d.sock"));
    assert_eq!([mode(&dir.join("a")), mode(&dir.join("a/d.sock"))], ["0710", "0646"]);
}

#[test]
fn the_path_comes_from_the_runtime_directory() {
    let dir = TempDir::new();
    let mut command = clean(GPUNETD);
    command.args(["--rc", "off"]).env("RUNTIME_DIRECTORY", dir.join("run"));
    let _daemon = Running::start(&mut command);
    assert!(answers(&dir.join("run/gpunetd.sock")));
}

#[test]
fn signals_reach_its_main_thread_only() {
    let dir = TempDir::new();
    let daemon = Running::start(&mut gpunetd(&dir));
    let threads = library_threads(daemon.child.id(), &["gpunet-sessions"]);
    for (name, blocked) in threads {
        takes_no_signal(&name, blocked);
    }
}
