//! Eager module loading, asked for through the environment before the driver starts.

#![allow(unsafe_code, reason = "std::env::set_var, in a process of one thread")]

use std::env;
use std::fs;

const VARIABLE: &str = "CUDA_MODULE_LOADING";

/// How the driver loads a module's code.
///
/// With lazy loading the first launch of a kernel may wait for the context to be idle: a deadlock when another kernel runs and
/// waits for the host. This crate loads all kernels of a [`Module`](super::Module) with it (with drivers before 12.4: when they are
/// looked up), so lazy loading is safe here; eager loading also covers code that others load.
///
/// # Examples
/// ```no_run
/// use gpu_usermap::cuda::{Cuda, LazyLoading};
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
    /// The driver's default, lazy: the variable could not be set, because the process already had several threads
    /// (another one could be reading the environment). Set `CUDA_MODULE_LOADING=EAGER` outside, or load CUDA first in `main`.
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
    // SAFETY: this is the process's only thread (just checked, and only it could start another), so nobody reads the environment.
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
}
