//! How queues are made.

use super::{QueueObject, gpunet_host_queue_t};
use crate::attachment::gpunet_host_attachment_t;
use crate::failure::{Failure, done};
use crate::memory::Out;
use gpunet_proxy::queue::{Queue, QueueSettings};
use std::ffi::{c_int, c_void};

/// No kernel copies messages of the queue, however short they are. Set it for streams beside
/// kernels that fill the GPU and do not end.
pub const GPUNET_HOST_QUEUE_NO_SHORT: u32 = 1;
/// All operations of a queue are kernels of one block. Each holds a multiprocessor while it waits.
pub const GPUNET_HOST_QUEUE_KERNELS: u32 = 2;

/// How a queue on a CUDA stream carries its operations out. All zeros: the defaults.
#[repr(C)]
pub struct gpunet_host_queue_settings {
    /// A kernel of one block copies messages of up to this many bytes. It needs a multiprocessor
    /// that is not full. The copy engine copies longer ones. 0: 64 KiB; GPUNET_HOST_QUEUE_NO_SHORT:
    /// no messages.
    pub short_bytes: usize,
    /// The most bytes that the copy engine copies at a time, at most a quarter of the ring; a
    /// longer message goes in fragments. 0: 1 MiB.
    pub fragment_bytes: usize,
    /// The most fragments of a direction that the copy engine has at a time, up to 64. 0: 4.
    pub depth: u32,
    /// GPUNET_HOST_QUEUE_NO_SHORT or GPUNET_HOST_QUEUE_KERNELS; 0: neither.
    pub flags: u32,
}

/// Reads the settings; the defaults for null.
fn settings(from: *const gpunet_host_queue_settings) -> Result<QueueSettings, Failure> {
    let mut settings = QueueSettings::default();
    if from.is_null() {
        return Ok(settings);
    }
    // SAFETY: not null, readable and aligned: the caller's promise.
    let given = unsafe { from.read() };
    let wrong = match given {
        gpunet_host_queue_settings { flags: 3.., .. } => {
            "flags is GPUNET_HOST_QUEUE_NO_SHORT or GPUNET_HOST_QUEUE_KERNELS, or 0"
        }
        gpunet_host_queue_settings { flags: GPUNET_HOST_QUEUE_NO_SHORT, short_bytes: 1.., .. } => {
            "with GPUNET_HOST_QUEUE_NO_SHORT no message is short: short_bytes is 0"
        }
        gpunet_host_queue_settings { depth: 65.., .. } => "depth is at most 64, or 0 for 4",
        _ => "",
    };
    if !wrong.is_empty() {
        return Err(Failure::new(libc::EINVAL, wrong));
    }
    let or = |given: usize, default: usize| if given == 0 { default } else { given };
    settings.short = or(given.short_bytes, settings.short);
    settings.fragment = or(given.fragment_bytes, settings.fragment);
    settings.depth = or(given.depth as usize, settings.depth);
    settings.kernels = given.flags == GPUNET_HOST_QUEUE_KERNELS;
    if given.flags == GPUNET_HOST_QUEUE_NO_SHORT {
        settings.short = 0;
    }
    Ok(settings)
}

/// Makes a queue of the CPU device: a thread carries the operations out.
///
///     gpunet_host_queue_cpu(attachment, &queue);
///     gpunet_host_queue_send(queue, sender, message, sizeof message);
///     if (gpunet_host_queue_synchronize(queue, 60000) < 0) puts(gpunet_host_last_error());
///     gpunet_host_queue_destroy(queue);
///
/// On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EBADF; -EFAULT;
/// -EOPNOTSUPP for the attachment of a GPU; -EBUSY when all launch numbers of the attachment are in
/// use; the system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_cpu(
    attachment: *const gpunet_host_attachment_t,
    queue: *mut *mut gpunet_host_queue_t,
) -> c_int {
    done(|| {
        let out = Out::new(queue, "queue")?;
        let made = gpunet_host_attachment_t::of(attachment)?.with(|attachment| {
            if attachment.cuda().is_some() {
                return Err(Failure::new(
                    libc::EOPNOTSUPP,
                    "the queues of a GPU are on streams: gpunet_host_queue_cuda",
                ));
            }
            Ok(Queue::cpu(attachment)?)
        })?;
        QueueObject::enter(made, &out)
    })
}

/// Makes a queue on a CUDA stream of the attachment's context: a CUstream, or a cudaStream_t, made
/// with cudaStreamNonBlocking. Kernels and copies that the program puts on the stream run in the
/// order of the queue's operations. The stream stays until the queue is destroyed and all its
/// operations are done.
///
///     fill<<<blocks, threads, 0, stream>>>(message);
///     gpunet_host_queue_send(queue, sender, message, bytes);
///     gpunet_host_queue_recv(queue, receiver, answer, bytes);
///     check<<<blocks, threads, 0, stream>>>(answer);
///
/// Make queues before anything waits on a stream, because it loads kernels.
///
/// On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EBADF; -EFAULT;
/// -EOPNOTSUPP for the attachment of the CPU device, and when the driver (CUDA 11.7 is needed) or
/// the environment (CUDA_LAUNCH_BLOCKING) does not let streams wait for words: the reason says
/// which; -EINVAL for a default stream or one of another context; -EBUSY when all launch numbers of
/// the attachment are in use, or as many queues are open as the GPU has connections for; -EIO with
/// CUDA's error; the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_cuda(
    attachment: *const gpunet_host_attachment_t,
    custream: *mut c_void,
    queue: *mut *mut gpunet_host_queue_t,
) -> c_int {
    // SAFETY: as of this call.
    unsafe { gpunet_host_queue_cuda_with(attachment, custream, std::ptr::null(), queue) }
}

/// As gpunet_host_queue_cuda, with settings. NULL means the defaults, and so does 0 in a field.
///
///     gpunet_host_queue_settings settings = {0};
///     settings.fragment_bytes = 4 << 20;                     // fewer and longer copies, for rings of 16 MiB
///     settings.flags = GPUNET_HOST_QUEUE_NO_SHORT;           // beside a kernel that fills the GPU
///     gpunet_host_queue_cuda_with(attachment, stream, &settings, &queue);
///
/// On success `*queue` is a handle that gpunet_host_queue_destroy ends. Errors: -EINVAL for
/// settings out of their range, or flags that are not known; otherwise as gpunet_host_queue_cuda.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_queue_cuda_with(
    attachment: *const gpunet_host_attachment_t,
    custream: *mut c_void,
    settings: *const gpunet_host_queue_settings,
    queue: *mut *mut gpunet_host_queue_t,
) -> c_int {
    done(|| {
        let (out, settings) = (Out::new(queue, "queue")?, self::settings(settings)?);
        let made = gpunet_host_attachment_t::of(attachment)?.with(|attachment| {
            let text = "the CPU device has no CUDA streams: gpunet_host_queue_cpu";
            let device = attachment.cuda().ok_or_else(|| Failure::new(libc::EOPNOTSUPP, text))?;
            // SAFETY: a live stream that outlives the queue and its operations: the caller's
            // promise.
            let stream = unsafe { device.borrow_stream(custream) }?;
            Ok(Queue::cuda_with(attachment, stream, settings)?)
        })?;
        QueueObject::enter(made, &out)
    })
}
