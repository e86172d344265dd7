//! Work that may take as long as a client likes, on threads of its user.
//!
//! Closing the last descriptor of a file can block, and a client can pass descriptors of files that
//! block for long: a TCP socket that lingers, a file of a file system of its own. So descriptors of
//! clients are received and closed here. A user whose work does not end only holds up itself.

use gpu_usermap::threads;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Threads of one user, at most: one that hangs does not hold up the user's other programs, and
/// there are far fewer users than a process can have threads.
const THREADS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// The work of all users. A user without any has no thread.
#[derive(Default)]
pub(crate) struct UserWork {
    users: Mutex<HashMap<u32, Queue>>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
}

impl UserWork {
    /// Runs a job on a thread of that user. The result does not come before the job is done, and
    /// not at all if the system refuses a thread.
    pub(crate) fn run<T: Send + 'static>(
        self: &Arc<Self>,
        uid: u32,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            // The receiver may have given up.
            let _ = done.send(job());
        };
        let mut users = self.lock();
        let queue = users.entry(uid).or_default();
        queue.jobs.push_back(Box::new(job));
        if queue.threads < THREADS {
            queue.threads += 1;
            drop(users);
            let work = self.clone();
            let spawned = threads::spawn("gpunet-user", move || work.work(uid));
            if let Err(error) = spawned {
                tracing::warn!(uid, %error, "no thread to close a client's descriptors on");
                if let Some(queue) = self.lock().get_mut(&uid) {
                    queue.threads -= 1;
                }
            }
        }
        result
    }

    /// How many jobs of that user have not begun.
    pub(crate) fn waiting(&self, uid: u32) -> usize {
        self.lock().get(&uid).map_or(0, |queue| queue.jobs.len())
    }

    /// How many jobs of all users have not begun.
    pub(crate) fn waiting_of_all(&self) -> usize {
        self.lock().values().map(|queue| queue.jobs.len()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Queue>> {
        // No job runs under it.
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, uid: u32) {
        loop {
            let mut users = self.lock();
            let Some(queue) = users.get_mut(&uid) else { return };
            let Some(job) = queue.jobs.pop_front() else {
                queue.threads -= 1;
                if queue.threads == 0 {
                    users.remove(&uid);
                }
                return;
            };
            drop(users);
            job();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn work_that_does_not_end_is_in_the_way_of_its_user_only() {
        let work = Arc::new(UserWork::default());
        let (go_on, wait) = mpsc::channel::<()>();
        let wait = Arc::new(Mutex::new(wait));
        let hanging: Vec<_> = (0..THREADS)
            .map(|_| {
                let wait = wait.clone();
                work.run(1, move || drop(wait.lock().map(|wait| wait.recv())))
            })
            .collect();
        let mut behind = work.run(1, || 5);
        assert_eq!(work.run(2, || 7).blocking_recv(), Ok(7));
        while work.waiting(1) > 1 {
            std::thread::yield_now();
        }
        assert!(behind.try_recv().is_err());
        drop(go_on);
        assert_eq!(behind.blocking_recv(), Ok(5));
        hanging.into_iter().for_each(|hanging| assert_eq!(hanging.blocking_recv(), Ok(())));
        while !work.lock().is_empty() {
            std::thread::yield_now();
        }
    }
}
