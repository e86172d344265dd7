//! What a child of `fork` may do: nothing. The proxy's threads are not in the child, and locks that
//! they held stay locked. So a call on what the parent has made is refused, and nothing of it is
//! dropped.

use crate::error::Failure;
use std::mem::ManuallyDrop;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many forks lie between the first process and this one.
///
/// Ordering: Relaxed. A child has one thread when it changes.
static GENERATION: AtomicU64 = AtomicU64::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    crate::job::forget_all();
    crate::detach::forget_all();
    crate::log::forget_all();
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only stores; the module is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// A value of the process that made it.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    value: ManuallyDrop<T>,
    generation: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), generation: GENERATION.load(Ordering::Relaxed) }
    }

    fn is_foreign(&self) -> bool {
        self.generation != GENERATION.load(Ordering::Relaxed)
    }

    /// The value.
    ///
    /// # Errors
    /// ECHILD in a child of the process that made it.
    pub(crate) fn get(&self) -> Result<&T, Failure> {
        if self.is_foreign() {
            let text = "this object was made before fork(): its proxy runs in the parent process only; call gpunet.open() \
                        in the child (or start it with multiprocessing's \"spawn\")";
            return Err(Failure::new(libc::ECHILD, text));
        }
        Ok(&self.value)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_foreign() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
