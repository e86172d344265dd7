//! Threads that leave the program's signals alone.
//!
//! A signal that is sent to a process goes to any thread that does not block it. A program that
//! blocks SIGTERM and reads it from a signalfd, or waits for it with `sigwait`, would be ended by a
//! thread of this library that does not block it. So every thread of the library is started here. A
//! thread inherits the mask of the thread that starts it, so there is no moment in which it could
//! take a signal.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

pub use std::thread::scope;

/// What a thread raises by what it executes. The kernel ends a process whose thread blocks one of
/// them and raises it, whatever handler there is.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread that blocks all signals but those that it raises itself by what it executes.
///
/// # Errors
/// The system's, when it refuses a thread.
///
/// # Examples
/// ```
/// let thread = gpunet_region::threads::spawn("worker", || 7)?;
/// assert_eq!(thread.join().unwrap(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = BlockedSignals::new();
    Builder::new().name(name.into()).spawn(body)
}

/// Starts a thread as [`spawn`] does, that ends before the scope does ([`std::thread::scope`]).
///
/// # Errors
/// The system's, when it refuses a thread.
///
/// # Examples
/// ```
/// let sum = std::sync::atomic::AtomicU32::new(0);
/// gpunet_region::threads::scope(|scope| {
///     let add = || sum.fetch_add(7, std::sync::atomic::Ordering::Relaxed);
///     gpunet_region::threads::spawn_scoped(scope, "worker", add).map(drop)
/// })?;
/// assert_eq!(sum.into_inner(), 7);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    let _blocked = BlockedSignals::new();
    Builder::new().name(name.into()).spawn_scoped(scope, body)
}

/// The calling thread, and the threads that it starts, block what [`spawn`]'s threads block.
/// Dropping it restores the calling thread's mask.
///
/// # Examples
/// ```
/// use gpunet_region::threads::BlockedSignals;
///
/// let blocked = BlockedSignals::new();
/// let thread = std::thread::spawn(|| "takes no signal");
/// drop(blocked);
/// # thread.join().unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the signals are blocked until it is dropped"]
pub struct BlockedSignals {
    before: libc::sigset_t,
    /// The mask is that of one thread.
    _thread: PhantomData<*const ()>,
}

impl BlockedSignals {
    /// Blocks the signals.
    pub fn new() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: it fills the set that it is given.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: filled above; it cannot fail.
        let mut set = unsafe { set.assume_init() };
        for signal in SYNCHRONOUS {
            // SAFETY: a set that is initialised, and a signal that exists.
            unsafe { libc::sigdelset(&raw mut set, signal) };
        }
        Self { before: change(libc::SIG_BLOCK, &set), _thread: PhantomData }
    }
}

impl Default for BlockedSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        change(libc::SIG_SETMASK, &self.before);
    }
}

/// Changes the calling thread's mask, and returns the one before.
fn change(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: one set is read, the other is written. It fails for an unknown `how` only, and both
    // are known.
    unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
    // SAFETY: written above.
    unsafe { before.assume_init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that the calling thread blocks: bit 0 is signal 1.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("it is there");
        u64::from_str_radix(line.trim(), 16).expect("a mask")
    }

    const fn bit(signal: libc::c_int) -> u64 {
        1 << (signal - 1)
    }

    #[test]
    fn a_thread_takes_no_signal_of_the_program() {
        let before = blocked();
        let mask = spawn("test", blocked).expect("a thread").join().expect("no panic");
        for signal in
            [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1, libc::SIGXFSZ, libc::SIGPIPE]
        {
            assert_ne!(mask & bit(signal), 0, "signal {signal}: {mask:x}");
        }
        for signal in SYNCHRONOUS {
            assert_eq!(mask & bit(signal), 0, "signal {signal}: {mask:x}");
        }
        assert_eq!(blocked(), before, "who starts a thread has its own mask");
    }
}
