//! File descriptors, and the advice for when none are left.
//!
//! A proxy needs them for its threads, its listeners and its streams. The limit belongs to the
//! process that runs it.

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Resource, getrlimit};
use std::io;
use tokio::runtime::{Builder, Runtime};

/// Returns advice to append to the message of `error`: which limit to raise if descriptors have run
/// out, else nothing.
///
/// # Examples
/// ```
/// use gpunet_proxy::descriptors::hint;
///
/// let error = std::io::Error::from_raw_os_error(24); // EMFILE
/// assert!(hint(&error).starts_with("; raise the limit of file descriptors (`ulimit -n`), which is "));
/// ```
#[must_use]
pub fn hint(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            let limit =
                getrlimit(Resource::Nofile).current.map_or("unlimited".to_owned(), |limit| limit.to_string());
            format!("; raise the limit of file descriptors (`ulimit -n`), which is {limit}")
        }
        Some(libc::ENFILE) => "; raise the system's limit of open files (`sysctl fs.file-max`)".to_owned(),
        Some(libc::ETOOMANYREFS) => {
            "; this user passes more file descriptors at a time than `ulimit -n` allows: raise it".to_owned()
        }
        _ => String::new(),
    }
}

/// Descriptors that a runtime needs: six with tokio 1.54, two of them for the signals of the whole
/// process.
const OF_A_RUNTIME: usize = 8;

/// Threads of a runtime for what takes long. What they do is memory to be made and given back,
/// which more of them do not do faster; and each leaves memory of its own with the allocator.
const BLOCKING: usize = 8;

/// Makes a runtime for one thread.
///
/// # Errors
/// The system's. (tokio's own builder panics where the descriptors for signals are missing.)
pub fn runtime() -> io::Result<Runtime> {
    let spare: Result<Vec<_>, _> = (0..OF_A_RUNTIME).map(|_| eventfd(0, EventfdFlags::CLOEXEC)).collect();
    drop(spare?);
    Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_descriptors_has_a_hint() {
        let hint = |code| hint(&io::Error::from_raw_os_error(code));
        let limit = getrlimit(Resource::Nofile).current.expect("a limit");
        assert!(hint(libc::EMFILE).ends_with(&format!("(`ulimit -n`), which is {limit}")));
        assert!(hint(libc::ENFILE).contains("fs.file-max"));
        assert_eq!(hint(libc::EACCES), "");
    }
}
