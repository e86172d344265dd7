//! Control requests: claim a control slot, post, wait for the answer.

use crate::memory::plain;
use crate::table::free_slots;
use crate::table::slots::{self, Caller};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Net, platform};
use core::mem::offset_of;
use gpunet_abi::atomic::{AtomicU32, Ordering};
use gpunet_abi::claim::{self, ClaimWord, Posted, Taken};
use gpunet_abi::control::{ControlSlot, NO_SLOT, Op, Reply, Request};
use gpunet_abi::entry::Kind;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Error, Handle, Options, Result, Word};

/// A claimed control slot. While it is held, a request can be posted without fail.
pub struct Claim {
    slot: Control,
    ignore_cancel: bool,
}

/// Longest wait for the answer to a close, which the proxy gives within a turn, and for a group
/// that announces, which stores a few words.
pub(crate) const CLOSE_LIMIT_NS: u64 = 10_000_000_000;

/// Control slots for requests that may wait for somebody (accept, connect): all but an eighth,
/// which is left to those that the proxy answers at once. Blocks that wait in accept can be more
/// than there are slots, and a close must not wait for them. Of one or two slots none is kept back:
/// a connect and an accept may need both.
const fn for_waiting(controls: u32) -> u32 {
    match controls {
        0..=2 => controls,
        3..=15 => controls - 1,
        _ => controls - controls / 8,
    }
}

/// One control slot, and what this device keeps of it.
#[derive(Clone, Copy)]
struct Control {
    net: Net,
    index: u32,
}

/// The claim of a control slot.
struct ClaimCell(*mut u32);

impl ClaimCell {
    fn atomic<'a>(&self) -> &'a AtomicU32 {
        // SAFETY: in the table of claims in device memory, aligned, only atomically accessed.
        unsafe { AtomicU32::from_ptr(self.0) }
    }
}

impl ClaimWord for ClaimCell {
    // Ordering: Relaxed; the exchange decides.
    fn peek(&self) -> u32 {
        self.atomic().load(Ordering::Relaxed)
    }

    // Ordering: Acquire, pairs with the Release store below by the last holder: what it posted last
    // is visible.
    fn exchange(&self, from: u32, to: u32) -> bool {
        self.atomic().compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    // Ordering: Release, pairs with the Acquire exchange above.
    fn store(&self, value: u32) {
        self.atomic().store(value, Ordering::Release);
    }
}

impl Control {
    fn claim(self) -> ClaimCell {
        ClaimCell(self.net.claim(self.index))
    }

    /// The last request of the previous holder of the claim. By its holder.
    fn posted(self) -> Posted {
        // SAFETY: in the table in device memory; the claim makes this thread the only one that
        // touches it.
        unsafe { plain::load(self.net.posted(self.index)) }
    }

    /// The number of the last reply.
    fn replied(self) -> Word {
        let slot = self.net.control(self.index);
        // SAFETY: the address of the reply's first word, inside the region.
        unsafe { Word::from_ptr(&raw mut (*slot).reply.seq) }
    }

    /// The last reply, once its number was observed.
    fn reply(self) -> Reply {
        // SAFETY: inside the region; the proxy published the sequence number after the body and
        // leaves it alone until the next request.
        unsafe { plain::load_published(&raw const (*self.net.control(self.index)).reply) }
    }

    /// The errno of that reply.
    fn errno(self) -> u32 {
        // SAFETY: as in `reply`.
        unsafe { (&raw const (*self.net.control(self.index)).reply.errno).read_volatile() }
    }

    fn park(self) -> *mut u32 {
        self.net.control(self.index).cast::<u8>().wrapping_add(offset_of!(ControlSlot, park)).cast()
    }

    /// Writes a request and tells the proxy; returns its number. By the claim's holder.
    #[inline(never)]
    fn write(self, request: &Request, socket: Handle) -> u64 {
        let sequence = self.posted().sequence + 1;
        let op = Op::from_raw(request.op).unwrap_or(Op::Query);
        // SAFETY: as in `posted`.
        unsafe { plain::store(self.net.posted(self.index), &Posted::new(sequence, op, socket)) };
        // SAFETY: inside the region, aligned; only the claim's holder writes requests.
        unsafe { plain::store(&raw mut (*self.net.control(self.index)).request, request) };
        self.net.request(self.index).publish(sequence);
        self.ring();
        sequence
    }

    /// Tells the proxy that nobody waits for the reply to the request of that number.
    fn abandon(self, sequence: u64) {
        self.net.abandon(self.index).publish(sequence);
        self.ring();
    }

