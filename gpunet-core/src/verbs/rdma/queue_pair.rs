//! The queue pair of an identifier.

use std::io;
use std::ptr::{self, NonNull};

use super::super::Depth;
use super::cm::Id;
use super::error::{check, check_code, errno};
use super::ffi::numbers as n;
use super::ffi::{Qp, QpAttr, QpCap, QpInitAttr, RecvWr, SendWr, Sge};
use super::objects::{CompletionQueue, ProtectionDomain};

/// What rsockets ask for; control messages with a descriptor need 16.
const INLINE: [u32; 2] = [64, 16];

/// IBV_QP_MIN_RNR_TIMER's encoding of 0.64 ms. 0, which rdma_cm sets, is 655 ms.
const RNR_TIMER: u8 = 12;

/// A request for the send queue: the fields that vary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting<'a> {
    pub(super) opcode: u32,
    pub(super) flags: u32,
    /// In host order.
    pub(super) immediate: u32,
    pub(super) to: u64,
    pub(super) rkey: u32,
    pub(super) pieces: &'a [Sge],
}

impl Id {
    /// Makes the queue pair, in the state in which receives can be posted.
    pub(super) fn create_queue_pair(
        &mut self,
        domain: &ProtectionDomain,
        queue: &CompletionQueue,
        depth: Depth,
    ) -> io::Result<()> {
        let mut result = Err(errno(libc::EINVAL));
        for max_inline_data in INLINE {
            let cap = QpCap {
                max_send_wr: depth.sends,
                max_recv_wr: depth.receives,
                max_send_sge: 2,
                max_recv_sge: 1,
                max_inline_data,
            };
            let mut attributes = QpInitAttr {
                qp_context: ptr::null_mut(),
                send_cq: queue.as_ptr(),
                recv_cq: queue.as_ptr(),
                srq: ptr::null_mut(),
                cap,
                qp_type: n::QPT_RC,
                sq_sig_all: 1,
            };
            // SAFETY: live objects of the id's device (it checks the domain's); the caller keeps
            // the queue and the domain until the queue pair is gone.
            result = check(unsafe {
                (self.library.create_qp)(self.raw.as_ptr(), domain.as_ptr(), &mut attributes)
            });
            if result.is_ok() {
                break;
            }
        }
        result?;
        // SAFETY: a live id; create_qp has just set the field.
        let raw = NonNull::new(unsafe { self.raw.as_ref() }.qp).ok_or_else(|| errno(libc::EIO))?;
        self.queue_pair = Some(raw);
        Ok(())
    }

    pub(super) fn destroy_queue_pair(&mut self) {
        if self.queue_pair.take().is_some() {
            // SAFETY: the id has a queue pair, destroyed once: `queue_pair` is now none.
            unsafe { (self.library.destroy_qp)(self.raw.as_ptr()) };
        }
    }

    fn qp(&self) -> io::Result<NonNull<Qp>> {
        self.queue_pair.ok_or_else(|| errno(libc::ENOTCONN))
    }

    pub(super) fn post_send(&mut self, posting: Posting<'_>) -> io::Result<()> {
        let qp = self.qp()?;
        let mut request = SendWr {
            wr_id: 0,
            next: ptr::null_mut(),
            sg_list: posting.pieces.as_ptr().cast_mut(),
            // At most two.
            num_sge: posting.pieces.len() as i32,
            opcode: posting.opcode,
            send_flags: posting.flags,
            imm_data: posting.immediate.to_be(),
            remote_addr: posting.to,
            rkey: posting.rkey,
            rest: [0; 19],
        };
        let mut bad = ptr::null_mut();
        // SAFETY: a live queue pair of a live context, whose provider set its operations.
        let post = unsafe { (*(*qp.as_ptr()).context).ops.post_send };
        let post = post.ok_or_else(|| errno(libc::ENOSYS))?;
        // SAFETY: a live queue pair; request and pieces are only read, during the call. Inline
        // bytes are copied now; other pieces are checked by the card against the key's
        // registration.
        check_code(unsafe { post(qp.as_ptr(), &mut request, &mut bad) })
    }

    pub(super) fn post_receive(&mut self, id: u64, piece: Option<Sge>) -> io::Result<()> {
        let qp = self.qp()?;
        let piece = piece.as_ref();
        let mut request = RecvWr {
            wr_id: id,
            next: ptr::null_mut(),
            sg_list: piece.map_or(ptr::null_mut(), |piece| ptr::from_ref(piece).cast_mut()),
            num_sge: i32::from(piece.is_some()),
        };
        let mut bad = ptr::null_mut();
        // SAFETY: as in `post_send`.
        let post = unsafe { (*(*qp.as_ptr()).context).ops.post_recv };
        let post = post.ok_or_else(|| errno(libc::ENOSYS))?;
        // SAFETY: as in `post_send`.
        check_code(unsafe { post(qp.as_ptr(), &mut request, &mut bad) })
    }

    /// Puts the queue pair into the error state: what is posted is flushed, the peer's requests are
    /// dropped.
    pub(super) fn set_error(&mut self) -> io::Result<()> {
        self.modify(QpAttr { qp_state: n::QPS_ERR, ..QpAttr::default() }, n::QP_STATE)
    }

    pub(super) fn shorten_rnr_timer(&mut self) -> io::Result<()> {
        self.modify(QpAttr { min_rnr_timer: RNR_TIMER, ..QpAttr::default() }, n::QP_MIN_RNR_TIMER)
    }

    fn modify(&mut self, mut attributes: QpAttr, mask: u32) -> io::Result<()> {
        let qp = self.qp()?;
        // SAFETY: a live queue pair; the attributes are read during the call.
        check_code(unsafe { (self.library.modify_qp)(qp.as_ptr(), &mut attributes, mask as i32) })
    }
}
