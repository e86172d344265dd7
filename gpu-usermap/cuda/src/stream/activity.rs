//! Whether a stream counts as a running launch of its device.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::agent::BusyStreams;
use crate::device::Device;

/// Counts its stream from the first operation until the stream was found idle.
///
/// The lock is never held during a call that enqueues, which may have to wait for room in the
/// stream: another thread, which would make that room, must be able to ask whether the stream is
/// idle.
#[derive(Default)]
pub(super) struct Activity {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counted: Option<BusyStream>,
    /// How many calls have begun to enqueue something, and how many of them have returned.
    begun: u64,
    returned: u64,
}

/// Makes its device count one more running stream, for as long as it lives.
#[must_use = "the stream counts until this is dropped"]
pub(super) struct BusyStream {
    device: Device,
    /// Somebody else ends the count.
    is_passed_on: bool,
}

impl BusyStream {
    /// Returns when no release is in progress any more.
    fn count(device: &Device) -> Self {
        device.busy_streams().begin();
        Self { device: device.clone(), is_passed_on: false }
    }

    /// Leaves the end of the count to whoever takes the result.
    pub(super) fn pass_on(mut self) -> Arc<BusyStreams> {
        self.is_passed_on = true;
        self.device.busy_streams().clone()
    }
}

impl Drop for BusyStream {
    fn drop(&mut self) {
        if !self.is_passed_on && self.device.busy_streams().end() {
            // It looks for what it can give back after each message.
            self.device.agent().post(|_| {});
        }
    }
}

/// A call that enqueues something is in progress.
pub(super) struct Call<'a> {
    activity: &'a Activity,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.activity.state().returned += 1;
    }
}

/// A time at which no call was in progress: the number of calls before it.
#[derive(Clone, Copy)]
pub(super) struct Moment(u64);

impl Activity {
    /// Counts the stream, if it is not counted, before something is enqueued.
    pub(super) fn begin(&self, device: &Device) -> Call<'_> {
        let mut state = self.state();
        if state.counted.is_none() {
            state.counted = Some(BusyStream::count(device));
        }
        state.begun += 1;
        Call { activity: self }
    }

    /// Returns the present, if no call is in progress.
    pub(super) fn moment(&self) -> Option<Moment> {
        let state = self.state();
        (state.begun == state.returned).then_some(Moment(state.begun))
    }

    /// Ends the count, if nothing was enqueued since a moment after which the stream was found
    /// idle.
    pub(super) fn was_idle_at(&self, moment: Option<Moment>) {
        let mut state = self.state();
        if moment.is_some_and(|Moment(calls)| calls == state.begun) {
            state.counted = None;
        }
    }

    /// Returns whether the stream counts.
    pub(super) fn is_counted(&self) -> bool {
        self.state().counted.is_some()
    }

    /// Takes the count away from a stream that nobody uses any more.
    pub(super) fn end(&self) -> Option<BusyStream> {
        self.state().counted.take()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    #[test]
    fn what_was_idle_before_a_call_says_nothing_after_it() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).expect("a device");
        let activity = Activity::default();
        let before = activity.moment();
        drop(activity.begin(&device));
        activity.was_idle_at(before);
        assert!(activity.is_counted());
        activity.was_idle_at(activity.moment());
        assert!(!activity.is_counted());
    }

    /// The agent is at something else when the buffer and then the stream are dropped.
    #[test]
    fn a_dropped_stream_counts_until_the_agent_knows_that_it_has_work() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).expect("a device");
        let region = gpunet_region::PinnedRegion::create("words", 4096).expect("memory");
        let words = device.register(region).expect("registered");
        let stream = device.create_stream(crate::StreamPriority::Normal).expect("a stream");
        let buffer = device.alloc(64).expect("memory");
        // SAFETY: a word of the region, which outlives the wait.
        unsafe { stream.wait_value_geq(words.device_ptr(), 1) }.expect("enqueued");
        let (go_on, may_go_on) = std::sync::mpsc::channel();
        device.agent().post(move |_| may_go_on.recv().expect("it goes on"));
        drop(buffer);
        drop(stream);
        go_on.send(()).expect("it waits");
        device.agent().run(|_| ()).expect("it has done all that");
        assert!(!fake.events().contains(&"free"), "the stream still waits");
        // SAFETY: the region's first word, which all access atomically.
        let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(words.region().base().as_ptr().cast()) };
        word.store(1, std::sync::atomic::Ordering::SeqCst);
        while !fake.events().contains(&"free") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn nothing_is_idle_during_a_call() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).expect("a device");
        let activity = Activity::default();
        let calls = [activity.begin(&device), activity.begin(&device)];
        assert!(activity.moment().is_none());
        activity.was_idle_at(activity.moment());
        assert!(activity.is_counted());
        drop(calls);
        activity.was_idle_at(activity.moment());
        assert!(!activity.is_counted());
    }
}