    fn ring(self) {
        let (sleeping, doorbell) = self.net.data_thread(0);
        platform::ring_doorbell(sleeping, doorbell);
    }

    /// Takes the slot if it is free, or left and answered by now; returns whether the caller has
    /// it.
    ///
    /// A socket that was opened for a group that has left is closed: that takes the slot once more,
    /// and nobody waits for it either.
    fn try_take(self) -> bool {
        let word = self.claim();
        match claim::take(&word) {
            None => false,
            Some(Taken::Free) => true,
            Some(Taken::Orphan) => {
                let posted = self.posted();
                // Pairs with the publish in the proxy's `write_reply`.
                if self.replied().observe() != posted.sequence {
                    claim::leave(&word);
                    return false;
                }
                match Handle::from_raw(posted.opens) {
                    Some(socket) if self.errno() == 0 => {
                        self.write(&new(self.net, Op::Close, socket), socket);
                        claim::leave(&word);
                        false
                    }
                    _ => true,
                }
            }
        }
    }
}

impl Claim {
    /// Claims one of the first `among` control slots, waiting for one if all are taken. By one
    /// lane.
    ///
    /// # Errors
    /// WouldBlock or TimedOut when all stay taken; Canceled; NetworkDown.
    #[inline(never)]
    fn take(
        net: Net,
        start: u32,
        among: u32,
        wait: bool,
        deadline: Deadline,
        ignore_cancel: bool,
    ) -> Result<Self> {
        if !net.is_attached() {
            return Err(Error::NetworkDown);
        }
        let mut guard = WaitGuard::new(net, deadline).ignoring_cancel(ignore_cancel);
        loop {
            guard.check()?;
            let mut probe = 0;
            while probe < among {
                let slot = Control { net, index: (start + probe) % among };
                if slot.try_take() {
                    return Ok(Self { slot, ignore_cancel });
                }
                probe += 1;
            }
            if !wait {
                return Err(Error::WouldBlock);
            }
            platform::back_off();
        }
    }

    /// Claims a control slot for what may wait for somebody: an accept, a connect. By one lane.
    ///
    /// # Errors
    /// WouldBlock (unless `wait`) or TimedOut when all of those stay taken; Canceled; NetworkDown.
    #[inline(never)]
    pub fn for_opening(net: Net, start: u32, wait: bool, deadline: Deadline) -> Result<Self> {
        Self::take(net, start, for_waiting(net.context().controls), wait, deadline, false)
    }

    /// Claims a control slot for the close of a socket, also in a launch that was cancelled. By one
    /// lane.
    ///
    /// # Errors
    /// TimedOut when all stay taken; NetworkDown.
    #[inline(never)]
    pub(crate) fn for_close(net: Net, handle: Handle) -> Result<Self> {
        let deadline = Deadline::after(CLOSE_LIMIT_NS);
        Self::take(net, handle.slot(), net.context().controls, true, deadline, true)
    }

    /// Posts the close that it was claimed for. Never Canceled.
    ///
    /// # Errors
    /// As [`Claim::post`].
    pub(crate) fn post_close(self, request: &Request, handle: Handle) -> Result<()> {
        self.post(request, handle, Deadline::after(CLOSE_LIMIT_NS), &mut Reply::new(0, 0))
    }

    /// Gives the claim back.
    pub fn release(&self) {
        claim::release(&self.slot.claim());
    }

    /// Posts a request about `socket` and waits for its answer, which it stores in `reply`: large
    /// values that functions return are copied again at each return.
    ///
    /// When the wait ends early, the request is abandoned, and the proxy then answers at once: with
    /// what was reached after all, or with an error that is replaced by the wait's own.
    ///
    /// # Errors
    /// The proxy's errno, TimedOut, Canceled, or NetworkDown. A control slot without an answer (the
    /// proxy is suspended, or a kernel wrote over the slot) is abandoned: the next group that needs
    /// one adopts it when the answer is there.
    #[inline(never)]
    pub fn post(
        self,
        request: &Request,
        socket: Handle,
        deadline: Deadline,
        reply: &mut Reply,
    ) -> Result<()> {
        let (slot, net) = (self.slot, self.slot.net);
        let sequence = slot.write(request, socket);
        let replied = slot.replied();
        let awaited = Awaited::on(call_of(request.op), request.slot);
        let mut guard =
            WaitGuard::new(net, deadline).ignoring_cancel(self.ignore_cancel).waiting_for(awaited);
        let mut given_up = None;
        // Pairs with the publish of `seq` in the proxy's `write_reply`.
        while replied.observe() != sequence {
            if guard.is_due() {
                match (guard.check(), given_up) {
                    (Ok(()), _) => {}
                    // The proxy is suspended. Nobody waits for what it does with the request when
                    // it continues.
                    (Err(Error::NetworkDown), None) => {
                        slot.abandon(sequence);
                        return self.leave(Error::NetworkDown);
                    }
                    (Err(Error::NetworkDown), Some(_)) => return self.leave(Error::NetworkDown),
                    (Err(error), None) => {
                        given_up = Some(error);
                        slot.abandon(sequence);
                        let limit = Deadline::after(net.context().heartbeat_timeout_ns);
                        guard = WaitGuard::new(net, limit).ignoring_cancel(true);
                    }
                    // A living proxy answers at once. If it did not, somebody scribbled over the
                    // slot.
                    (Err(_), Some(error)) => return self.leave(error),
                }
            }
            let answered = || replied.observe() == sequence;
            platform::pause(guard.rounds(), slot.park(), guard.remaining_ns(), false, answered);
        }
        hand_off::at(HandOff::ReplyFound);
        *reply = slot.reply();
        self.release();
        match (reply.errno, given_up) {
            (0, _) => Ok(()),
            (_, Some(error)) => Err(error),
            (errno, None) => Err(Error::from_errno(errno as i32)),
        }
    }

