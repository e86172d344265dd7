//! Threads that are to wait in a call before a test goes on, on however busy a machine.

use super::until;
use gpunet_device::abi::hand_off::blocks_poll;
use std::sync::mpsc;
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long a block that polls has to come to its call.
const POLLER_BEGINS: Duration = Duration::from_millis(50);

/// A thread of this process, by the number that Linux gives it.
#[derive(Clone, Copy, Debug)]
pub struct Tid(i32);

impl Tid {
    pub fn current() -> Self {
        Self(rustix::thread::gettid().as_raw_nonzero().get())
    }

    /// Waits until the thread sleeps, or has ended. A block that polls as a GPU's does sleeps for
    /// moments only, and on a busy machine is hardly seen so: it has some time to come to its call.
    #[track_caller]
    pub fn until_asleep(self) {
        let begun = Instant::now();
        // A single look might meet it at a lock on its way.
        let mut looks = 0;
        until("the thread sleeps", || {
            looks = if self.is_asleep() { looks + 1 } else { 0 };
            looks == 3 || (blocks_poll() && begun.elapsed() > POLLER_BEGINS)
        });
    }

    fn is_asleep(self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{}/stat", self.0));
        // The state follows the name, which stands in parentheses. Of a thread that has ended there
        // is no file.
        stat.map_or(true, |stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')))
    }
}

/// A body that first says by which thread it runs.
fn announced<T>(body: impl FnOnce() -> T) -> (impl FnOnce() -> T, mpsc::Receiver<Tid>) {
    let (begun, begins) = mpsc::channel();
    let body = move || {
        begun.send(Tid::current()).expect("the test waits for it");
        body()
    };
    (body, begins)
}

/// Starts a thread; returns when it sleeps in `body`.
#[track_caller]
pub fn spawn_asleep<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (body, begins) = announced(body);
    let thread = std::thread::spawn(body);
    begins.recv().expect("it begins").until_asleep();
    thread
}

/// As [`spawn_asleep`], in a scope.
#[track_caller]
pub fn spawn_asleep_in<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    body: impl FnOnce() -> T + Send + 's,
) -> ScopedJoinHandle<'s, T> {
    let (body, begins) = announced(body);
    let thread = scope.spawn(body);
    begins.recv().expect("it begins").until_asleep();
    thread
}
