//! Threads of a block that take turns on one thread of the system: who waits lets another one run.

use std::cell::Cell;

thread_local! {
    static NEXT: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// From now on, a wait of the calling thread calls `next` first, which lets others run on this
/// thread and returns whether it did. `None`: nobody takes turns on it.
///
/// # Examples
///
/// ```
/// use gpunet_device::cpu::take_turns;
///
/// take_turns(Some(|| false)); // nobody else wants to run
/// take_turns(None);
/// ```
pub fn take_turns(next: Option<fn() -> bool>) {
    NEXT.set(next);
}

/// Returns whether others may be in the middle of a call on this thread.
pub(crate) fn are_taken() -> bool {
    NEXT.get().is_some()
}

/// Lets others run on this thread; returns whether they did.
pub(crate) fn pass_on() -> bool {
    NEXT.get().is_some_and(|next| next())
}
