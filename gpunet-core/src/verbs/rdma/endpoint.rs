//! An established connection's queues, as a data thread uses them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::super::{Completion, CompletionStatus, Depth, Endpoint, Op, Source, Table, WorkRequest};
use super::connection::Connection;
use super::error::errno;
use super::ffi::numbers as n;
use super::ffi::{Sge, Wc};
use super::parts::{Queues, Stage, receive_slot};
use super::queue_pair::Posting;
use super::status::status;

/// Completions taken in one call: a few are what a data thread's turn finds.
const BATCH: usize = 16;

/// A queue pair with its completion queue.
pub(super) struct RdmaEndpoint {
    connection: Connection,
    depth: Depth,
    iwarp: bool,
    /// The ids of the posted requests, which complete in this order.
    posted: VecDeque<u64>,
    /// Completions that were taken and not yet handed out: those from `next` to `filled`.
    batch: [Wc; BATCH],
    next: usize,
    filled: usize,
    /// The slot of the next receive to post: receives complete in order, so it is the free one.
    slot: usize,
    /// The completion queue itself has failed: nothing comes any more.
    broken: bool,
}

impl RdmaEndpoint {
    pub(super) fn new(connection: Connection, depth: Depth, iwarp: bool) -> Self {
        Self {
            connection,
            depth,
            iwarp,
            posted: VecDeque::with_capacity(depth.sends as usize),
            batch: [Wc::default(); BATCH],
            next: 0,
            filled: 0,
            slot: 0,
            broken: false,
        }
    }

    fn queues(&mut self) -> &mut Queues {
        queues(self.connection.parts_mut().queues.as_mut())
    }

    fn send(&mut self, posting: Posting<'_>) -> io::Result<()> {
        self.connection.parts_mut().id.post_send(posting)
    }

    fn write(&mut self, from: Source, to: u64, rkey: u32, immediate: Option<u32>) -> io::Result<()> {
        if self.iwarp && immediate.is_some() {
            return Err(errno(libc::EOPNOTSUPP));
        }
        let opcode = if immediate.is_some() { n::WR_RDMA_WRITE_WITH_IMM } else { n::WR_RDMA_WRITE };
        let posting = Posting { opcode, flags: 0, immediate: immediate.unwrap_or(0), to, rkey, pieces: &[] };
        match from {
            Source::Nothing => self.send(posting),
            Source::Inline(bytes) => {
                let pieces = [inline(&bytes)];
                self.send(Posting { flags: n::SEND_INLINE, pieces: &pieces, ..posting })
            }
            Source::Ring(parts) => {
                let lkey = self.queues().lease.domain().send_key();
                let pieces = parts.map(|(addr, length)| Sge { addr, length, lkey });
                let used = match parts {
                    [(_, 0), (_, 0)] => &pieces[..0],
                    [_, (_, 0)] => &pieces[..1],
                    [(_, 0), _] => &pieces[1..],
                    _ => &pieces[..],
                };
                self.send(Posting { pieces: used, ..posting })
            }
        }
    }

    /// Takes what the completion queue has; returns whether there is something to hand out.
    fn refill(&mut self) -> bool {
        let queues = queues(self.connection.parts_mut().queues.as_mut());
        (self.next, self.filled) = (0, 0);
        match queues.completions.poll(&mut self.batch) {
            Ok(taken) => {
                self.batch[..taken].iter().for_each(|wc| queues.count(wc));
                self.filled = taken;
            }
            Err(_) => self.broken = true,
        }
        self.filled > 0
    }

    /// An iWARP connection that its peer has ended: siw completes nothing that is posted to it
    /// then.
    fn ignores_requests(&self) -> bool {
        self.iwarp && self.connection.parts().stage == Stage::Ended
    }

    /// The next request that will not complete by itself.
    fn lost(&mut self) -> Option<Completion> {
        let id = if self.ignores_requests() { self.posted.pop_front()? } else { return None };
        Some(Completion::Sent { id, status: CompletionStatus::Flushed })
    }

    fn received(&mut self, slot: usize, wc: &Wc) -> Completion {
        if wc.status != n::WC_SUCCESS {
            return Completion::Flushed;
        }
        if self.iwarp {
            return Completion::Received { message: self.table().message(slot), len: None };
        }
        if wc.wc_flags & n::WC_WITH_IMM == 0 {
            // A send without a message: no peer of ours does that. Its connection ends.
            let _ = self.connection.parts_mut().id.set_error();
            return Completion::Flushed;
        }
        Completion::Received { message: u32::from_be(wc.imm_data), len: Some(wc.byte_len) }
    }
}

/// Bytes that the call copies; the key does not matter.
fn inline(bytes: &[u8]) -> Sge {
    Sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 }
}

/// An endpoint's handshake was prepared, so the queues are there.
fn queues(queues: Option<&mut Queues>) -> &mut Queues {
    queues.expect("prepared")
}

impl Endpoint for RdmaEndpoint {
    fn post(&mut self, request: &WorkRequest) -> io::Result<()> {
        // The card may have rounded its queue up; the caller's arithmetic shall not depend on that.
        if self.posted.len() >= self.depth.sends as usize {
            return Err(errno(libc::ENOMEM));
        }
        if self.ignores_requests() {
            self.posted.push_back(request.id);
            return Ok(());
        }
        match request.op {
            Op::Write { from, to, rkey, immediate } => self.write(from, to, rkey, immediate)?,
            Op::Send { message } => {
                let bytes = message.to_ne_bytes();
                let pieces = [inline(&bytes)];
                let (opcode, flags) = (n::WR_SEND, n::SEND_INLINE);
                self.send(Posting { opcode, flags, immediate: 0, to: 0, rkey: 0, pieces: &pieces })?;
            }
        }
        self.posted.push_back(request.id);
        self.queues().sends += 1;
        Ok(())
    }

    fn post_receive(&mut self) -> io::Result<()> {
        if self.queues().receives >= self.depth.receives as usize {
            return Err(errno(libc::ENOMEM));
        }
        let slot = self.slot;
        self.connection.parts_mut().post_receive(slot)?;
        self.slot = (slot + 1) % self.depth.receives as usize;
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        loop {
            if self.next == self.filled && !self.refill() {
                return self.lost();
            }
            let wc = self.batch[self.next];
            self.next += 1;
            if let Some(slot) = receive_slot(wc.wr_id) {
                return Some(self.received(slot, &wc));
            }
            // None: given out as lost before.
            if let Some(id) = self.posted.pop_front() {
                return Some(Completion::Sent { id, status: status(wc.status) });
            }
        }
    }

    fn arm(&mut self) -> io::Result<()> {
        self.queues().completions.arm()
    }

    fn table(&self) -> &Table {
        let queues = self.connection.parts().queues.as_ref();
        queues.expect("prepared").lease.domain().table()
    }

    fn is_disconnected(&mut self) -> bool {
        // An error on the channel means that no event will ever come.
        self.broken || self.connection.parts_mut().has_ended().unwrap_or(true)
    }

    fn shorten_rnr_timer(&mut self) -> io::Result<()> {
        if self.iwarp {
            // It knows no such thing: a message that finds no receive ends the connection.
            return Ok(());
        }
        self.connection.parts_mut().id.shorten_rnr_timer()
    }

    fn readiness(&self) -> [BorrowedFd<'_>; 2] {
        let parts = self.connection.parts();
        let completions = &parts.queues.as_ref().expect("prepared").completions;
        [completions.fd(), parts.id.as_fd()]
    }
}
