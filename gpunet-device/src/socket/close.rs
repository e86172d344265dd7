//! Closing a socket: its handle dies at once, and the proxy learns of it. Of a stream that it
//! drives it learns by a word that the stream's data thread scans, of any other socket by a
//! request.

use crate::group::outcome::by_leader;
use crate::socket::accept_queue;
use crate::socket::half::{wake_own_pollers, wake_waiting};
use crate::socket::recv::RecvHalf;
use crate::socket::request::{self, Claim};
use crate::socket::send::SendHalf;
use crate::table::entry::{self, Deferred};
use crate::table::{membership, slots};
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Group, Net, platform};
use gpunet_abi::control::{Op, Request};
use gpunet_abi::entry::{Kind, lock};
use gpunet_abi::waiting::{Awaited, Call};
use gpunet_abi::{Direction, Error, Handle, Result};

/// A socket whose handle is dead, which the proxy does not know yet: the caller still has its slot.
pub(crate) struct Closing {
    net: Net,
    handle: Handle,
    via: Via,
}

/// How the proxy learns of a close.
enum Via {
    /// By the socket's word, which this data thread scans.
    Word { thread: u32 },
    /// By a request.
    Request { claim: Claim, flags: u32 },
}

impl Via {
    /// Gives back what was taken for the close.
    fn release(&self) {
        if let Self::Request { claim, .. } = self {
            claim.release();
        }
    }
}

impl Closing {
    /// Retires the state of a socket. By one lane.
    ///
    /// # Errors
    /// BadHandle when it is closed already, or of another kind; Busy when the host has taken one of
    /// its directions; TimedOut; NetworkDown.
    #[inline(never)]
    pub(crate) fn begin(net: Net, handle: Handle, kind: Kind) -> Result<Self> {
        if slots::kind_of(net, handle)? != kind {
            return Err(Error::BadHandle);
        }
        if kind == Kind::Stream
            && [Direction::Send, Direction::Recv].iter().any(|half| slots::is_taken(net, handle, *half))
        {
            return Err(Error::Busy);
        }
        // The claim first, and what prepares: they may have to be waited for, and the handle is
        // good until the close is sure to be posted.
        let via = Via::of(net, handle, kind)?;
        if let Err(error) = retire(net, handle, kind) {
            via.release();
            return Err(error);
        }
        membership::forget(net, handle);
        if kind == Kind::Group {
            membership::close_lists(net, handle);
        }
        wake_waiters(net, handle, kind);
        Ok(Self { net, handle, via })
    }

    /// Posts the close to the proxy, with a stream's positions. By the same lane, which has the
    /// slot no longer then; in a cancelled launch, too.
    ///
    /// # Errors
    /// As [`Claim::post_close`].
    #[inline(never)]
    pub(crate) fn post(self, sent: u64, consumed: u64) -> Result<u64> {
        let Self { net, handle, via } = self;
        match via {
            Via::Word { thread } => {
                // Pairs with the data thread's observe in `is_closed`: it finds all that was
                // published of the stream. The slot is the next socket's from here on.
                net.closed(handle.slot()).publish(u64::from(handle.generation()));
                let (sleeping, doorbell) = net.data_thread(thread);
                platform::ring_doorbell(sleeping, doorbell);
                Ok(0)
            }
            Via::Request { claim, flags } => {
                let mut request = request::new(net, Op::Close, handle);
                (request.send_position, request.recv_position) = (sent, consumed);
                request.flags = flags;
                claim.post_close(&request, handle).map(|()| 0)
            }
        }
    }
}

impl Via {
    /// How the proxy is to learn of the close of a socket that is `kind`. By one lane.
    ///
    /// # Errors
    /// TimedOut; NetworkDown.
    #[inline(never)]
    fn of(net: Net, handle: Handle, kind: Kind) -> Result<Self> {
        // If another group closes the socket meanwhile, the link may be the next one's; then this
        // close fails.
        let driver = match kind {
            Kind::Stream => entry::link_of(net.entry(handle.slot())).data_thread(),
            _ => None,
        };
        if let Some(thread) = driver {
            WaitGuard::new(net, Deadline::NEVER).ignoring_cancel(true).check()?;
            return Ok(Self::Word { thread });
        }
        // The close of a stream leaves nothing to report. The port of another socket is free when
        // its close is answered.
        let flags = if kind == Kind::Stream { Request::ANSWER_FIRST } else { 0 };
        Ok(Self::Request { claim: Claim::for_close(net, handle)?, flags })
    }
}

/// Ends the state of a socket that is `kind`. By one lane. If it fails, the socket is as it was.
///
/// # Errors
/// BadHandle when it is closed already, or of another kind; for a listener those of
/// [`accept_queue::retire`].
pub(crate) fn retire(net: Net, handle: Handle, kind: Kind) -> Result<()> {
    match kind {
        Kind::Listener => accept_queue::retire(net, handle),
        _ if slots::retire(net, handle, kind) => Ok(()),
        _ => Err(Error::BadHandle),
    }
}

