//! Launch numbers: what cancels a kernel's waits and reaps what it leaves.

use crate::attachment::{Attachment, Shared};
use gpunet_abi::context::Context;
use gpunet_abi::layout::LAUNCHES;
use std::sync::{Arc, PoisonError};

/// All launch numbers are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{LAUNCHES} launches are running on this attachment; finish one first")]
pub struct TooManyLaunches;

/// What happens to the sockets that a finished launch left open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishPolicy {
    /// They stay, for a later kernel on the same device.
    Keep,
    /// They are closed in good order: what was accepted is still sent.
    #[default]
    Close,
    /// They are reset.
    Reset,
}

/// What a finished launch left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FinishReport {
    /// Sockets that the launch opened and did not close.
    pub left_open: usize,
}

impl Attachment {
    /// Takes a launch number: kernels started with its [`LaunchToken::net`] can be cancelled and
    /// reaped together.
    ///
    /// # Errors
    /// [`TooManyLaunches`], when all 64 are in use.
    pub fn token(&self) -> Result<LaunchToken, TooManyLaunches> {
        let mut used = self.shared.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let launch = used.trailing_ones();
        if launch >= LAUNCHES {
            return Err(TooManyLaunches);
        }
        *used |= 1 << launch;
        self.shared.memory.set_cancelled(launch, false);
        Ok(LaunchToken { launch, shared: self.shared.clone(), finished: false })
    }
}

/// One launch's number: the right to cancel it and to reap what it leaves.
///
/// Dropping it finishes it with [`FinishPolicy::Close`].
#[derive(Debug)]
pub struct LaunchToken {
    launch: u32,
    shared: Arc<Shared>,
    finished: bool,
}

impl LaunchToken {
    /// The address that kernels of this launch find their sockets by.
    #[must_use]
    pub fn context(&self) -> u64 {
        self.shared.contexts + u64::from(self.launch) * size_of::<Context>() as u64
    }

    /// Cancels: every call that waits, or would wait, returns ECANCELED. It cannot be undone.
    pub fn cancel(&self) {
        self.shared.memory.set_cancelled(self.launch, true);
    }

    /// Resets all sockets of the device: none of its kernels lives any more.
    pub(crate) fn reset_device(&self) {
        self.shared.link.reset_all();
    }

    /// Reaps what the launch left. The kernel must have ended.
    pub fn finish(mut self, policy: FinishPolicy) -> FinishReport {
        self.reap(policy)
    }

    /// Gives the number back without asking what the launch left, which would wait for the answer:
    /// for who has closed everything.
    pub(crate) fn release(mut self) {
        self.finished = true;
        self.give_back();
    }

    fn give_back(&self) {
        let mut used = self.shared.launches.lock().unwrap_or_else(PoisonError::into_inner);
        *used &= !(1 << self.launch);
    }

    fn reap(&mut self, policy: FinishPolicy) -> FinishReport {
        if std::mem::replace(&mut self.finished, true) {
            return FinishReport::default();
        }
        let report = self.shared.link.finish_launch(self.launch, policy);
        self.give_back();
        report
    }
}

impl Drop for LaunchToken {
    fn drop(&mut self) {
        self.reap(FinishPolicy::Close);
    }
}
