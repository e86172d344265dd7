//! Launch numbers: what cancels a kernel's waits and reaps what it leaves.

use crate::attached::device::AttachedDevice;
use crate::model::error::TooManyLaunches;
use crate::model::launch::{FinishPolicy, FinishReport, Finished, MOST_HANDLES};
use crate::model::message::ANSWER_TIMEOUT;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use gpu_usermap::cuda::ForeignLaunches;
use gpu_usermap::threads;
use gpunet_abi::Handle;
use gpunet_abi::context::Context;
use gpunet_abi::panic_record::PanicRecord;
use gpunet_core::ids::LaunchId;
use std::sync::Arc;
use std::time::Duration;

impl AttachedDevice {
    /// Tells the proxy that no running launch knows these sockets.
    fn release(&self, handles: &[Handle]) {
        handles.chunks(MOST_HANDLES).for_each(|part| self.link.release(part.to_vec()));
    }

    /// Makes the handles of sockets stale that were closed for a launch that has ended, and
    /// releases those that no other launch knows; the others follow when those launches have ended.
    fn retire(&self, launch: LaunchId, closed: &[Handle]) {
        if closed.is_empty() {
            return;
        }
        match self.table.retire(closed) {
            Ok(users) => {
                // A listener's pollers find nothing but its state, which was changed just now.
                self.memory.bump_epoch(None);
                let free = self.launches().retire(launch, closed, &users);
                self.release(&free);
            }
            // Kernels may still use them: they stay out of use.
            Err(error) => tracing::warn!(
                %error,
                sockets = closed.len(),
                "cannot reach the device's memory: these sockets stay out of use until the attachment is closed"
            ),
        }
    }

    /// Makes the sockets of the host program unknown to the launches that used them, once no kernel
    /// runs: a later launch of the same number does not know them.
    fn forget_users(&self) {
        let Some(&host) = self.host_launch.get() else { return };
        // Under the lock no launch begins.
        let launches = self.launches();
        for handle in launches.unknown_sockets(host) {
            if let Err(error) = self.table.set_users(handle, 1 << host.0) {
                tracing::debug!(%error, "cannot reach the device's memory");
            }
        }
    }

    /// Ends a launch: gives back its number, and the sockets that only it knew.
    fn end_launch(&self, launch: LaunchId) {
        match self.table.note_ended(launch) {
            // Wakes blocks that wait for a poll group which the launch held.
            Ok(()) => self.memory.bump_epoch(None),
            Err(error) => tracing::debug!(%error, "cannot reach the device's memory"),
        }
        // Its kernels have ended, and may have been killed while they showed a wait.
        self.memory.clear_waiting(launch);
        let ended = self.launches().end(launch);
        self.forget_users();
        self.release(&ended.free);
        ended.close.into_iter().for_each(|handle| self.close_socket(handle));
    }
}

/// A launch's number: the right to cancel it and to reap what it leaves.
///
/// Dropping it finishes it with [`FinishPolicy::Close`].
///
/// # Examples
/// A program that launches kernels itself, by its own CUDA code, passes [`LaunchToken::context`] to
/// them:
///
/// ```
/// use gpunet_proxy::FinishPolicy;
///
/// # let attachment = gpunet_proxy::embed(gpunet_proxy::Config::small())?.attach_cpu()?;
/// let token = attachment.token()?;
/// let net: u64 = token.context(); // the kernel's parameter of type `Net`
/// // ... launch the kernel, wait for its end ...
/// let report = token.finish(FinishPolicy::Close);
/// assert_eq!(report.left_open, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LaunchToken {
    launch: LaunchId,
    shared: Arc<AttachedDevice>,
    finished: bool,
    /// The program may launch kernels by its own CUDA calls: no memory is given back to the driver
    /// until the launch has ended.
    _announced: Option<ForeignLaunches>,
}

impl LaunchToken {
    /// Takes a launch number for what the program may launch itself.
    pub(crate) fn take(device: &Arc<AttachedDevice>) -> Result<Self, TooManyLaunches> {
        let mut token = Self::number(device)?;
        // An agent that has ended releases nothing.
        token._announced = device.cuda().and_then(|device| device.announce_launches().ok());
        Ok(token)
    }

    /// Takes a launch number for what the device counts itself.
    pub(crate) fn number(device: &Arc<AttachedDevice>) -> Result<Self, TooManyLaunches> {
        let launch = device.launches().begin().ok_or(TooManyLaunches)?;
        device.memory.set_cancelled(launch, false);
        device.memory.clear_waiting(launch);
        Ok(Self { launch, shared: device.clone(), finished: false, _announced: None })
    }

    /// Returns the device address by which kernels of this launch find their sockets: a kernel's
    /// [`Net`](gpunet_device::Net).
    #[must_use]
    pub fn context(&self) -> u64 {
        self.shared.contexts + u64::from(self.launch.0) * size_of::<Context>() as u64
    }

    /// Cancels the launch: every call of its kernels that waits, or would wait, returns ECANCELED.
    /// It cannot be undone.
    pub fn cancel(&self) {
        self.shared.memory.set_cancelled(self.launch, true);
    }

    pub(crate) const fn shared(&self) -> &Arc<AttachedDevice> {
        &self.shared
    }

