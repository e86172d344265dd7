//! Control requests: claim a control slot, post, wait for the answer.

use crate::wait::{Patience, Vigil};
use crate::{Net, plain, platform, slots};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};
use gpunet_abi::control::{ControlSlot, Op, Reply, Request};
use gpunet_abi::{Error, Handle, Options, Result, Word};

/// A claimed control slot. While it is held, a request can be posted without fail.
pub(crate) struct Claim {
    net: Net,
    index: u32,
    deaf: bool,
}

/// Longest wait for the answer to a close, which the proxy gives within a turn.
const CLOSE_LIMIT_NS: u64 = 10_000_000_000;

/// Control slots for requests that may wait for somebody (accept, connect): all but an eighth, which is left to those
/// that the proxy answers at once. Blocks that wait in accept can be more than there are slots, and a close must not
/// wait for them. Of one or two slots none is kept back: a connect and an accept may need both.
const fn for_waiting(controls: u32) -> u32 {
    match controls {
        0..=2 => controls,
        3..=15 => controls - 1,
        _ => controls - controls / 8,
    }
}

impl Claim {
    /// Claims one of the first `among` control slots, waiting for one if all are taken. By one lane.
    ///
    /// # Errors
    /// WouldBlock or TimedOut when all stay taken; Canceled; NetworkDown.
    #[inline(never)]
    fn take(net: Net, near: u32, among: u32, patience: Patience, deaf: bool) -> Result<Self> {
        if !net.is_attached() {
            return Err(Error::NetworkDown);
        }
        let mut vigil = Vigil::new(net, if let Patience::Ns(ns) = patience { ns } else { 0 }).deaf_if(deaf);
        loop {
            vigil.look()?;
            let mut probe = 0;
            while probe < among {
                let index = (near + probe) % among;
                // Ordering: Acquire, pairs with the Release store in `release`: the last holder's
                // sequence number is visible.
                if claim_word(net, index).compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return Ok(Self { net, index, deaf });
                }
                probe += 1;
            }
            if patience == Patience::None {
                return Err(Error::WouldBlock);
            }
            platform::breathe();
        }
    }

    /// Claims a control slot for what may wait for somebody: an accept, a connect. By one lane.
    ///
    /// # Errors
    /// WouldBlock or TimedOut when all of those stay taken; Canceled; NetworkDown.
    #[inline(never)]
    pub(crate) fn for_opening(net: Net, near: u32, patience: Patience) -> Result<Self> {
        Self::take(net, near, for_waiting(net.context().controls), patience, false)
    }

    /// Claims a control slot for the close of a socket, also in a launch that was cancelled. By one lane.
    ///
    /// # Errors
    /// TimedOut when all stay taken; NetworkDown.
    #[inline(never)]
    pub(crate) fn for_close(net: Net, handle: Handle) -> Result<Self> {
        Self::take(net, handle.slot(), net.context().controls, Patience::Ns(CLOSE_LIMIT_NS), true)
    }

    /// Posts the close that it was claimed for. Never Canceled.
    ///
    /// # Errors
    /// As [`Claim::post`].
    pub(crate) fn post_close(self, request: &Request) -> Result<Reply> {
        self.post(request, CLOSE_LIMIT_NS)
    }

    /// Gives the claim back.
    pub(crate) fn release(self) {
        // Ordering: Release, pairs with the Acquire exchange in `take`.
        claim_word(self.net, self.index).store(0, Ordering::Release);
    }

    /// Posts a request and waits for its answer.
    ///
    /// When the wait ends early, the request is abandoned, and the proxy then answers at once: with
    /// what was reached after all, or with an error that is replaced by the wait's own.
    ///
    /// # Errors
    /// The proxy's errno, TimedOut, Canceled, or NetworkDown. A control slot that gave no answer (the
    /// proxy is down, or a kernel scribbled over the slot) is never used again: the proxy may still
    /// write to it.
    #[inline(never)]
    pub(crate) fn post(self, request: &Request, limit_ns: u64) -> Result<Reply> {
        let (net, index) = (self.net, self.index);
        let sequence = net.sequence(index);
        // SAFETY: the claim makes this thread the only one that touches the slot's sequence.
        let seq = unsafe { sequence.read_volatile() } + 1;
        // SAFETY: as above.
        unsafe { sequence.write_volatile(seq) };
        let slot = net.control(index);
        // SAFETY: inside the region, aligned; only the claim's holder writes requests.
        unsafe { plain::store(&raw mut (*slot).request, request) };
        net.request(index).publish(seq);
        let (sleeping, doorbell) = net.data_thread(0);
        platform::ring_doorbell(sleeping, doorbell);

        // SAFETY: the address of the reply's first word, inside the region.
        let reply_seq = unsafe { Word::from_ptr(&raw mut (*slot).reply.seq) };
        let park = slot.cast::<u8>().wrapping_add(offset_of!(ControlSlot, park)).cast::<u32>();
        let mut vigil = Vigil::new(net, limit_ns).deaf_if(self.deaf);
        let mut given_up = None;
        // Pairs with the publish of `seq` in the proxy's `write_reply`.
        while reply_seq.observe() != seq {
            if vigil.due() {
                match (vigil.look(), given_up) {
                    (Err(Error::NetworkDown), _) => return Err(Error::NetworkDown),
                    (Err(error), None) => {
                        given_up = Some(error);
                        net.abandon(index).publish(seq);
                        platform::ring_doorbell(sleeping, doorbell);
                        vigil = Vigil::new(net, net.context().heartbeat_timeout_ns).deaf_if(true);
                    }
                    // A living proxy answers at once. If it did not, somebody scribbled over the slot.
                    (Err(_), Some(error)) => return Err(error),
                    (Ok(()), _) => {}
                }
            }
            platform::pause(vigil.rounds(), park, vigil.remaining_ns(), false, || reply_seq.observe() == seq);
        }
        // SAFETY: inside the region; the proxy published the sequence number after the body and
        // leaves it alone until the next request.
        let reply = unsafe { plain::load(&raw const (*slot).reply) };
        self.release();
        match (reply.errno, given_up) {
            (0, _) => Ok(reply),
            (_, Some(error)) => Err(error),
            (errno, None) => Err(Error::from_errno(errno as i32)),
        }
    }
}

