//! Places in the order of a stream's operations.

use std::fmt;

use super::{CudaStream, StreamError};
use crate::device::Device;
use crate::driver::raw::EventHandle;
use crate::driver::{StreamState, log};

/// What was on a stream when this was recorded ([`CudaStream::record`]).
///
/// # Examples
/// ```no_run
/// # fn example(copies: &gpunet_cuda::CudaStream) -> Result<(), Box<dyn std::error::Error>> {
/// let first = copies.record()?;
/// // More is enqueued on `copies`.
/// while !first.has_passed()? {
///     std::thread::yield_now();
/// }
/// # Ok(())
/// # }
/// ```
pub struct CudaEvent {
    device: Device,
    handle: EventHandle,
}

impl CudaStream {
    /// Records what is on the stream now.
    ///
    /// # Errors
    /// [`StreamError::Capturing`]; [`StreamError::Cuda`].
    pub fn record(&self) -> Result<CudaEvent, StreamError> {
        self.outside_capture(|streams, stream| {
            let event = CudaEvent { device: self.device().clone(), handle: streams.event_create()? };
            // SAFETY: both are live, and of the context that is current.
            unsafe { streams.event_record(event.handle, stream) }?;
            Ok(event)
        })
    }

    /// Lets all later operations wait until those that are on `other` now have passed. `other` may
    /// be of another device.
    ///
    /// # Errors
    /// [`StreamError::Capturing`], of either; [`StreamError::Cuda`].
    pub fn wait_for(&self, other: &Self) -> Result<(), StreamError> {
        let event = other.record()?;
        // SAFETY: both are live. What waits goes on doing so when the event is destroyed.
        self.enqueue(|streams, stream| unsafe { streams.wait_event(stream, event.handle) })
    }
}

impl CudaEvent {
    /// Returns whether all of it is done.
    ///
    /// # Errors
    /// [`StreamError::Cuda`], also if a kernel of the context faulted.
    pub fn has_passed(&self) -> Result<bool, StreamError> {
        let streams = self.device.stream_calls()?;
        // SAFETY: the device holds its context.
        let _current = unsafe { streams.enter(self.device.context()) }?;
        // SAFETY: live until the drop.
        Ok(unsafe { streams.event_query(self.handle) }? == StreamState::Idle)
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // It was made by these calls.
        let Ok(streams) = self.device.stream_calls() else { return };
        // SAFETY: made by `record`, and not used afterwards.
        log(unsafe { streams.event_destroy(self.handle) });
    }
}

impl fmt::Debug for CudaEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaEvent").field("device", &self.device).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::StreamPriority;
    use crate::fake::Fake;
    use gpunet_region::PinnedRegion;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_stream_waits_for_what_was_on_another_and_an_event_says_when_it_has_passed() {
        let fake = Fake::new();
        let gpu = fake.cuda().device(0).expect("a device");
        let words = gpu.register(PinnedRegion::create("words", 4096).expect("memory")).expect("registered");
        let stream = || gpu.create_stream(StreamPriority::Normal).expect("a stream");
        let (first, second) = (stream(), stream());
        let at = |word: usize| words.device_ptr() + 8 * word as u64;
        let read = |word: usize| {
            // SAFETY: a word of the region, which all access atomically.
            unsafe { AtomicU64::from_ptr(words.region().base().as_ptr().cast::<u64>().wrapping_add(word)) }
        };
        // SAFETY: words of the region, which outlives what is enqueued.
        unsafe { first.wait_value_geq(at(0), 1) }.expect("enqueued");
        second.wait_for(&first).expect("enqueued");
        let event = second.record().expect("recorded");
        // SAFETY: as above.
        unsafe { second.write_value(at(1), 7) }.expect("enqueued");
        // SAFETY: as above; behind the event, and it never ends by itself.
        unsafe { second.wait_value_geq(at(2), 1) }.expect("enqueued");
        assert!(!event.has_passed().expect("it is known"));
        assert_eq!(read(1).load(Ordering::SeqCst), 0);
        read(0).store(1, Ordering::SeqCst);
        while !event.has_passed().expect("it is known") {
            std::thread::yield_now();
        }
        assert!(!second.is_idle().expect("it is known"), "there is more behind the event");
        read(2).store(1, Ordering::SeqCst);
        second.synchronize().expect("done");
        assert_eq!(read(1).load(Ordering::SeqCst), 7);
        drop(event);
        let (_, events) = fake.streams_and_events();
        assert_eq!(events, 0, "all were destroyed");
    }
}
