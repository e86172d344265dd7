//! Queues of an attachment.

use crate::api::attachment::Attachment;
use crate::queue::{Queue, QueueError, QueueSettings};
use gpu_usermap::cuda::CudaStream;

impl Queue {
    /// A queue of the CPU device: a thread carries out what is enqueued.
    ///
    /// # Errors
    /// [`QueueError::WrongAttachment`] for the attachment of a GPU;
    /// [`QueueError::TooManyLaunches`]; [`QueueError::Thread`].
    pub fn cpu(attachment: &Attachment) -> Result<Self, QueueError> {
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
    /// [`QueueError::WrongAttachment`] for the attachment of the CPU device;
    /// [`QueueError::NoStreamMemoryOperations`]; [`QueueError::TooManyQueues`];
    /// [`QueueError::TooManyLaunches`]; [`QueueError::Device`], when the driver or the system
    /// refuses memory; [`QueueError::Thread`].
    pub fn cuda(attachment: &Attachment, stream: CudaStream) -> Result<Self, QueueError> {
        Self::cuda_with(attachment, stream, QueueSettings::default())
    }

    /// As [`Queue::cuda`], with settings.
    ///
    /// # Errors
    /// [`QueueError::Settings`] for a fragment of 0 bytes, or a depth that is not from 1 to 64;
    /// otherwise as [`Queue::cuda`].
    pub fn cuda_with(
        attachment: &Attachment,
        stream: CudaStream,
        settings: QueueSettings,
    ) -> Result<Self, QueueError> {
        Self::on_stream(&attachment.sockets, &attachment.queue_streams, stream, settings)
    }
}
