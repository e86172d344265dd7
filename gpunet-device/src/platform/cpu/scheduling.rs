//! How the operating system schedules the threads of blocks.

/// Asks that the thread which wakes this one keeps its core until its own turn ends.
///
/// A data thread wakes blocks one after the other. On a machine of few cores a block that took the
/// core at once would stop it before the others have heard, and it would have to be switched to
/// again; with two blocks on two cores that cost a third of the messages. SCHED_BATCH (sched(7))
/// has the same share of the core as before and preempts nobody by waking up. A thread with a
/// policy of its own keeps it, and where the system refuses nothing changes. Returns whether it is
/// so.
pub(crate) fn let_wakers_go_on() -> bool {
    // SAFETY: 0 names this thread; the call reads nothing else.
    let is_normal = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads the structure on this stack.
    is_normal && unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } == 0
}

#[cfg(test)]
mod tests {
    #[test]
    fn blocks_do_not_preempt_who_wakes_them() {
        std::thread::spawn(|| {
            // SAFETY: 0 names this thread.
            let policy = || unsafe { libc::sched_getscheduler(0) };
            let before = policy();
            // A sandbox may refuse it.
            let expected = if super::let_wakers_go_on() { libc::SCHED_BATCH } else { before };
            assert_eq!(policy(), expected);
        })
        .join()
        .expect("the thread ends");
    }
}