/// Closes a stream as the table has it, where each call leaves it. All lanes.
///
/// It takes no [`Stream`](crate::Stream): a value whose address is passed on is kept in local
/// memory all its life, and not in registers, and each call then waits for it (0.6 us of 1.9 for 64
/// bytes between two blocks of an H200).
///
/// # Errors
/// As [`Stream::close`](crate::Stream::close).
#[inline(never)]
pub fn close_stream<G: Group>(g: &G, net: Net, handle: Handle) -> Result<()> {
    // What the lanes have received and sent is in the table.
    g.sync();
    // One lane decides for all: another group may be closing it just now, or changing its options.
    by_leader(g, || end_and_close(net, handle))?;
    Ok(())
}

/// The leader's part of [`close_stream`].
#[inline(never)]
fn end_and_close(net: Net, handle: Handle) -> Result<u64> {
    // The handle is dead before the other end learns of it: a waiter must not see the end with
    // which the peer answers.
    let closing = Closing::begin(net, handle, Kind::Stream)?;
    let entry = net.entry(handle.slot());
    let link = entry::link_of(entry);
    // A poller that found the handle open may announce, or publish, at this moment: after the ends
    // it would take them back.
    let locked = match lock_halves(net, handle) {
        Ok(locked) => locked,
        Err(error) => {
            // The proxy does not learn of it, so the slot and its words stay this socket's until
            // the launch that took it is finished.
            closing.via.release();
            return Err(error);
        }
    };
    let mut send = SendHalf::load_at(net, handle, entry, link, false);
    let mut recv = RecvHalf::load_at(net, handle, entry, link);
    // A close that resets (SO_LINGER 0) does not announce the end of the stream before. What the
    // proxy drives ends with the close, and only bytes that are in the ring unpublished need more.
    let (resets, direct) = (entry::options(net, handle).linger_ms == 0, link.is_direct());
    if !resets && (direct || entry::deferred(entry) != Deferred::None) {
        send.end();
    }
    if !resets && direct {
        recv.end();
    }
    // The slot is the next socket's once the close is posted.
    unlock_halves(net, handle, locked);
    closing.post(send.position(), recv.position())
}

/// Locks both halves of a stream, as [`lock_for_end`] does. By one lane.
fn lock_halves(net: Net, handle: Handle) -> Result<[bool; 2]> {
    let send = lock_for_end(net, handle, Direction::Send)?;
    match lock_for_end(net, handle, Direction::Recv) {
        Ok(recv) => Ok([send, recv]),
        Err(error) => {
            unlock_halves(net, handle, [send, false]);
            Err(error)
        }
    }
}

fn unlock_halves(net: Net, handle: Handle, locked: [bool; 2]) {
    for (half, locked) in [Direction::Send, Direction::Recv].into_iter().zip(locked) {
        if locked {
            slots::unlock(net, handle, half, lock::ANNOUNCE);
        }
    }
}

/// Locks a half of a stream whose handle has just died. Returns false if a call by handle uses it;
/// that call finds out by itself: the next group to lock it finds the handle dead. By one lane.
///
/// A group that announces is waited for, in a launch that is cancelled, too: it stores into words
/// that are the next socket's once the close is posted.
///
/// # Errors
/// TimedOut, when it does not give the half back; Canceled, in a launch that has lost a thread;
/// NetworkDown.
fn lock_for_end(net: Net, handle: Handle, half: Direction) -> Result<bool> {
    let mut guard = WaitGuard::new(net, Deadline::after(request::CLOSE_LIMIT_NS))
        .ignoring_cancel(true)
        .waiting_for(Awaited::on(Call::Close, handle.slot()));
    loop {
        if slots::lock(net, handle, half, lock::ANNOUNCE) {
            return Ok(true);
        }
        if !matches!(slots::holder(net, handle, half), Ok(lock::ANNOUNCE | lock::FREE)) {
            return Ok(false);
        }
        if guard.is_due() {
            guard.check()?;
        }
        platform::back_off();
    }
}

/// Closes what is no stream. By one lane.
///
/// # Errors
/// As `Closing::begin` and `Closing::post`.
#[inline(never)]
pub fn close(net: Net, handle: Handle, kind: Kind) -> Result<u64> {
    let closing = Closing::begin(net, handle, kind)?;
    let accepted = match kind {
        // Of those that were accepted ahead, the proxy closes the others.
        Kind::Listener => accept_queue::close(net, handle),
        _ => 0,
    };
    closing.post(0, accepted)
}

/// Wakes groups that wait on a handle that has just been closed. By one lane.
pub(crate) fn wake_waiters(net: Net, handle: Handle, kind: Kind) {
    if kind == Kind::Stream {
        wake_waiting(net, handle);
    }
    wake_own_pollers(net, handle.slot());
}
