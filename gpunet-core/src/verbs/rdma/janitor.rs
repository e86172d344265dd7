//! A thread that ends connections, which takes time and needs no caller.

use gpu_usermap::threads;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::parts::{Parts, Stage};

/// How long an identifier stays to see the peer's answer to its end: one retransmission of the
/// message (4.3 s with rdma_cm's values) and its way.
const LINGER: Duration = Duration::from_secs(5);

/// Where connections are left to be ended.
pub(super) struct Janitor {
    inbox: Mutex<Inbox>,
    /// Becomes readable when there is something in the inbox.
    wake: OwnedFd,
}

#[derive(Default)]
struct Inbox {
    left: Vec<Parts>,
    closed: bool,
}

/// The janitor's thread. Dropping it ends the thread, after its last connection.
pub(super) struct JanitorThread {
    pub(super) janitor: Arc<Janitor>,
}

impl JanitorThread {
    pub(super) fn start() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let janitor = Arc::new(Janitor { inbox: Mutex::default(), wake });
        let worker = Arc::clone(&janitor);
        threads::spawn("gpunet-rdma-end", move || worker.work())?;
        Ok(Self { janitor })
    }
}

impl Drop for JanitorThread {
    fn drop(&mut self) {
        self.janitor.change(|inbox| inbox.closed = true);
    }
}

impl Janitor {
    /// Takes a connection over. The card no longer touches its memory.
    pub(super) fn take(&self, parts: Parts) {
        let mut parts = Some(parts);
        self.change(|inbox| {
            if !inbox.closed {
                inbox.left.extend(parts.take());
            }
        });
        // The thread has ended: an endpoint that outlived the stack is ended on the spot.
        if let Some(mut parts) = parts {
            disconnect(&mut parts);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Inbox)) {
        // Each change is one step, so a panic leaves the inbox whole.
        change(&mut self.inbox.lock().unwrap_or_else(PoisonError::into_inner));
        // Fails only when 2^64 calls were not handled.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn work(&self) {
        let mut lingering: Vec<(Parts, Instant)> = Vec::new();
        loop {
            self.wait(&lingering);
            let (left, closed) = {
                let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
                (std::mem::take(&mut inbox.left), inbox.closed)
            };
            for mut parts in left {
                if disconnect(&mut parts) {
                    lingering.push((parts, Instant::now() + LINGER));
                }
            }
            let now = Instant::now();
            lingering.retain_mut(|(parts, deadline)| {
                // An error on the channel means that no event will come.
                now < *deadline && !parts.has_ended().unwrap_or(true)
            });
            if closed && lingering.is_empty() {
                return;
            }
        }
    }

    /// Waits for a wake-up, for an event of a lingering connection, or for the first deadline.
    fn wait(&self, lingering: &[(Parts, Instant)]) {
        let now = Instant::now();
        let first = lingering.iter().map(|(_, deadline)| deadline.saturating_duration_since(now)).min();
        // Rounded up, so that it does not wake a little early and wait again.
        let timeout = first.and_then(|wait| Timespec::try_from(wait + Duration::from_millis(1)).ok());
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        fds.extend(
            lingering.iter().map(|(parts, _)| PollFd::from_borrowed_fd(parts.id.as_fd(), PollFlags::IN)),
        );
        // An interrupted wait costs one poll too many.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }
}

/// Tells the peer, and frees all but the identifier. Returns whether to wait for the peer's answer.
fn disconnect(parts: &mut Parts) -> bool {
    let open = matches!(parts.stage, Stage::Open | Stage::Ended);
    // Fails when there is no connection (any more).
    let told = open && parts.id.disconnect().is_ok();
    let wait = told && parts.stage == Stage::Open;
    parts.id.destroy_queue_pair();
    parts.queues = None;
    wait
}
