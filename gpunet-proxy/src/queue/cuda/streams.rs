//! The streams that the queues of an attachment share.

use gpu_usermap::PinnedRegion;
use gpu_usermap::cuda::{CudaStream, Device, StreamPriority};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Streams that the queues of an attachment share. They never wait.
#[derive(Debug)]
pub(crate) struct QueueStreams {
    /// Writes and reads words that the CPU cannot reach.
    pub(super) rescue: CudaStream,
    /// Copy what is staged, by direction. Between two copies of one stream there are words, for which the copy engine waits some
    /// microseconds: meanwhile it copies for the other stream.
    pub(super) lanes: [Vec<CudaStream>; 2],
    /// Queues that there are.
    queues: AtomicU32,
}

impl QueueStreams {
    /// How many streams copy in one direction: two, unless connections are few.
    fn lanes(device: &Device) -> u32 {
        if device.stream_connections() < 16 { 1 } else { 2 }
    }

    /// Connections of streams that are not the queues' own: these, and the one by which the device copies.
    fn reserved(device: &Device) -> u32 {
        2 + 2 * Self::lanes(device)
    }

    pub(super) fn new(device: &Device) -> io::Result<Arc<Self>> {
        let stream = |priority| device.create_stream(priority).map_err(io::Error::other);
        let lane = || -> io::Result<Vec<_>> {
            (0..Self::lanes(device)).map(|_| stream(StreamPriority::Normal)).collect()
        };
        let lanes = [lane()?, lane()?];
        let (rescue, queues) = (stream(StreamPriority::Highest)?, AtomicU32::new(0));
        Self::warm_up(device, &rescue)?;
        Ok(Arc::new(Self { rescue, lanes, queues }))
    }

    /// Copies between all kinds of memory once. The driver loads the code for it then, which waits for streams that wait.
    fn warm_up(device: &Device, stream: &CudaStream) -> io::Result<()> {
        const LEN: usize = 4096;
        let region = PinnedRegion::create("gpunet-warm-up", 2 * LEN).map_err(io::Error::other)?;
        let pinned = device.register(region).map_err(io::Error::other)?;
        let memory = device.alloc(2 * LEN).map_err(io::Error::other)?;
        let ends = [pinned.device_ptr(), memory.ptr()];
        for (from, to) in ends.into_iter().flat_map(|from| ends.map(|to| (from, to + LEN as u64))) {
            for len in [8, LEN] {
                // SAFETY: two halves of memory that nothing else uses; its release waits for the stream.
                unsafe { stream.copy(to, from, len) }.map_err(io::Error::other)?;
            }
        }
        stream.synchronize().map_err(io::Error::other)
    }

    /// Counts a queue, whose stream may wait. Returns which of the streams copy for it.
    pub(super) fn enter(&self, device: &Device) -> io::Result<usize> {
        let connections = device.stream_connections();
        let most = connections.saturating_sub(Self::reserved(device)).max(1);
        // Ordering: Relaxed; only a count.
        let before = self.queues.fetch_add(1, Ordering::Relaxed);
        if before < most {
            return Ok((before % Self::lanes(device)) as usize);
        }
        self.queues.fetch_sub(1, Ordering::Relaxed);
        Err(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            format!(
                "{most} queues are open, and a stream of one more that waits could hold up another for ever: the GPU has \
                 {connections} connections for streams; end queues, or set CUDA_DEVICE_MAX_CONNECTIONS=32 before CUDA starts"
            ),
        ))
    }

    /// Counts a queue no more.
    pub(super) fn leave(&self) {
        // Ordering: Relaxed; only a count.
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }
}
