//! Where a daemon and its clients meet, if nobody says otherwise.

use std::env;
use std::path::{Path, PathBuf};

/// The socket of a daemon that runs as root.
pub const SYSTEM: &str = "/run/gpunet/gpunetd.sock";

/// Where a daemon of this process's user listens: in systemd's runtime directory of the service, else
/// at [`SYSTEM`] for root, else in the user's runtime directory. `None`: the user has none.
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

/// Where a client finds a daemon: at `GPUNETD_LISTEN_PATH` if that is set, else in the user's runtime
/// directory if there is one, else the system's, at [`SYSTEM`].
///
/// # Examples
/// ```
/// println!("a daemon is looked for at {}", gpunet_proxy::places::daemon_path().display());
/// ```
#[must_use]
pub fn daemon_path() -> PathBuf {
    daemon_place().0
}

/// The same, and what says so.
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
