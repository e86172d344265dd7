//! The streams that the queues of an attachment share.

use crate::queue::QueueError;
use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{CudaStream, Device, StreamPriority};
use gpunet_abi::Word;
use gpunet_abi::position::{END, ERR};
use gpunet_abi::team::GONE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const _: () = assert!(GONE == END | ERR, "one mark for all words");

/// Streams that the queues of an attachment share. They never wait.
#[derive(Debug)]
pub(crate) struct QueueStreams {
    /// Writes and reads words that the CPU cannot reach.
    pub(super) rescue: CudaStream,
    /// Copy what is staged, by direction. Between two copies of one stream there are words, for
    /// which the copy engine waits some microseconds: meanwhile it copies for the other stream.
    pub(super) lanes: [Vec<CudaStream>; 2],
    /// Queues that there are.
    queues: AtomicU32,
}

impl QueueStreams {
    /// How many streams copy in one direction: two, unless connections are few.
    fn lanes(device: &Device) -> u32 {
        if device.stream_connections() < 16 { 1 } else { 2 }
    }

    /// Connections of streams that are not the queues' own: these, and the one by which the device
    /// copies.
    fn reserved(device: &Device) -> u32 {
        2 + 2 * Self::lanes(device)
    }

    pub(super) fn new(device: &Device) -> Result<Arc<Self>, QueueError> {
        let stream = |priority| device.create_stream(priority).map_err(QueueError::device);
        let lane = || -> Result<Vec<_>, QueueError> {
            (0..Self::lanes(device)).map(|_| stream(StreamPriority::Normal)).collect()
        };
        let lanes = [lane()?, lane()?];
        let (rescue, queues) = (stream(StreamPriority::Highest)?, AtomicU32::new(0));
        Self::warm_up(device, &rescue)?;
        Ok(Arc::new(Self { rescue, lanes, queues }))
    }

    /// Copies between all kinds of memory once. The driver loads the code for it then, which waits
    /// for streams that wait.
    fn warm_up(device: &Device, stream: &CudaStream) -> Result<(), QueueError> {
        const LEN: usize = 4096;
        let region = PinnedRegion::create("gpunet-warm-up", 2 * LEN).map_err(QueueError::device)?;
        let pinned = device.register(region).map_err(QueueError::device)?;
        let memory = device.alloc(2 * LEN).map_err(QueueError::device)?;
        let ends = [pinned.device_ptr(), memory.ptr()];
        for (from, to) in ends.into_iter().flat_map(|from| ends.map(|to| (from, to + LEN as u64))) {
            for len in [8, LEN] {
                // SAFETY: two halves of memory that nothing else uses; its release waits for the
                // stream.
                unsafe { stream.copy(to, from, len) }.map_err(QueueError::device)?;
            }
        }
        stream.synchronize().map_err(QueueError::device)
    }

    /// Counts a queue, whose stream may wait. Returns which of the streams copy for it.
    pub(super) fn enter(&self, device: &Device) -> Result<usize, QueueError> {
        let connections = device.stream_connections();
        let most = connections.saturating_sub(Self::reserved(device)).max(1);
        // Ordering: Relaxed; only a count.
        let before = self.queues.fetch_add(1, Ordering::Relaxed);
        if before < most {
            return Ok((before % Self::lanes(device)) as usize);
        }
        self.queues.fetch_sub(1, Ordering::Relaxed);
        Err(QueueError::TooManyQueues { queues: most, connections })
    }

    /// Ends the waits of streams for a word that will not come: sets the two bits above all values,
    /// END and ERR of a stream's word, GONE of a signal's. `pinned` is the word where the CPU has
    /// it, `address` the device's, and `seen` what it was.
    ///
    /// Its writer may live and store at this moment: a signal's source, when another member of the
    /// team has died. What it stores stays, or takes the mark away; then the word is marked again.
    pub(super) fn mark(&self, pinned: Option<Word>, address: u64, seen: u64) {
        if let Some(pinned) = pinned {
            // SAFETY: an aligned word, mapped while the caller holds what it is part of; all access
            // is atomic.
            let word = unsafe { AtomicU64::from_ptr(pinned.as_ptr()) };
            // Ordering: Release, as every store of a word. A store from the bus comes before or
            // after it, since the CPU owns the cache line during it.
            word.fetch_or(GONE, Ordering::Release);
            return;
        }
        // A stream has no such operation in all drivers. The lower half of the word is left alone:
        // so a store of its writer since `seen` is cut short only where it has passed a multiple of
        // 2^32, and until the writer's next store.
        let upper = ((seen | GONE) >> 32) as u32;
        // SAFETY: the upper half of a word that is mapped while the caller holds what it is part
        // of.
        if let Err(error) = unsafe { self.rescue.write_value_32(address + 4, upper) } {
            tracing::debug!(%error, "a waiting stream cannot be released");
        }
    }

    /// Removes a queue from the count.
    pub(super) fn leave(&self) {
        // Ordering: Relaxed; only a count.
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_usermap::cuda::fake::Fake;
    use gpunet_abi::team::MAX_VALUE;

    /// The source signals between the load of the word and the mark.
    #[test]
    fn a_mark_takes_no_signal_back() {
        let fake = Fake::new();
        let device = fake.cuda().device(0).expect("a device");
        let streams = QueueStreams::new(&device).expect("streams");
        let region = PinnedRegion::create("words", 4096).expect("a region");
        let words = device.register(region).expect("a registration");
        // SAFETY: the first word of the page, which the streams and this test use atomically.
        let word = unsafe { Word::from_ptr(words.region().base().as_ptr().cast()) };
        for (pinned, seen, signalled) in [
            (None, 5, 6),
            (None, 0, u64::from(u32::MAX)),
            (None, 9 << 32, (9 << 32) + 1),
            (Some(word), 5, 6),
            (Some(word), u64::from(u32::MAX), MAX_VALUE),
        ] {
            word.publish(signalled);
            streams.mark(pinned, words.device_ptr(), seen);
            streams.rescue.synchronize().expect("it never waits");
            assert_eq!(word.observe(), signalled | GONE, "{seen} was seen, {pinned:?}");
        }
    }
}