fn claim_word<'a>(net: Net, index: u32) -> &'a AtomicU32 {
    // SAFETY: in the table of claims in device memory, aligned, only atomically accessed.
    unsafe { AtomicU32::from_ptr(net.claim(index)) }
}

/// Posts a request about an existing socket. By one lane.
///
/// # Errors
/// As [`Claim::take`] and [`Claim::post`].
#[inline(never)]
pub(crate) fn call(net: Net, request: &Request, limit_ns: u64) -> Result<Reply> {
    let controls = net.context().controls;
    Claim::take(net, request.slot, controls, Patience::Ns(limit_ns), false)?.post(request, limit_ns)
}

/// Takes a fresh slot and posts a request that opens it. By one lane.
///
/// # Errors
/// As [`Claim::for_opening`], [`slots::take`] and [`Claim::post`]. The slot is the proxy's again then.
pub(crate) fn open(
    net: Net,
    near: u32,
    options: &Options,
    patience: Patience,
    make: impl FnOnce(Handle) -> Request,
) -> Result<(Handle, Reply)> {
    // First the control slot, which may have to be waited for; then the socket slot; then posting,
    // which cannot fail: so no slot is ever lost.
    let claim = Claim::for_opening(net, near, patience)?;
    let handle = match slots::take(net, options) {
        Ok(handle) => handle,
        Err(error) => {
            claim.release();
            return Err(error);
        }
    };
    let limit = if let Patience::Ns(ns) = patience { ns } else { 0 };
    match claim.post(&make(handle), limit) {
        Ok(reply) => Ok((handle, reply)),
        Err(error) => {
            slots::retire(net, handle, gpunet_abi::entry::Kind::Fresh);
            Err(error)
        }
    }
}

/// A request of operation `op` about `handle` by this launch.
pub(crate) fn new(net: Net, op: Op, handle: Handle) -> Request {
    Request::new(op, handle.slot(), handle.generation(), net.context().launch)
}
