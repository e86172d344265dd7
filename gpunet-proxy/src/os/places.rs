//! The default paths of a daemon's socket.

use std::env;
use std::path::{Path, PathBuf};

/// The socket of a daemon that runs as root.
pub const SYSTEM: &str = "/run/gpunet/gpunetd.sock";

/// Returns where a daemon of this process's user listens: in systemd's runtime directory of the
/// service, else at [`SYSTEM`] for root, else in the user's runtime directory. `None` if the user
/// has no such directory.
///
/// # Examples
/// ```
/// match gpunet_proxy::places::listen_path() {
///     Some(path) => println!("listen at {}", path.display()),
///     None => eprintln!("set XDG_RUNTIME_DIR, or name a path"),
/// }
/// ```
#[must_use]
pub fn listen_path() -> Option<PathBuf> {
    if let Some(directories) = env::var_os("RUNTIME_DIRECTORY")
        && let Some(first) = env::split_paths(&directories).next()
    {
        return Some(first.join("gpunetd.sock"));
    }
    if rustix::process::geteuid().is_root() { Some(PathBuf::from(SYSTEM)) } else { of_user() }
}

/// Returns where a client finds a daemon: at `GPUNETD_LISTEN_PATH` if that is set, else in the
/// user's runtime directory if it has a socket, else at [`SYSTEM`].
///
/// # Examples
/// ```
/// println!("a daemon is looked for at {}", gpunet_proxy::places::daemon_path().display());
/// ```
#[must_use]
pub fn daemon_path() -> PathBuf {
    daemon_place().0
}

/// Returns [`daemon_path`], and why it is that one.
#[must_use]
pub fn daemon_place() -> (PathBuf, &'static str) {
    if let Some(path) = env::var_os("GPUNETD_LISTEN_PATH").filter(|path| !path.is_empty()) {
        return (path.into(), "by GPUNETD_LISTEN_PATH");
    }
    match of_user().filter(|path| path.exists()) {
        Some(path) => (path, "in XDG_RUNTIME_DIR"),
        None => (PathBuf::from(SYSTEM), "the system's place"),
    }
}

fn of_user() -> Option<PathBuf> {
    let directory = env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty())?;
    Some(Path::new(&directory).join("gpunetd.sock"))
}
