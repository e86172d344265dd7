//! How the operating system schedules the threads of blocks.

/// Asks that the thread which wakes this one keeps its core until its own turn ends.
///
/// A data thread wakes blocks one after the other. On a machine of few cores a block that took the
/// core at once would stop it before the others have heard, twice a wake-up; with two blocks on two
/// cores that cost a third of the messages. SCHED_BATCH (sched(7)) has the same share of the core
/// as before and preempts nobody by waking up. A thread with a policy or a priority of its own
/// keeps it, and where the call is refused nothing changes.
pub(crate) fn let_wakers_go_on() {
    // SAFETY: 0 names this thread; the call reads nothing else.
    let is_normal = unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER;
    if is_normal {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the kernel reads the structure on this stack.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn blocks_do_not_preempt_who_wakes_them() {
        std::thread::spawn(|| {
            super::let_wakers_go_on();
            // SAFETY: 0 names this thread.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_BATCH);
        })
        .join()
        .expect("the thread ends");
    }
}