    /// The launch's number.
    pub(crate) const fn launch(&self) -> LaunchId {
        self.launch
    }

    /// What a GPU told before it ended its kernels.
    pub(crate) fn panic_record(&self) -> Option<PanicRecord> {
        self.shared.memory.panic_record()
    }

    /// Resets all sockets of the device, whose kernels have all ended.
    pub(crate) fn reset_device(&self) {
        self.shared.link.reset_all();
    }

    /// As [`LaunchToken::reset_device`], for a thread that holds no token.
    pub(crate) fn fail_device(&self) -> impl Fn() + Send + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.link.reset_all();
            }
        }
    }

    /// What ends this launch when one of its thread blocks fails: its waits are cancelled, its
    /// sockets reset.
    pub(crate) fn abort(&self) -> impl Fn() + Send + Sync + 'static {
        let (shared, launch) = (Arc::downgrade(&self.shared), self.launch);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.memory.set_cancelled(launch, true);
                shared.link.abort_launch(launch);
            }
        }
    }

    /// Closes, keeps or resets the sockets that the launch left open. The kernel must have ended.
    ///
    /// Handles of sockets that are closed here become stale, also for kernels of other launches.
    /// Their slots and rings are reused when the launches that know them have ended.
    ///
    /// Blocks until the proxy has answered, for at most ten seconds per answer; after that, a
    /// thread finishes the work.
    pub fn finish(mut self, policy: FinishPolicy) -> FinishReport {
        self.reap(policy)
    }

    /// Gives the number back without asking the proxy what the launch left, which would wait for
    /// the answer. For callers that have closed all sockets.
    pub(crate) fn release(mut self) {
        self.finished = true;
        self.shared.end_launch(self.launch);
    }

    fn reap(&mut self, policy: FinishPolicy) -> FinishReport {
        if std::mem::replace(&mut self.finished, true) {
            return FinishReport::default();
        }
        let mut reap = Reap::new(self.shared.clone(), self.launch, policy);
        if !reap.run(Some(ANSWER_TIMEOUT)) {
            let left_open = reap.left_open;
            tracing::warn!(
                launch = self.launch.0,
                "the proxy has not answered for {ANSWER_TIMEOUT:?}: the launch's sockets are closed when it does"
            );
            // Without a thread they stay out of use until the attachment is closed, and so does the
            // number.
            let _ = threads::spawn("gpunet-finish", move || reap.run(None));
            return FinishReport { left_open };
        }
        if reap.left_open > 0 {
            // The next launch finds the slots that are free now.
            self.shared.link.settle();
        }
        FinishReport { left_open: reap.left_open }
    }
}

/// Closes or keeps what a launch left, part by part. The launch's number is in use until that is
/// done: the proxy takes what a launch of that number opens for this one's.
struct Reap {
    shared: Arc<AttachedDevice>,
    launch: LaunchId,
    policy: FinishPolicy,
    /// Sockets that only the device knows, and that the proxy was not told of yet.
    fresh: Vec<Handle>,
    /// The sockets that the proxy was asked about, and the channel of its answer.
    asked: Option<(Vec<Handle>, Receiver<Finished>)>,
    left_open: usize,
}

impl Reap {
    fn new(shared: Arc<AttachedDevice>, launch: LaunchId, policy: FinishPolicy) -> Self {
        let fresh = match shared.table.fresh() {
            Ok(fresh) => shared.launches().own(fresh, launch),
            Err(error) => {
                tracing::debug!(%error, "cannot read the device's socket table");
                Vec::new()
            }
        };
        Self { shared, launch, policy, fresh, asked: None, left_open: 0 }
    }

    /// Runs to the end, and waits for each answer for at most `limit`. Returns whether it has
    /// reached the end.
    fn run(&mut self, limit: Option<Duration>) -> bool {
        loop {
            let (part, answer) = self.asked.take().unwrap_or_else(|| self.ask());
            let answered = match limit {
                Some(limit) => answer.recv_timeout(limit),
                None => answer.recv().map_err(RecvTimeoutError::from),
            };
            let finished = match answered {
                Ok(finished) => finished,
                Err(RecvTimeoutError::Timeout) => {
                    self.asked = Some((part, answer));
                    return false;
                }
                // A proxy that is gone has nothing of it.
                Err(RecvTimeoutError::Disconnected) => Finished::default(),
            };
            if self.policy == FinishPolicy::Keep {
                self.shared.launches().keep(part);
            }
            self.left_open += finished.kept + finished.closed.len();
            self.shared.retire(self.launch, &finished.closed);
            if !finished.more && self.fresh.is_empty() {
                self.shared.end_launch(self.launch);
                return true;
            }
        }
    }

    fn ask(&mut self) -> (Vec<Handle>, Receiver<Finished>) {
        let rest = self.fresh.split_off(self.fresh.len().min(MOST_HANDLES));
        let part = std::mem::replace(&mut self.fresh, rest);
        let answer = self.shared.link.finish_launch(self.launch, self.policy, part.clone());
        (part, answer)
    }
}

impl Drop for LaunchToken {
    fn drop(&mut self) {
        self.reap(FinishPolicy::Close);
    }
}
