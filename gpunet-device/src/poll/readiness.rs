//! The events of one socket that is polled.

use super::set::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLRDHUP, PollFd};
use crate::socket::accept_turn;
use crate::socket::next_units::NextUnits;
use crate::table::{accepted, entry, slots};
use crate::{Net, platform};
use gpunet_abi::entry::{HalfEntry, Kind};
use gpunet_abi::epoch::Changes;
use gpunet_abi::position::StreamWord;
use gpunet_abi::units::COMPILED;
use gpunet_abi::{Direction, Error, Handle, Link, Status, Word};

/// The events of one entry of a set.
pub(crate) struct Readiness {
    /// The entry's `revents`.
    pub(crate) revents: i16,
    /// A stream whose words lie in device memory.
    pub(crate) is_direct: bool,
    /// Another stream, in which a call found no space.
    pub(crate) waits_for_space: bool,
    /// A listener at which another group has the turn to accept.
    pub(crate) is_deferred: bool,
}

impl Readiness {
    const fn of(revents: i16) -> Self {
        Self { revents, is_direct: false, waits_for_space: false, is_deferred: false }
    }
}

/// Examines one entry; `None`: nothing has changed of it that the epoch would not have told.
pub(crate) fn examine(net: Net, fd: PollFd, changes: Changes) -> Option<Readiness> {
    let found = |revents| Some(Readiness::of(revents));
    if fd.handle < 0 {
        return found(0);
    }
    let Some(handle) = Handle::from_raw(fd.handle) else { return found(POLLNVAL) };
    let Ok(kind) = slots::kind_of(net, handle) else { return found(POLLNVAL) };
    let may_have_changed = changes.may_concern(handle.slot());
    let is_listener = match kind {
        Kind::Stream => false,
        _ if !may_have_changed => return None,
        Kind::Listener => true,
        // Neither connected nor listening, as Linux has it.
        _ => return found((POLLOUT & fd.events) | POLLHUP),
    };
    let (mut send, mut recv, mut is_direct) = (HalfEntry::default(), HalfEntry::default(), false);
    let mut link = Link::default();
    if !is_listener {
        (send, link) = entry::half(net, handle, Direction::Send);
        is_direct = link.is_direct();
        if !may_have_changed && !is_direct {
            return None;
        }
        (recv, _) = entry::half(net, handle, Direction::Recv);
    }
    // Listeners and streams are read by the same instructions: lanes that took turns would add up
    // their bus round trips. And these loads are relaxed, so that their round trips overlap: what
    // they find is a hint, and the call that takes the data or the connection observes the word
    // again.
    let (landed, released) = if is_listener {
        (net.ready(handle.slot()), net.accepted_ahead(handle.slot()))
    } else {
        // SAFETY: addresses that `entry::open` checked; mapped while the attachment lives.
        unsafe { (Word::from_ptr(recv.theirs as *mut u64), Word::from_ptr(send.theirs as *mut u64)) }
    };
    let (landed, released) = peek_both(landed, released);
    let status = net.status(handle.slot(), handle.generation());
    if is_listener {
        if released > accepted::taken(net, handle) {
            return found(POLLIN & fd.events);
        }
        // Another group asks for the connection that waits.
        let is_deferred = landed > 0 && accept_turn::is_taken(net, handle.slot());
        let revents = if landed > 0 && !is_deferred { POLLIN & fd.events } else { 0 };
        return Some(Readiness { is_deferred, ..Readiness::of(revents) });
    }
    let (mut landed, received) = (StreamWord::read(landed), StreamWord(recv.position));
    if COMPILED && recv.has_units() {
        landed = landed_with_units(net, handle, &recv, link, landed);
    }
    let ends = Ends {
        sent: StreamWord(send.position),
        released: StreamWord::read(released),
        received,
        landed,
        send_capacity: send.capacity as u64,
        recv_capacity: recv.capacity as u64,
        low_water: entry::low_water(net.entry(handle.slot())),
        status,
    };
    let revents = ends.revents(fd.events);
    // The end and the failure of a stream that another group closes, or the host for a launch, are
    // the answer to that.
    if ends.are_over() && slots::kind_of(net, handle).is_err() || ends.failure() == Some(Error::BadHandle) {
        return found(POLLNVAL);
    }
    let waits_for_space = !is_direct && fd.events & !revents & POLLOUT != 0;
    Some(Readiness { is_direct, waits_for_space, ..Readiness::of(revents) })
}

