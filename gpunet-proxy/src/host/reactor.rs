//! The host's one thread: looks at words and wakes the tasks that wait for them.
//!
//! A task whose call would wait registers its waker together with a [`Watch`], a copy of what it
//! believes, and then makes the call once more. The thread takes the attachment's epoch (and the
//! bell of each arena, which the text below does not name again), looks at every watch, wakes the
//! tasks whose watch is over, and sleeps on that epoch (a futex).
//!
//! # No wake-up is lost
//!
//! Whoever changes a word (a data thread, the control thread, the other end of a peer stream) does
//! this: store the word; move the epoch on; SeqCst fence; if somebody is counted, wake the futex.
//! (For space in a send ring a data thread does it only if the ring was full: nobody waits
//! otherwise.)
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
//! 4. *Nobody is counted*: the task that registers counts the thread in, under the lock, before its
//!    second call; the fence after it and the fence of whoever changes the word (the pattern of
//!    `gpunet_abi::park`) leave no run in which neither sees the other.
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

/// Names who waits: a half of a stream, a listener, a request. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct WaitId(u64);

/// Who waits, and the thread that wakes them.
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
    /// Why no call can go on: the proxy has stopped or hangs, or the attachment is being closed.
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

    /// Wakes `waker` once `watch` is over. The caller makes its call once more afterwards. An
    /// earlier registration under this name is replaced.
    ///
    /// # Errors
    /// NetworkDown or Canceled, when no call can go on.
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
                    // What was silent meanwhile was not watched.
                    sleeper = Sleeper::new(self.net);
                }
                Next::Stop => return,
            }
        }
    }

    /// Looks at every watch; returns those that are over, and what to do next.
    fn round(&self, fault: Option<Error>, idle: &mut u32) -> (Vec<Waiting>, Next) {
        let mut table = self.lock();
        if table.stop {
            return (Vec::new(), Next::Stop);
        }
        table.fault = fault;
        let over = |waiting: &Waiting| fault.is_some() || waiting.watch.is_some_and(|watch| watch.is_over());
        let woken: Vec<_> = table.waiting.extract_if(|_, waiting| over(waiting)).map(|(_, w)| w).collect();
        *idle = if woken.is_empty() && table.waiting.is_empty() { *idle + 1 } else { 0 };
        // While nothing goes on the thread has to look whether it goes on again.
        if *idle <= IDLE_ROUNDS || fault.is_some() {
            return (woken, Next::Sleep);
        }
        if let Some(mut counted) = table.counted.take() {
            counted.leave();
        }
        (woken, Next::Park)
    }
}
