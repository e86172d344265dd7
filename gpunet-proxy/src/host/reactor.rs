//! The host's one thread: polls words and wakes the tasks that wait for them.
//!
//! A task whose call would wait registers its waker together with a [`Watch`], a copy of the values
//! that it has seen, and then repeats the call. The thread takes the attachment's epoch (and the
//! bell of each arena, which the text below does not name again), checks every watch, wakes the
//! tasks whose watched words have changed, and sleeps on that epoch (a futex).
//!
//! # No wake-up is lost
//!
//! An agent that changes a word (a data thread, the control thread, the other end of a peer stream)
//! stores the word, advances the epoch, executes a SeqCst fence, and wakes the futex if a waiter is
//! counted. (For space in a send ring a data thread does this only if the ring was full: otherwise
//! no task waits.)
//!
//! 1. *The change comes before the task's second call*: the call sees it, and the task does not
//!    wait.
//! 2. *It comes later, and before the thread takes the epoch*: the look that follows finds the
//!    watch, finds it over, and wakes the task. For if the lock had let that look go before the
//!    registration, what the thread saw by the epoch would be visible to the second call, which is
//!    case 1.
//! 3. *It comes later, and after the thread took the epoch*: the epoch is not the one that the
//!    thread sleeps on, so the sleep does not begin, or ends at once if the thread is counted. Case
//!    2 follows.
//! 4. *No waiter is counted*: the task that registers counts the thread in, under the lock, before
//!    its second call. The fence after it and the fence of the agent that changes the word (the
//!    pattern of `gpunet_abi::park`) exclude a run in which neither sees the other.
//!
//! The thread takes itself out again, and parks for good, once nobody has waited for a while: an
//! idle host costs nothing, and a stream that never waits costs its data thread no system calls.

use gpunet_device::cpu::watch::{PollerRegistration, Sleeper, Watch};
use gpunet_device::{Error, Net};
use std::collections::HashMap;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread::Thread;

/// Rounds with nobody waiting before the thread parks. A task that waits again soon, as one that
/// answers requests does, then finds it ready; each such round costs one needless wake-up.
const IDLE_ROUNDS: u32 = 8;

/// Identifies a waiter: a half of a stream, a listener, a request. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaitId(u64);

/// The waiters, and the thread that wakes them.
#[derive(Debug)]
pub(super) struct Reactor {
    net: Net,
    table: Mutex<Table>,
    /// Set before the thread's first look.
    thread: OnceLock<Thread>,
}

#[derive(Debug, Default)]
struct Table {
    waiting: HashMap<WaitId, Waiting>,
    /// Where the thread is counted among those that sleep, if it is.
    counted: Option<PollerRegistration>,
    /// Why all calls fail: the proxy has stopped or hangs, or the attachment is being closed.
    fault: Option<Error>,
    stop: bool,
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    waker: Waker,
    /// `None`: only a fault ends the wait as far as this thread is concerned.
    watch: Option<Watch>,
}

/// What the thread does after a round.
enum Next {
    Sleep,
    Park,
    Stop,
}

impl Reactor {
    pub(super) fn new(net: Net) -> Self {
        Self { net, table: Mutex::default(), thread: OnceLock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // Wakers are cloned, woken and dropped outside the lock, so nothing in here can panic
        // halfway.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new name to wait under.
    pub(super) fn id(&self) -> WaitId {
        let mut table = self.lock();
        table.next += 1;
        WaitId(table.next)
    }

    /// Wakes `waker` once `watch` is over. The caller then repeats its call. An
    /// earlier registration under this name is replaced.
    ///
    /// # Errors
    /// NetworkDown or Canceled, when all calls fail.
    pub(super) fn register(&self, id: WaitId, watch: Option<Watch>, waker: &Waker) -> Result<(), Error> {
        let waiting = Waiting { waker: waker.clone(), watch };
        let mut table = self.lock();
        if let Some(fault) = table.fault {
            return Err(fault);
        }
        let replaced = table.waiting.insert(id, waiting);
        let count = table.counted.is_none();
        if count {
            table.counted.insert(PollerRegistration::new(self.net)).enter();
        }
        drop(table);
        // Ordering: SeqCst, pairs with the fence in `DrivenStream::release`, which moves the epoch
        // on for a ring that was full: either the second call sees the space, or the data thread
        // sees what filled the ring.
        fence(Ordering::SeqCst);
        if count && let Some(thread) = self.thread.get() {
            thread.unpark();
        }
        // To drop a waker may be to drop its task and the sockets in it, which come here again.
        drop(replaced);
        Ok(())
    }

    /// Takes a registration back.
    pub(super) fn forget(&self, id: WaitId) {
        let waiting = self.lock().waiting.remove(&id);
        drop(waiting);
    }

    /// Ends the thread: at once if it is parked or the epoch moves on after this, else within 200
    /// ms.
    pub(super) fn stop(&self) {
        self.lock().stop = true;
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// The thread's body.
    pub(super) fn run(&self) {
        let _ = self.thread.set(std::thread::current());
        let mut sleeper = Sleeper::new(self.net);
        let mut idle = IDLE_ROUNDS;
        loop {
            if let Some(counted) = &mut self.lock().counted {
                // In the arenas that came since, too.
                counted.enter();
            }
            let counts = sleeper.change_counts();
            let fault = sleeper.check().err();
            let (woken, next) = self.round(fault, &mut idle);
            woken.into_iter().for_each(|waiting| waiting.waker.wake());
            match next {
                Next::Sleep => sleeper.sleep(&counts),
                Next::Park => {
                    std::thread::park();
                    // Words were not watched while the thread was parked.
                    sleeper = Sleeper::new(self.net);
                }
                Next::Stop => return,
            }
        }
    }

    /// Checks every watch; returns those whose words have changed, and what to do next.
    fn round(&self, fault: Option<Error>, idle: &mut u32) -> (Vec<Waiting>, Next) {
        let mut table = self.lock();
        if table.stop {
            return (Vec::new(), Next::Stop);
        }
        table.fault = fault;
        let over = |waiting: &Waiting| fault.is_some() || waiting.watch.is_some_and(|watch| watch.is_over());
        let woken: Vec<_> = table.waiting.extract_if(|_, waiting| over(waiting)).map(|(_, w)| w).collect();
        *idle = if woken.is_empty() && table.waiting.is_empty() { *idle + 1 } else { 0 };
        // During a fault the thread keeps checking whether the fault has ended.
        if *idle <= IDLE_ROUNDS || fault.is_some() {
            return (woken, Next::Sleep);
        }
        if let Some(mut counted) = table.counted.take() {
            counted.leave();
        }
        (woken, Next::Park)
    }
}