/// Reads two words without ordering, by one load if they are a pair: see
/// [`gpunet_abi::layout::SocketLine`].
#[inline(always)]
fn peek_both(first: Word, second: Word) -> (u64, u64) {
    let (at, next) = (first.as_ptr(), second.as_ptr());
    if at.wrapping_add(1) == next && at.addr().is_multiple_of(16) {
        // SAFETY: both words are mapped, and every use of them is atomic.
        let [first, second] = unsafe { platform::load_units(at) };
        (first, second)
    } else {
        (first.peek(), second.peek())
    }
}

/// What has landed of a stream with units, by its word and by the units that have come.
#[inline(never)]
fn landed_with_units(net: Net, handle: Handle, recv: &HalfEntry, link: Link, word: StreamWord) -> StreamWord {
    if word.end() || StreamWord(recv.seen).end() {
        // It covers all that was sent.
        return word;
    }
    let entry = net.entry(handle.slot());
    let next =
        NextUnits::new(entry::ring_end(recv, link).unit_ring(), entry::unit_slots(entry, Direction::Recv));
    let (_, enough) = entry::low_water(entry);
    let come = next.come(StreamWord(recv.seen), word, enough as u64);
    StreamWord::at(come)
}

/// The four words of a stream and its status.
struct Ends {
    sent: StreamWord,
    released: StreamWord,
    received: StreamWord,
    landed: StreamWord,
    send_capacity: u64,
    recv_capacity: u64,
    /// How many bytes are to be free, and how many are to have come.
    low_water: (u32, u32),
    status: Option<Status>,
}

impl Ends {
    fn failure(&self) -> Option<Error> {
        self.status.and_then(Status::error)
    }

    /// Returns whether the other end, or the proxy, has ended something.
    fn are_over(&self) -> bool {
        self.landed.end() || self.released.end() || self.status.is_some()
    }

