//! When a listener that was short of something tries again.
//!
//! A blocking accept waits until the shortage is over: for ring memory until a stream closes; for
//! descriptors and system memory by a timer, since no event announces them. The connection stays in
//! the backlog, and the listener does not count it as ready, so that kernels do not poll for a
//! connection that they cannot get.

use super::at::At;
use super::tables::shortage::Shortage;
use crate::model::message::Message;
use gpunet_abi::Error;
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long a listener waits before it tries again. Ten system calls a second cost nothing, and the
/// wait is hardly longer than the shortage.
const RETRY: Duration = Duration::from_millis(100);

impl At<'_> {
    /// Leaves the connections of one backlog in it until the shortage has ended.
    pub(super) fn run_short(&mut self, slot: u32, at: usize, shortage: Shortage) {
        self.starved.insert(slot);
        let Some(listener) = self.slots.listener_mut(slot) else { return };
        let options = listener.bound.options;
        let Some(backlog) = listener.backlogs.get_mut(at) else { return };
        backlog.short = Some(shortage);
        let kind = backlog.listen.kind();
        if !self.could_carry(kind, &options) {
            self.end_accepts(slot, Error::NoBuffers);
        }
        if !shortage.is_announced() {
            self.serve_again(slot);
        }
    }

    /// Ends all accepts that wait for ring memory that will never come, because it could not all be
    /// allocated.
    fn end_accepts(&mut self, slot: u32, error: Error) {
        let Some(listener) = self.slots.listener(slot) else { return };
        let waiting: Vec<_> = listener.waiters.iter().map(|waiter| waiter.request).collect();
        waiting.into_iter().for_each(|id| self.cancel(id, error));
    }

    /// Serves a listener again after [`RETRY`].
    pub(super) fn serve_again(&mut self, slot: u32) {
        let messages = self.control.messages.clone();
        let (attachment, socket) = (self.state.id, self.slots.id(slot));
        let Some(listener) = self.slots.listener_mut(slot) else { return };
        if listener.retry.as_ref().is_none_or(JoinHandle::is_finished) {
            listener.retry = Some(tokio::task::spawn_local(async move {
                tokio::time::sleep(RETRY).await;
                let _ = messages.send(Message::ListenerReady { attachment, socket });
            }));
        }
    }

    /// Serves the listeners that may have waited for the rings that were given back.
    pub(super) fn serve_starved(&mut self) {
        for slot in std::mem::take(&mut self.starved) {
            self.serve(slot);
        }
    }
}
