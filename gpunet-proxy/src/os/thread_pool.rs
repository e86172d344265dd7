//! Threads for work that takes long: memory that is made and given back, and large answers.
//!
//! The threads exist from the start. The system may refuse a thread at the time when it is needed
//! (a limit of processes, no memory), and then the caller could not proceed.

use crossbeam_channel::{Sender, unbounded};
use gpu_usermap::threads;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Threads of a pool. What they do is mostly memory to be cleared, which more of them do not do
/// faster.
const THREADS: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// The threads of a pool.
pub(crate) struct PoolThreads(Vec<JoinHandle<()>>);

impl PoolThreads {
    /// Waits until the threads have ended. The caller has dropped all pools.
    pub(crate) fn join(self) {
        for thread in self.0 {
            // It catches panics.
            let _ = thread.join();
        }
    }
}

/// A pool of threads. They end once its last clone is dropped and its work is done.
#[derive(Clone, Debug)]
pub(crate) struct ThreadPool {
    /// `None`: the caller does the work itself.
    jobs: Option<Sender<Job>>,
}

impl ThreadPool {
    /// Starts the threads of a pool.
    ///
    /// # Errors
    /// The system's, when it refuses one.
    pub(crate) fn start(name: &str) -> io::Result<(Self, PoolThreads)> {
        let (jobs, queue) = unbounded::<Job>();
        let mut threads = PoolThreads(Vec::new());
        for _ in 0..THREADS {
            let queue = queue.clone();
            let work = move || {
                for job in queue {
                    // The panic hook has reported the panic. The caller that waits for the job gets
                    // no result.
                    let _ = catch_unwind(AssertUnwindSafe(job));
                }
            };
            threads.0.push(threads::spawn(name, work)?);
        }
        Ok((Self { jobs: Some(jobs) }, threads))
    }

    /// A pool without threads.
    #[cfg(test)]
    pub(crate) const fn none() -> Self {
        Self { jobs: None }
    }

    /// Has a job done.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        match &self.jobs {
            // The threads exist as long as this sender.
            Some(jobs) => drop(jobs.send(Box::new(job))),
            None => job(),
        }
    }

    /// Has a job done, and returns its result; `None` if it panicked.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        self.run(move || {
            // The receiver may have given up.
            let _ = done.send(job());
        });
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_takes_no_thread_along() {
        let (pool, threads) = ThreadPool::start("gpunet-test").expect("threads");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            for _ in 0..2 * THREADS {
                assert_eq!(pool.call(|| -> u32 { panic!("a test's panic") }).await, None);
            }
            assert_eq!(pool.call(|| 7).await, Some(7));
            assert_eq!(ThreadPool::none().call(|| 8).await, Some(8));
        });
        drop(pool);
        threads.join();
    }
}
