//! What the environment tells the driver: eager module loading and connections for streams, asked
//! for here before the driver starts, and settings of the user that streams have to know of.

#![allow(unsafe_code, reason = "std::env::set_var, in a process of one thread")]

use std::env;
use std::ffi::OsString;
use std::fs;

const VARIABLE: &str = "CUDA_MODULE_LOADING";

/// How the driver loads a module's code.
///
/// With lazy loading the first launch of a kernel may wait for the context to be idle: a deadlock
/// when another kernel runs and waits for the host. This crate loads all kernels of a
/// [`Module`](crate::Module) with it (with drivers before 12.4: when they are looked up), so lazy
/// loading is safe here; eager loading also covers code that others load.
///
/// # Examples
/// ```no_run
/// use gpunet_cuda::{Cuda, LazyLoading};
///
/// if Cuda::load()?.lazy_loading() == LazyLoading::ByDefault {
///     println!("set CUDA_MODULE_LOADING=EAGER, or load CUDA before any thread is started");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LazyLoading {
    /// Modules are loaded whole.
    Off,
    /// The user's `CUDA_MODULE_LOADING` asks for lazy loading, which is respected.
    ByUser,
    /// The driver's default, lazy: the variable could not be set, because the process already had
    /// several threads (another one could be reading the environment). Set
    /// `CUDA_MODULE_LOADING=EAGER` outside, or load CUDA first in `main`.
    ByDefault,
    /// The driver cannot tell: it is older than 11.7 (which loads eagerly).
    Unknown,
}

/// What was done about the variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Set,
    UsersChoice,
    NotPossible,
}

pub(super) fn ask_for_eager_loading() -> Asked {
    if env::var_os(VARIABLE).is_some() {
        return Asked::UsersChoice;
    }
    if !single_threaded() {
        return Asked::NotPossible;
    }
    // SAFETY: this is the process's only thread (just checked, and only it could start another), so
    // nobody reads the environment.
    unsafe { env::set_var(VARIABLE, "EAGER") };
    Asked::Set
}

pub(super) fn outcome(asked: Asked, lazy: Option<bool>) -> LazyLoading {
    match (lazy, asked) {
        (None, _) => LazyLoading::Unknown,
        (Some(false), _) => LazyLoading::Off,
        (Some(true), Asked::UsersChoice) => LazyLoading::ByUser,
        (Some(true), Asked::Set | Asked::NotPossible) => LazyLoading::ByDefault,
    }
}

const CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// The most that the driver has.
const MOST_CONNECTIONS: u32 = 32;
/// What it has when nothing is said.
const DEFAULT_CONNECTIONS: u32 = 8;

/// Asks the driver for as many connections as it has, where the user has asked for none and no
/// other thread exists.
///
/// A stream that waits holds up every stream with which it shares a connection.
pub(super) fn ask_for_connections() {
    if env::var_os(CONNECTIONS).is_none() && single_threaded() {
        // SAFETY: as in `ask_for_eager_loading`.
        unsafe { env::set_var(CONNECTIONS, MOST_CONNECTIONS.to_string()) };
    }
}

/// Settings under which a stream that waits holds up more than itself, as the driver found them
/// when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamSettings {
    /// `CUDA_DEVICE_MAX_CONNECTIONS`: how many queues of the hardware the streams of a context
    /// share.
    pub(crate) connections: u32,
    /// `CUDA_LAUNCH_BLOCKING=1`: a call that enqueues waits until what it enqueued is done.
    pub(crate) launch_blocking: bool,
}

impl Default for StreamSettings {
    fn default() -> Self {
        Self { connections: DEFAULT_CONNECTIONS, launch_blocking: false }
    }
}

impl StreamSettings {
    pub(super) fn from_environment() -> Self {
        Self::read(|name| env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        // The driver reads numbers; what is none, it ignores.
        let number = |name| variable(name)?.to_str()?.trim().parse::<i64>().ok();
        Self {
            connections: number(CONNECTIONS)
                .filter(|&count| count > 0)
                .map_or(DEFAULT_CONNECTIONS, |count| count.min(MOST_CONNECTIONS.into()) as u32),
            launch_blocking: number("CUDA_LAUNCH_BLOCKING").is_some_and(|value| value != 0),
        }
    }
}

fn single_threaded() -> bool {
    // An unreadable /proc counts as "other threads may exist".
    fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.take(2).count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_left_alone_where_other_threads_exist() {
        // The test harness's main thread waits for this one: there are two.
        if env::var_os(VARIABLE).is_none() {
            std::thread::scope(|scope| {
                let (done, wait) = std::sync::mpsc::channel::<()>();
                scope.spawn(move || wait.recv());
                assert_eq!(ask_for_eager_loading(), Asked::NotPossible);
                drop(done);
            });
            assert!(env::var_os(VARIABLE).is_none());
        }
    }

    #[test]
    fn a_lazy_driver_is_reported_with_who_decided() {
        assert_eq!(outcome(Asked::Set, Some(false)), LazyLoading::Off);
        assert_eq!(outcome(Asked::UsersChoice, Some(true)), LazyLoading::ByUser);
        assert_eq!(outcome(Asked::NotPossible, Some(true)), LazyLoading::ByDefault);
        assert_eq!(outcome(Asked::Set, None), LazyLoading::Unknown);
    }

    #[test]
    fn settings_for_streams_are_numbers() {
        let read = |connections: &'static str, blocking: &'static str| {
            StreamSettings::read(|name| match name {
                "CUDA_DEVICE_MAX_CONNECTIONS" => Some(connections.into()),
                "CUDA_LAUNCH_BLOCKING" => Some(blocking.into()),
                _ => None,
            })
        };
        assert_eq!(StreamSettings::read(|_| None), StreamSettings::default());
        assert_eq!(read("", "no"), StreamSettings::default());
        assert_eq!(read("0", "0"), StreamSettings::default());
        assert_eq!(read("1", "1"), StreamSettings { connections: 1, launch_blocking: true });
        assert_eq!([read("32", "0"), read("99", "0")].map(|read| read.connections), [32; 2]);
    }
}
