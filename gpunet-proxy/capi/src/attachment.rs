//! Attachments: one device's sockets.

use crate::failure::{Failure, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use crate::proxy::gpunet_host_proxy_t;
use gpu_usermap::cuda::{Cuda, Device};
use gpunet_proxy::{Attachment, CloseReport, Host};
use serde_json::json;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The sockets of one device in a proxy. Any thread may use it.
pub struct gpunet_host_attachment_t(());

handles! { gpunet_host_attachment_t, ATTACHMENTS: AttachmentObject, 2, "attachment" }

/// How an attachment ended.
#[repr(C)]
pub struct gpunet_host_close_report {
    /// Bytes that a send accepted and that did not reach the peer, over the attachment's whole
    /// life.
    pub undelivered: u64,
    /// Streams that had not ended when the linger time was over.
    pub unfinished: u64,
}

pub(crate) struct AttachmentObject {
    /// `None` once it is closed.
    attachment: RwLock<Option<Attachment>>,
    /// Makes the host sockets; present from the first one on.
    host: Mutex<Option<Host>>,
}

fn closed() -> Failure {
    Failure::new(libc::EBADF, "the attachment was closed")
}

impl AttachmentObject {
    /// Uses the attachment, which stays open during the call.
    ///
    /// # Errors
    /// EBADF, when it was closed.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&Attachment) -> Result<R, Failure>) -> Result<R, Failure> {
        let attachment = self.attachment.read().unwrap_or_else(PoisonError::into_inner);
        attachment.as_ref().ok_or_else(closed).and_then(body)
    }

    /// Returns the host, which makes host sockets.
    ///
    /// # Errors
    /// EOPNOTSUPP on a GPU; EBUSY when all launch numbers are in use; the system's, when it refuses
    /// a thread.
    pub(crate) fn host(&self) -> Result<Host, Failure> {
        self.with(|attachment| {
            let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
            match &*host {
                Some(host) => Ok(host.clone()),
                None => {
                    let text = "a GPU has no host sockets: make them from an attachment of the CPU device";
                    let unsupported = || Failure::new(libc::EOPNOTSUPP, text);
                    attachment.cuda().is_none().then_some(()).ok_or_else(unsupported)?;
                    Ok(host.insert(attachment.host()?).clone())
                }
            }
        })
    }

    fn close(&self) -> Option<CloseReport> {
        let attachment = self.attachment.write().unwrap_or_else(PoisonError::into_inner).take();
        let report = attachment.map(Attachment::close);
        drop(self.host.lock().unwrap_or_else(PoisonError::into_inner).take());
        report
    }
}

fn enter(attachment: Attachment, out: &Out<*mut gpunet_host_attachment_t>) -> Result<(), Failure> {
    let (attachment, host) = (RwLock::new(Some(attachment)), Mutex::new(None));
    out.put(gpunet_host_attachment_t::new(Arc::new(AttachmentObject { attachment, host }))?);
    Ok(())
}

/// Attaches the CPU device: host sockets, and C functions as kernels (gpunet_host_token_launch). It
/// needs no GPU.
///
/// On success `*attachment` is a handle that gpunet_host_attachment_close ends. Errors: -EBADF;
/// -ENOMEM when there is not enough memory for the rings; -ENETDOWN after gpunet_host_proxy_abort;
/// a daemon's refusal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attach_cpu(
    proxy: *const gpunet_host_proxy_t,
    attachment: *mut *mut gpunet_host_attachment_t,
) -> c_int {
    done(|| {
        let out = Out::new(attachment, "attachment")?;
        enter(gpunet_host_proxy_t::of(proxy)?.attach_cpu()?, &out)
    })
}

