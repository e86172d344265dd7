//! Servers and clients as processes of their own, under one daemon.

use crate::process::{Output, Server};
use crate::program::{json, run, serve, stop};
use gpunet_proxy::access::Access;
use gpunet_proxy::{Config, daemon};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::path::PathBuf;

/// A daemon in the test's process, at a path of its own.
struct Daemon {
    path: PathBuf,
    _running: daemon::Daemon,
}

impl Daemon {
    fn start(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gpunet-echo-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free path");
        rustix::net::listen(&socket, 16).expect("a listener");
        let running = daemon::start(socket, Config::small(), Access::default()).expect("a daemon");
        Self { path, _running: running }
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("text")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn load(server: &Server, daemon: &str, transport: &str) -> serde_json::Value {
    let addr = server.addr.to_string();
    json(&[
        "client",
        &addr,
        "--json",
        "--device",
        "cpu",
        "--daemon",
        daemon,
        "--transport",
        transport,
        "--connections",
        "3",
        "--size",
        "64,70000",
        "--count",
        "50",
    ])
}

#[test]
fn two_processes_under_one_daemon_talk_by_peer_and_by_tcp() {
    let daemon = Daemon::start("two");
    let server = serve(&["127.0.0.1:0", "--daemon", daemon.path()]);
    for transport in ["peer", "tcp", "auto"] {
        let report = load(&server, daemon.path(), transport);
        assert_eq!((&report["errors"], &report["messages"]), (&0.into(), &300.into()), "{report}");
        assert_eq!(report["bytes_verified"], 3 * 50 * (64 + 70_000), "{report}");
    }
    let Output { status, out: said, .. } = stop(server);
    assert!(status.success() && said.contains(" 0 errors"), "{said}");
}

#[test]
fn the_demonstration_runs_attached() {
    let daemon = Daemon::start("demo");
    let report = json(&[
        "--device",
        "cpu",
        "--daemon",
        daemon.path(),
        "--json",
        "--size",
        "64,65536",
        "--count",
        "20",
    ]);
    assert_eq!(report["errors"], 0, "{report}");
}

#[test]
fn a_daemon_that_is_not_there_is_said_to_be_missing() {
    let err = run(&["--device", "cpu", "--daemon", "/nonexistent/gpunet.sock", "--count", "1"]).err;
    assert!(err.contains("no daemon at /nonexistent/gpunet.sock"), "{err}");
}
