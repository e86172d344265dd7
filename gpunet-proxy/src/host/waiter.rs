//! Waits of threads: on the word in the ring's memory, without the reactor.
//!
//! A task's wait ends by way of the reactor's thread, because a task has no thread of its own. A
//! thread that has nothing else to do sleeps on the park flag beside the word itself, so that who
//! changes the word wakes it at once. [`gpunet_device::cpu::watch::Sleeper::wait`] says why no
//! wake-up is lost.

use super::{Core, io_error};
use gpunet_device::cpu::watch::{Sleeper, Watch};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Counts what calls of this process do to a half that may end a wait: its shutdown, its drop.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes(Arc<AtomicU32>);

impl Changes {
    fn seen(&self) -> u32 {
        // Ordering: Acquire, pairs with the Release in `tell`: who sees the count sees what
        // changed.
        self.0.load(Ordering::Acquire)
    }

    /// Something has changed: ends the waits.
    pub(super) fn tell(&self, watch: &Watch) {
        // Ordering: Release, pairs with the Acquire above. The fence in `wake` orders it before the
        // look at the flag.
        self.0.fetch_add(1, Ordering::Release);
        watch.wake();
    }
}

/// A wait of the calling thread for a half of a stream, after a call on it that would block
/// ([`ReadHalf::try_read`](super::ReadHalf::try_read)).
///
/// It does not borrow the half, so that a program that shares one among threads by a lock sleeps
/// without the lock. A drop or a shutdown of the half ends the wait. Any number of threads may wait
/// for one half, and a task beside them.
///
/// # Examples
/// ```no_run
/// use gpunet_proxy::host::ReadHalf;
/// use std::sync::{Mutex, PoisonError};
/// use std::time::Duration;
/// use tokio::io::ReadBuf;
///
/// fn read(shared: &Mutex<ReadHalf>, buf: &mut ReadBuf<'_>) -> std::io::Result<()> {
///     loop {
///         let mut waiter = {
///             let mut half = shared.lock().unwrap_or_else(PoisonError::into_inner);
///             match half.try_read(buf) {
///                 Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => half.waiter(),
///                 result => return result,
///             }
///         };
///         waiter.wait(Duration::ZERO, None)?;
///     }
/// }
/// ```
pub struct Waiter {
    watch: Watch,
    sleeper: Sleeper,
    changes: Changes,
    seen: u32,
    /// Keeps the words mapped.
    _core: Arc<Core>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl Waiter {
    pub(super) fn new(core: &Arc<Core>, changes: &Changes, watch: Watch) -> Self {
        // The caller has the half, so that nothing has changed since its call.
        let (changes, seen) = (changes.clone(), changes.seen());
        Self { watch, sleeper: Sleeper::new(core.net), changes, seen, _core: core.clone() }
    }

    /// Blocks until the call is to be repeated (`true`), or until `until` (`false`). It polls for
    /// the time of `spin` before it sleeps.
    ///
    /// A spin saves the time that it takes to wake a thread, and uses a core meanwhile: worth it
    /// where answers come within some microseconds, and cores are idle.
    ///
    /// # Errors
    /// ENETDOWN, when the proxy has stopped or gives no sign of life; ECANCELED after
    /// [`Host::close`](super::Host::close).
    pub fn wait(&mut self, spin: Duration, until: Option<Instant>) -> io::Result<bool> {
        let (changes, seen) = (&self.changes, self.seen);
        self.sleeper.wait(&self.watch, spin, until, || changes.seen() != seen).map_err(io_error)
    }
}
