//! Queues of an attachment.

use crate::api::attachment::Attachment;
use crate::queue::{Queue, QueueSettings};
use gpu_usermap::cuda::CudaStream;
use std::io;

impl Queue {
    /// A queue of the CPU device: a thread carries out what is enqueued.
    ///
    /// # Errors
    /// EOPNOTSUPP for the attachment of a GPU; [`QuotaExceeded`](io::ErrorKind::QuotaExceeded),
    /// when all launch numbers are in use; what the system says when it refuses a thread.
    pub fn cpu(attachment: &Attachment) -> io::Result<Self> {
        Self::on_cpu(&attachment.sockets)
    }

    /// A queue on a stream of the device's context. Kernels and copies that the program puts on the
    /// stream are in its order.
    ///
    /// Make queues before anything waits on a stream: it loads kernels. Memory that operations name
    /// stays mapped until they are done; to free it earlier may wait for them, as `cudaFree` does
    /// for all streams.
    ///
    /// # Errors
    /// EOPNOTSUPP for the attachment of the CPU device; what [`Device::stream_memory_operations`]
    /// says of the environment; what the system says when it refuses a thread or memory.
    ///
    /// [`Device::stream_memory_operations`]: gpu_usermap::cuda::Device::stream_memory_operations
    pub fn cuda(attachment: &Attachment, stream: CudaStream) -> io::Result<Self> {
        Self::cuda_with(attachment, stream, QueueSettings::default())
    }

    /// As [`Queue::cuda`], with settings.
    ///
    /// # Errors
    /// EINVAL for a fragment of 0 bytes, or a depth that is not from 1 to 64; otherwise as
    /// [`Queue::cuda`].
    pub fn cuda_with(
        attachment: &Attachment,
        stream: CudaStream,
        settings: QueueSettings,
    ) -> io::Result<Self> {
        Self::on_stream(&attachment.sockets, &attachment.queue_streams, stream, settings)
    }
}