/// Attaches the GPU of a CUDA context of the program. `context` is a CUcontext. It stays live until
/// the attachment and all tokens and buffers made from it are closed. CUDA is opened now, at run
/// time; the program may use any version.
///
/// On success `*attachment` is a handle that gpunet_host_attachment_close ends. Errors: -EBADF;
/// -EINVAL for a NULL context; -ENODEV when there is no CUDA driver; -EIO with CUDA's error;
/// -ENOMEM; -ENETDOWN; a daemon's refusal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attach_cuda(
    proxy: *const gpunet_host_proxy_t,
    context: *mut c_void,
    attachment: *mut *mut gpunet_host_attachment_t,
) -> c_int {
    done(|| {
        let out = Out::new(attachment, "attachment")?;
        let proxy = gpunet_host_proxy_t::of(proxy)?;
        if context.is_null() {
            return Err(Failure::new(
                libc::EINVAL,
                "the context is null: give a CUcontext, or a device's number to gpunet_host_attach_cuda_device",
            ));
        }
        // SAFETY: a live context that outlives the attachment and what is made from it: the
        // caller's promise.
        let device = unsafe { Device::from_raw_context(&Cuda::load()?, context) }?;
        enter(proxy.attach_cuda(&device)?, &out)
    })
}

/// Attaches GPU number `device` in its primary context, the one that the CUDA runtime uses
/// (cudaSetDevice). The context is retained until the attachment and all tokens and buffers made
/// from it are closed.
///
/// On success `*attachment` is a handle that gpunet_host_attachment_close ends.
/// Errors: as gpunet_host_attach_cuda.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attach_cuda_device(
    proxy: *const gpunet_host_proxy_t,
    device: c_int,
    attachment: *mut *mut gpunet_host_attachment_t,
) -> c_int {
    done(|| {
        let out = Out::new(attachment, "attachment")?;
        let proxy = gpunet_host_proxy_t::of(proxy)?;
        let number = u32::try_from(device)
            .map_err(|_| Failure::new(libc::EINVAL, format!("no device has the number {device}")))?;
        enter(proxy.attach_cuda(&Cuda::load()?.device(number)?)?, &out)
    })
}

/// Describes the attachment as a JSON object: "device" ("cpu" or the GPU's name); the totals
/// "opened", "closed" (streams) and "undelivered" (bytes); and what it holds now: "sockets",
/// "requests", "ring_bytes", "free_ring_bytes".
///
/// On success `*json` belongs to the caller, who gives it back with gpunet_host_free_string.
/// Errors: -EBADF, -ENOMEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attachment_json(
    attachment: *const gpunet_host_attachment_t,
    json: *mut *mut c_char,
) -> c_int {
    done(|| {
        let out = Out::new(json, "json")?;
        let object = gpunet_host_attachment_t::of(attachment)?.with(|attachment| {
            let (stats, usage) = (attachment.stats(), attachment.usage());
            Ok(json!({
                "device": attachment.device_name(),
                "opened": stats.opened,
                "closed": stats.closed,
                "undelivered": stats.undelivered,
                "sockets": usage.sockets,
                "requests": usage.requests,
                "ring_bytes": usage.ring_bytes,
                "free_ring_bytes": usage.free_ring_bytes,
            }))
        })?;
        memory::put_text(&out, &object.to_string())
    })
}

/// Closes the attachment. It closes all its sockets, waits until sent bytes are delivered, for at
/// most the setting linger_s, and frees the memory. Kernels that still run are cancelled: finish
/// all tokens first. Host sockets that are still open report ECANCELED or ENETDOWN; their handles
/// stay, to be closed.
///
/// `report` may be NULL. The handle is stale once the call has begun. Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_attachment_close(
    attachment: *mut gpunet_host_attachment_t,
    report: *mut gpunet_host_close_report,
) -> c_int {
    done(|| {
        let closed = gpunet_host_attachment_t::take(attachment)?.close().unwrap_or_default();
        let CloseReport { undelivered, unfinished, .. } = closed;
        memory::put_if_wanted(report, gpunet_host_close_report { undelivered, unfinished });
        Ok(())
    })
}