    /// Posts a request whose answer nobody waits for; it opens no socket.
    pub(crate) fn post_and_leave(self, request: &Request, socket: Handle) {
        self.slot.write(request, socket);
        claim::leave(&self.slot.claim());
    }

    /// Leaves the control slot without an answer.
    fn leave(self, error: Error) -> Result<()> {
        claim::leave(&self.slot.claim());
        Err(error)
    }
}

/// Posts a request about an existing socket; returns the value of the answer. By one lane.
///
/// # Errors
/// As `Claim::take` and [`Claim::post`].
#[inline(never)]
pub fn call(net: Net, request: &Request, handle: Handle) -> Result<u64> {
    let mut reply = Reply::new(0, 0);
    let claim = Claim::take(net, request.slot, net.context().controls, true, Deadline::NEVER, false)?;
    claim.post(request, handle, Deadline::NEVER, &mut reply)?;
    Ok(reply.value)
}

/// Takes a fresh slot with these options and posts a request that opens it: an accept, whose target
/// the slot becomes, or one about the slot itself. By one lane.
///
/// # Errors
/// As [`Claim::for_opening`], [`free_slots::take`] and [`Claim::post`]. The slot is the proxy's
/// again then.
#[inline(never)]
pub(crate) fn open(
    net: Net,
    caller: Caller,
    options: &Options,
    wait: bool,
    deadline: Deadline,
    request: &mut Request,
    reply: &mut Reply,
) -> Result<Handle> {
    // First the control slot, which may have to be waited for; then the socket slot; then posting,
    // which cannot fail: so no slot is ever lost. One deadline for both waits.
    let claim = Claim::for_opening(net, caller.index(), wait, deadline)?;
    let handle = free_slots::take(net, options).inspect_err(|_| claim.release())?;
    let (slot, generation) = if request.op == Op::Accept as u32 {
        (&mut request.target, &mut request.target_generation)
    } else {
        (&mut request.slot, &mut request.generation)
    };
    (*slot, *generation) = (handle.slot(), handle.generation());
    claim
        .post(request, handle, deadline, reply)
        .inspect_err(|_| _ = slots::retire(net, handle, Kind::Fresh))?;
    Ok(handle)
}

/// What operators are shown of a wait for the answer to an operation.
const fn call_of(op: u32) -> Call {
    match Op::from_raw(op) {
        Some(Op::Connect) => Call::Connect,
        Some(Op::Accept) => Call::Accept,
        Some(Op::Close) => Call::Close,
        _ => Call::Request,
    }
}

/// A request of operation `op` about a slot that [`open`] takes.
pub(crate) fn fresh(net: Net, op: Op) -> Request {
    Request::new(op, NO_SLOT, 0, net.context().launch)
}

/// A request of operation `op` about `handle` by this launch.
pub fn new(net: Net, op: Op, handle: Handle) -> Request {
    Request::new(op, handle.slot(), handle.generation(), net.context().launch)
}

#[cfg(test)]
mod tests {
    use super::for_waiting;

    #[test]
    fn an_eighth_of_the_control_slots_is_kept_for_what_is_answered_at_once() {
        for (controls, waiting) in
            [(0, 0), (1, 1), (2, 2), (3, 2), (8, 7), (15, 14), (16, 14), (64, 56), (100, 88)]
        {
            assert_eq!(for_waiting(controls), waiting, "of {controls}");
        }
    }
}
