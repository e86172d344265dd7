//! What the daemon does before it serves a connection.

use super::*;
use crate::api::proxy::attach;
use crate::model::error::{AttachError, DaemonError};
use gpunet_abi::Error;
use gpunet_abi::layout::SharedLayout;
use gpunet_core::ids::AttachmentId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketType, bind, connect, listen, recv, socket_with,
};
use rustix::process::{Uid, geteuid};
use rustix::thread::set_thread_res_uid;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::pin::pin;
use tokio::task::{LocalSet, spawn_blocking, yield_now};

/// Connections of three users: each has as many as one may have.
const CROWD: usize = 3 * PENDING.each;

/// A directory that every user can read, with a socket in it that every user can connect to.
struct Door(PathBuf);

impl Door {
    fn new(name: &str) -> (Self, OwnedFd) {
        let dir = std::env::temp_dir().join(format!("gpunet-door-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let door = Self(dir);
        let socket = seqpacket();
        bind(&socket, &SocketAddrUnix::new(door.path()).expect("a short path")).expect("a free path");
        listen(&socket, CROWD as i32).expect("a listener");
        for path in [&door.0, &door.path()] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("an own file");
        }
        (door, socket)
    }

    fn path(&self) -> PathBuf {
        self.0.join("sock")
    }

    /// Connections of other users, who may not attach and send nothing. Only root can connect as
    /// other users; a test that is not root connects as itself.
    fn crowd(&self) -> Vec<OwnedFd> {
        let path = self.path();
        let is_root = geteuid().is_root();
        let connect = move || {
            let address = SocketAddrUnix::new(&path).expect("a short path");
            // Of this thread alone, which stays root behind it.
            let become_user = |user| {
                if is_root {
                    set_thread_res_uid(None, user, Some(Uid::ROOT)).expect("another user");
                }
            };
            let connected = |n: usize| {
                let socket = seqpacket();
                become_user(Uid::from_raw(4242 + n as u32 % 3));
                connect(&socket, &address).expect("room in the backlog");
                become_user(Uid::ROOT);
                socket
            };
            (0..CROWD).map(connected).collect()
        };
        std::thread::spawn(connect).join().expect("no panic")
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn seqpacket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn is_readable(socket: &OwnedFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&now)).expect("open") > 0
}

/// Returns whether the other end of a connection is still there.
fn is_open(socket: &OwnedFd) -> bool {
    match recv(socket, &mut [0u8; 1], RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => true,
        Ok((_, 0)) => false,
        other => panic!("the daemon speaks first: {other:?}"),
    }
}

fn pool() -> ThreadPool {
    ThreadPool::start("gpunet-test").expect("threads").0
}

#[test]
fn memory_of_all_users_together_is_bounded() {
    let (door, socket) = Door::new("memory");
    let proxy = runtime::start(Config::small()).expect("a proxy");
    let size = SharedLayout::new(&Config::small().geometry(0)).len;
    // Room for two users.
    let accounts = Accounts::new(Descriptors::default(), RingMemory::of_process((size * 5 / 2) * 4 / 3));
    let state = Arc::new(DaemonState::new(proxy, pool(), accounts, Access::default()));
    let _daemon = Daemon { state: state.clone(), thread: None };
    let runtime = descriptors::runtime().expect("a runtime");
    let (sessions, _entered) = (LocalSet::new(), runtime.enter());
    rustix::io::ioctl_fionbio(&socket, true).expect("a socket");
    let mut serving = pin!(serve(state.clone(), watch(socket).expect("a listener")));
    let path = door.path();
    let client = move || {
        let attach = || attach(&path, Config::small()).expect("served").attach_cpu();
        let held = [(); 2].map(|()| attach().expect("attached"));
        let refused = attach().expect_err("there is no memory");
        let AttachError::Daemon(DaemonError::Refused { errno, reason, .. }) = refused else {
            panic!("{refused}")
        };
        assert_eq!(errno, Error::NoBuffers.errno());
        assert!(reason.contains("all users together have") && reason.contains("cgroup"), "{reason}");
        drop(held);
        // The memory is given back a moment after the end.
        while attach().is_err() {
            std::thread::yield_now();
        }
    };
    sessions.block_on(&runtime, async {
        tokio::select! {
            () = &mut serving => panic!("it ends"),
            done = spawn_blocking(client) => done.expect("no panic"),
        }
    });
}

#[test]
fn a_daemon_without_its_control_thread_has_failed() {
    let (_door, socket) = Door::new("failed");
    let daemon = start(socket, Config::small(), Access::default()).expect("a daemon");
    assert!(!daemon.has_failed());
    let done = Box::new(|_| panic!("a test's panic"));
    let _ = daemon.state.proxy.messages.send(Message::Usage { attachment: AttachmentId(0), done });
    while !daemon.has_failed() {
        std::thread::yield_now();
    }
    assert!(daemon.snapshot().is_none());
}

#[test]
fn a_daemon_that_ends_in_order_has_not_failed() {
    let (_door, socket) = Door::new("ends");
    let daemon = start(socket, Config::small(), Access::default()).expect("a daemon");
    daemon.state.phase.send_replace(Phase::Drain);
    while !daemon.thread.as_ref().is_some_and(JoinHandle::is_finished) {
        std::thread::yield_now();
    }
    assert!(!daemon.has_failed());
}

#[test]
fn a_crowd_is_turned_away_before_anything_is_spawned_for_it() {
    turn_away("crowd", Access::default(), PENDING.each);
}

#[test]
fn users_who_may_attach_leave_places_for_others() {
    let everyone = toml::from_str("allow_users = ['*']").expect("rules");
    let alone = PENDING.each;
    turn_away("allowed", everyone, if geteuid().is_root() { PENDING.all - PENDING.kept } else { alone });
}

/// A crowd of which `stay` remain. Other connections are served at the same time.
fn turn_away(name: &str, access: Access, stay: usize) {
    let (door, socket) = Door::new(name);
    let backlog = socket.try_clone().expect("a descriptor");
    let crowd = door.crowd();
    let proxy = runtime::start(Config::small()).expect("a proxy");
    let state = Arc::new(DaemonState::new(proxy, pool(), Accounts::default(), access));
    // Stops it at the end.
    let _daemon = Daemon { state: state.clone(), thread: None };
    let runtime = descriptors::runtime().expect("a runtime");
    let (sessions, _entered) = (LocalSet::new(), runtime.enter());
    rustix::io::ioctl_fionbio(&socket, true).expect("a socket");
    let mut serving = pin!(serve(state, watch(socket).expect("a listener")));
    // Sessions do not run in here: what is spawned stays where it is.
    let spawns = sessions.enter();
    runtime.block_on(async {
        tokio::select! {
            () = &mut serving => panic!("it ends"),
            () = async { while is_readable(&backlog) { yield_now().await } } => {}
        }
    });
    drop(spawns);
    assert_eq!(crowd.iter().filter(|socket| is_open(socket)).count(), stay);
    if !geteuid().is_root() {
        let _ =
            writeln!(io::stderr(), "NOT RUN: another client beside a crowd: only root can be another user");
        return;
    }
    // Root is served at the same time.
    let path = door.path();
    let client = move || attach(&path, Config::small()).expect("served").attach_cpu().map(drop);
    sessions.block_on(&runtime, async {
        tokio::select! {
            () = &mut serving => panic!("it ends"),
            attached = spawn_blocking(client) => attached.expect("no panic").expect("attached"),
        }
    });
}
