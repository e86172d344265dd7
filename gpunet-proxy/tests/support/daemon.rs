//! A daemon in the test's own process, behind a socket in a directory of its own.

use gpunet_proxy::access::Access;
use gpunet_proxy::daemon::{self, Daemon};
use gpunet_proxy::{Attachment, Config, Proxy, attach};
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that goes with the value.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gpunet-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A Unix socket that is bound to `path` and, if wanted, listens.
pub fn bound(path: &Path, kind: Type, listen: bool) -> Socket {
    let socket = Socket::new(Domain::UNIX, kind, None).expect("a socket");
    socket.bind(&SockAddr::unix(path).expect("a short path")).expect("a free path");
    if listen {
        socket.listen(128).expect("a listener");
    }
    socket
}

/// A socket that listens at `path`, as gpunetd makes it.
pub fn listener(path: &Path) -> OwnedFd {
    let _ = std::fs::remove_file(path);
    bound(path, Type::SEQPACKET, true).into()
}

/// A running daemon.
pub struct Served {
    pub daemon: Option<Daemon>,
    pub path: PathBuf,
    _dir: TempDir,
}

impl Served {
    pub fn new(config: Config) -> Self {
        Self::with(config, Access::default())
    }

    pub fn with(config: Config, access: Access) -> Self {
        let dir = TempDir::new();
        let path = dir.join("sock");
        let daemon = daemon::start(listener(&path), config, access).expect("a daemon");
        Self { daemon: Some(daemon), path, _dir: dir }
    }

    /// An attachment of a program that attaches, with settings of tests.
    pub fn attached(&self) -> Attachment {
        self.attach(super::small()).attach_cpu().expect("attached")
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// A proxy of a program that attaches.
    pub fn attach(&self, config: Config) -> Proxy {
        attach(&self.path, config).expect("an attachable daemon")
    }

    /// Stops the daemon as a crash does, as far as clients can tell.
    pub fn kill(&mut self) {
        self.daemon = None;
    }

    /// Waits until the daemon has so many clients.
    #[track_caller]
    pub fn expect_clients(&self, count: usize) {
        super::until("that many clients", || {
            self.daemon().snapshot().is_some_and(|snapshot| snapshot.clients.len() == count)
        });
    }
}