    fn revents(&self, events: i16) -> i16 {
        let flagged = |flag| self.status.is_some_and(|status| status.has(flag));
        let ended = self.landed.end() || self.received.end() || flagged(Status::EOF);
        let mut found = 0;
        let (send_low, recv_low) = self.low_water;
        let come = self.landed.position().saturating_sub(self.received.position());
        // A ring never holds more than its size.
        if come >= (recv_low as u64).min(self.recv_capacity) || ended {
            found |= POLLIN;
        }
        if ended {
            found |= POLLRDHUP;
        }
        let unread = self.sent.position().saturating_sub(self.released.position());
        let reader_left = self.released.end() || self.sent.end() || flagged(Status::NO_SEND);
        let free = self.send_capacity.saturating_sub(unread);
        if free >= (send_low as u64).min(self.send_capacity) || reader_left {
            found |= POLLOUT;
        }
        found &= events;
        let impossible = unread > self.send_capacity || come > self.recv_capacity;
        let gave_up = [self.landed, self.released, self.sent, self.received].iter().any(|word| word.err());
        if impossible || gave_up || self.failure().is_some() {
            found |= POLLERR;
        }
        if ended && self.sent.end() {
            found |= POLLHUP;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::with_device;
    use gpunet_abi::entry::{Entry, SlotState};
    use gpunet_abi::{Link, Options};

    const ALL: i16 = POLLIN | POLLOUT;

    fn idle() -> Ends {
        Ends {
            sent: StreamWord::at(100),
            released: StreamWord::at(100),
            received: StreamWord::at(50),
            landed: StreamWord::at(50),
            send_capacity: 4096,
            recv_capacity: 4096,
            low_water: (1, 1),
            status: None,
        }
    }

    #[test]
    fn an_idle_stream_can_only_send() {
        assert_eq!(idle().revents(ALL), POLLOUT);
        assert_eq!(idle().revents(POLLIN), 0);
    }

    #[test]
    fn data_and_the_end_are_readable() {
        assert_eq!(Ends { landed: StreamWord::at(51), ..idle() }.revents(POLLIN), POLLIN);
        let ended = Ends { landed: StreamWord::at(50).with_end(), ..idle() };
        assert_eq!(ended.revents(POLLIN), POLLIN);
        assert_eq!(ended.revents(POLLRDHUP), POLLRDHUP);
    }

    #[test]
    fn a_full_ring_cannot_be_sent_to() {
        let full = Ends { sent: StreamWord::at(100 + 4096), ..idle() };
        assert_eq!(full.revents(ALL), 0);
        let left = Ends { released: StreamWord::at(100).with_end(), ..full };
        assert_eq!(left.revents(ALL), POLLOUT);
    }

    #[test]
    fn fewer_bytes_than_the_low_water_marks_are_not_reported() {
        let marked = |landed: u64, released: u64| Ends {
            low_water: (512, 100),
            sent: StreamWord::at(100 + 4096),
            landed: StreamWord::at(50 + landed),
            released: StreamWord::at(100 + released),
            ..idle()
        };
        assert_eq!(marked(99, 511).revents(ALL), 0);
        assert_eq!(marked(100, 511).revents(ALL), POLLIN);
        assert_eq!(marked(99, 512).revents(ALL), POLLOUT);
        // An end is reported whatever has come, and marks above a ring's size count as that size.
        assert_eq!(Ends { landed: StreamWord::at(51).with_end(), ..marked(1, 0) }.revents(ALL), POLLIN);
        let large = |landed, released| Ends { low_water: (8192, 8192), ..marked(landed, released) };
        assert_eq!(large(4095, 4095).revents(ALL), 0);
        assert_eq!(large(4096, 4096).revents(ALL), ALL);
    }

    #[test]
    fn a_failure_is_reported_unasked() {
        let status = Some(Status::open(1).with_error(Error::ConnectionReset));
        assert_eq!(Ends { status, ..idle() }.revents(0), POLLERR);
        assert_eq!(Ends { landed: StreamWord::at(50).with_err(), ..idle() }.revents(0), POLLERR);
        assert_eq!(Ends { landed: StreamWord::at(9999), ..idle() }.revents(0), POLLERR);
    }

    #[test]
    fn both_ends_gone_is_a_hang_up() {
        let over =
            Ends { sent: StreamWord::at(100).with_end(), landed: StreamWord::at(50).with_end(), ..idle() };
        assert_eq!(over.revents(0), POLLHUP);
    }

    #[test]
    fn each_sign_of_the_end_is_enough() {
        let status = |flag| Some(Status::open(1).with(flag));
        for ended in [
            Ends { landed: StreamWord::at(50).with_end(), ..idle() },
            Ends { received: StreamWord::at(50).with_end(), ..idle() },
            Ends { status: status(Status::EOF), ..idle() },
        ] {
            assert_eq!(ended.revents(ALL | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
        }
        // Where nothing more can be sent, the send that reports it does not wait.
        let full = || Ends { sent: StreamWord::at(100 + 4096), ..idle() };
        for left in [
            Ends { released: StreamWord::at(100).with_end(), ..full() },
            Ends { sent: full().sent.with_end(), ..full() },
            Ends { status: status(Status::NO_SEND), ..full() },
        ] {
            assert_eq!(left.revents(ALL), POLLOUT);
        }
    }

    #[test]
    fn a_full_ring_of_received_bytes_is_no_failure() {
        let full = Ends { landed: StreamWord::at(50 + 4096), ..idle() };
        assert_eq!(full.revents(POLLIN), POLLIN);
        assert_eq!(Ends { landed: StreamWord::at(51 + 4096), ..idle() }.revents(0), POLLERR);
    }

    #[test]
    fn what_the_other_end_or_the_proxy_has_ended_is_over() {
        assert!(!idle().are_over());
        assert!(Ends { landed: StreamWord::at(50).with_end(), ..idle() }.are_over());
        assert!(Ends { released: StreamWord::at(100).with_end(), ..idle() }.are_over());
        assert!(Ends { status: Some(Status::open(1).with(Status::EOF)), ..idle() }.are_over());
    }

    /// Examines a socket of that kind and link for which there is data, or space.
    fn examine_one(kind: Kind, link: Link, changes: Changes) -> Option<i16> {
        let mut words = [7u64, 0];
        with_device(|net| {
            let mut entry = Entry::fresh(1, Options::DEFAULT);
            entry.link = link;
            (entry.recv.theirs, entry.recv.capacity) = (&raw mut words[0] as u64, 4096);
            (entry.send.theirs, entry.send.capacity) = (&raw mut words[1] as u64, 4096);
            // SAFETY: the entry of slot 0, which nobody else uses.
            unsafe { net.entry(0).write(entry) };
            // SAFETY: its state, likewise.
            unsafe { net.state(0).write(SlotState::new(kind, 1, 0).0) };
            net.ready(0).set(1);
            let fd = PollFd { handle: Handle::new(0, 1).raw(), events: ALL, revents: 0 };
            examine(net, fd, changes).map(|found| found.revents)
        })
    }

    #[test]
    fn between_two_epochs_only_direct_streams_are_examined() {
        let direct = Link::same_device(0);
        for (kind, link, found) in [
            (Kind::Stream, direct, POLLIN | POLLOUT),
            (Kind::Stream, Link::driven(0), POLLIN | POLLOUT),
            (Kind::Listener, Link::driven(0), POLLIN),
            (Kind::Fresh, Link::driven(0), POLLOUT | POLLHUP),
        ] {
            assert_eq!(examine_one(kind, link, Changes::Any), Some(found), "{kind:?}");
            let then = if link == direct { Some(found) } else { None };
            assert_eq!(examine_one(kind, link, Changes::None), then, "{kind:?} between two epochs");
        }
    }
}
