//! The root of a team: the thread in member 0's program at which all members meet.
//!
//! First it waits for a hello of every member (`rendezvous`), then for each one's connection to its
//! Unix-domain socket (`arrivals`), and then it serves their operations (`operations`) until the
//! last has gone. One thread does all, by `poll`; it never waits for a single member, and receives
//! no descriptor itself (`passed`). Other programs can connect to both sockets, so in each turn it
//! accepts only a few connections and reads from all members. While no operation is under way it
//! sleeps until something arrives.
//!
//! Like that of a [member](super::member), it is a thread and not a task of the proxy's runtime,
//! for three reasons. A program that has attached to a daemon has no runtime. The runtime of an
//! embedded proxy belongs to the control plane, whose turns drive the heartbeat, and must not
//! block, but a member's thread waits for copies into a GPU's memory and for descriptors. And a
//! team can outlive its proxy.
//!
//! | file | holds |
//! |---|---|
//! | `listener`, `accept` | where members meet before the team exists; accepting connections, a few at a time |
//! | `rendezvous` | the hellos of all members |
//! | `arrivals` | connections that have not identified their member yet |
//! | `operations` | operations of all members: a state machine |
//! | `taking` | descriptors that members pass, received on separate threads |

mod accept;
mod arrivals;
mod listener;
mod operations;
mod rendezvous;
mod taking;

use super::TeamOptions;
use super::error::{TeamError, TeamFailure};
use super::frames::{Placement, ToMember, ToRoot};
use super::id::TeamId;
use super::passed::{Passed, TAKE_WITHIN};
use super::secrets::Secrets;
use crate::os::client_socket::ClientSocket;
use crate::wire::{self, BadFrame, Incoming, MAX_FRAME};
use arrivals::{Arrivals, Here};
use gpu_usermap::cuda::ExportCheck;
use gpu_usermap::threads;
use gpunet_abi::team::Rank;
pub use listener::TeamListener;
use operations::Operations;
use rendezvous::Rendezvous;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use taking::Taking;

/// How often the root checks the clock while a deadline is pending.
const TICK: Duration = Duration::from_millis(50);
/// How long it may take to receive a descriptor. In ticks: the time during which this program was
/// stopped does not count.
const TAKE_TICKS: u32 = (TAKE_WITHIN.as_millis() / TICK.as_millis()) as u32;

/// One member's connection.
enum Member {
    /// It has not connected yet.
    Expected,
    Connected(Connection),
    /// It has left, or died.
    Gone,
}

struct Connection {
    socket: Arc<ClientSocket>,
    /// While a packet with descriptors of this member is being received: the ticks that are left
    /// for it. Nothing else is read from the member in this time.
    taking: Option<u32>,
}

struct Root {
    rendezvous: Rendezvous,
    arrivals: Arrivals,
    secrets: Secrets,
    members: Vec<Member>,
    /// The check of descriptors of GPU memory. `None` once it is settled that members pass memfds.
    exports: Option<ExportCheck>,
    taking: Taking,
    operations: Operations,
    /// The time by which all must have connected.
    deadline: Instant,
    /// When the clock was last checked.
    ticked: Instant,
    known_failure: KnownFailure,
}

/// Returns why not all members can come to the rendezvous, if that is known.
pub(super) type KnownFailure = Box<dyn Fn() -> Option<TeamFailure> + Send>;

/// The owner of a descriptor that `poll` watches.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    Listener,
    Pending,
    Arrivals,
    /// The connection over which a member has met the others.
    Met(u32),
    Taken,
    Member(u32),
}

impl Root {
    fn new(
        listener: TcpListener,
        id: TeamId,
        size: u32,
        options: &TeamOptions,
        exports: Option<ExportCheck>,
        secrets: Vec<u128>,
        known_failure: KnownFailure,
    ) -> io::Result<Self> {
        Ok(Self {
            rendezvous: Rendezvous::new(listener, id.nonce(), size, options, secrets)?,
            arrivals: Arrivals::listen()?,
            secrets: Secrets::new(size)?,
            members: (0..size).map(|_| Member::Expected).collect(),
            exports,
            taking: Taking::new()?,
            operations: Operations::new(size, options.timeout),
            deadline: Instant::now() + options.timeout,
            ticked: Instant::now(),
            known_failure,
        })
    }

    fn start(self) -> Result<(), TeamError> {
        let thread = threads::spawn("gpunet-team-root", move || self.run());
        thread.map_err(TeamError::io("cannot start a thread for the team"))?;
        Ok(())
    }

    fn run(mut self) {
        if let Err(error) = self.serve() {
            // Its sockets close with it, so all members notice.
            tracing::error!(%error, "the root of a team has ended");
        }
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; MAX_FRAME];
        while !self.is_over() {
            let ready = self.poll()?;
            for source in ready {
                match source {
                    Source::Listener => self.rendezvous.accept(),
                    Source::Pending => self.rendezvous.receive(),
                    Source::Arrivals => self.admit(&mut buffer),
                    Source::Met(rank) => self.part_at_the_meeting(rank),
                    Source::Taken => self.receive_taken(),
                    Source::Member(rank) => self.receive_from_member(rank, &mut buffer),
                }
            }
            if !self.rendezvous.is_formed()
                && let Some(why) = (self.known_failure)()
            {
                self.rendezvous.fail(why);
                self.rendezvous.end_soon();
            }
            let key = |rank| self.secrets.between(rank, rank).expect("a member's rank");
            if let Some(placement) = self.rendezvous.conclude(self.arrivals.name(), key) {
                self.exports = self.exports.filter(|_| placement == Placement::Gpu);
                self.deadline = Instant::now() + self.operations.timeout();
            }
            self.check_deadlines();
        }
        Ok(())
    }

    /// Returns whether the team has failed to form, or all members have gone.
    fn is_over(&self) -> bool {
        let all_gone = self.members.iter().all(|member| matches!(member, Member::Gone));
        all_gone || self.rendezvous.has_failed()
    }

    /// Returns whether a deadline is pending. While no operation is under way, the root sleeps
    /// until something arrives.
    fn is_timed(&self) -> bool {
        let is_awaited = |member: &Member| match member {
            Member::Expected => true,
            Member::Connected(connection) => connection.taking.is_some(),
            Member::Gone => false,
        };
        self.rendezvous.is_timed() || self.operations.is_timed() || self.members.iter().any(is_awaited)
    }

    /// Waits until there is something to do; at most one tick if a deadline is pending.
    fn poll(&self) -> io::Result<Vec<Source>> {
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
        // Before the listener: a pause in accepting connections counts as timed.
        let limit = self.is_timed().then_some(&tick);
        let mut watched: Vec<(Source, BorrowedFd<'_>)> = vec![(Source::Taken, self.taking.bell())];
        watched.extend(self.rendezvous.listener().map(|socket| (Source::Listener, socket)));
        watched.extend(self.rendezvous.pending().map(|socket| (Source::Pending, socket)));
        watched.extend(self.rendezvous.met().map(|(rank, socket)| (Source::Met(rank), socket)));
        watched.extend(self.arrivals.watched().map(|socket| (Source::Arrivals, socket)));
        for (rank, member) in (0..).zip(&self.members) {
            if let Member::Connected(Connection { socket, taking: None }) = member {
                watched.push((Source::Member(rank), socket.as_fd()));
            }
        }
        let mut fds: Vec<_> =
            watched.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        rustix::io::retry_on_intr(|| poll(&mut fds, limit))?;
        let ready = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        let mut ready: Vec<_> = ready.map(|(_, (source, _))| *source).collect();
        // All pending connections are read at once, and so are all arrivals.
        ready.dedup();
        Ok(ready)
    }

    /// Receives new connections, and accepts as members those that know the member's key.
    fn admit(&mut self, buffer: &mut [u8]) {
        for Here { key, rank, socket } in self.arrivals.receive(buffer) {
            let place = self.members.get_mut(rank as usize);
            let (true, Some(place @ Member::Expected)) =
                (self.secrets.between(rank, rank) == Some(key), place)
            else {
                continue;
            };
            socket.take_descriptors();
            *place = Member::Connected(Connection { socket: Arc::new(socket), taking: None });
            self.send(rank, &ToMember::Welcome { secrets: self.secrets.of(rank) }, None);
            if let Some(why) = self.operations.broken() {
                self.send(rank, &ToMember::Broken { why }, None);
            }
        }
    }

    /// A member's connection to the rendezvous has ended: it was welcomed at the other socket, or
    /// it is dead.
    fn part_at_the_meeting(&mut self, rank: u32) {
        if !self.rendezvous.is_formed() {
            // The others need not wait for members that have not come yet.
            return self.rendezvous.fail(TeamFailure::Died { rank: Rank(rank) });
        }
        self.rendezvous.forget(rank);
        if matches!(self.members[rank as usize], Member::Expected) {
            self.lose(rank, TeamFailure::Died { rank: Rank(rank) });
        }
    }

    /// Receives a packet of a member, or the end of its connection.
    fn receive_from_member(&mut self, rank: u32, buffer: &mut [u8]) {
        let Member::Connected(connection) = &mut self.members[rank as usize] else { return };
        let packet = match wire::recv_plain(connection.socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(Some(Incoming::Plain(packet))) => packet,
            Ok(Some(Incoming::WithDescriptors)) => {
                connection.taking = Some(TAKE_TICKS);
                return self.taking.take(rank, &connection.socket, self.exports);
            }
            _ => return self.lose(rank, TeamFailure::Died { rank: Rank(rank) }),
        };
        match wire::decode::<ToRoot>(packet) {
            Ok((ToRoot::Leave, _)) => self.part_with(rank),
            Ok((said, _)) => self.handle(rank, said, None),
            Err(_) => self.lose(rank, TeamFailure::Protocol { rank: Rank(rank) }),
        }
    }

    /// Handles packets with descriptors that have been received.
    fn receive_taken(&mut self) {
        self.taking.quiet();
        while let Some((rank, passed)) = self.taking.next() {
            let Member::Connected(connection) = &mut self.members[rank as usize] else { continue };
            connection.taking = None;
            match passed {
                Passed::Memory(said, memory) => self.handle(rank, said, Some(memory)),
                Passed::NoMemory(ToRoot::Begin { number, .. }, reason) => {
                    self.handle(rank, ToRoot::Unable { number, reason }, None);
                }
                Passed::NoDescriptor(ToRoot::Begin { number, .. }) => {
                    let reason = format!("in member 0's program, {}", BadFrame::NoDescriptor);
                    self.handle(rank, ToRoot::Unable { number, reason }, None);
                }
                Passed::NoMemory(..) | Passed::NoDescriptor(_) | Passed::Invalid => {
                    self.lose(rank, TeamFailure::Protocol { rank: Rank(rank) });
                }
            }
        }
    }

    /// Handles a member's message about an operation.
    fn handle(&mut self, rank: u32, said: ToRoot, memory: Option<OwnedFd>) {
        match self.operations.handle(rank, said, memory) {
            Ok(()) => self.answer(),
            Err(why) => self.lose(rank, why),
        }
    }

    /// Handles a member that leaves in good order.
    fn part_with(&mut self, rank: u32) {
        self.members[rank as usize] = Member::Gone;
        self.operations.leave(rank);
        self.tell_all(&ToMember::Left { rank });
        self.answer();
    }

    /// Handles the loss of a member, which breaks the team.
    fn lose(&mut self, rank: u32, why: TeamFailure) {
        tracing::warn!(%why, "a team is broken");
        self.members[rank as usize] = Member::Gone;
        self.operations.break_up(&why);
        self.tell_all(&ToMember::Broken { why });
        self.answer();
    }

    fn check_deadlines(&mut self) {
        let now = Instant::now();
        self.arrivals.expire(now);
        if self.rendezvous.is_formed() {
            let missing = self.ranks(|member| matches!(member, Member::Expected));
            if missing.is_empty() {
                self.arrivals.close();
            }
            let is_late = now >= self.deadline;
            // One is enough: the team is broken, and members that come later are told so.
            for rank in missing.into_iter().filter(|_| is_late) {
                self.lose(rank, TeamFailure::Died { rank: Rank(rank) });
            }
        }
        if now >= self.ticked + TICK {
            self.ticked = now;
            self.tick();
        }
        self.operations.check_deadline(now);
        self.answer();
    }

    /// Drops members whose packets could not be received in time.
    fn tick(&mut self) {
        for rank in 0..self.members.len() as u32 {
            let Member::Connected(Connection { taking: Some(left), .. }) = &mut self.members[rank as usize]
            else {
                continue;
            };
            *left -= 1;
            if *left == 0 {
                self.lose(rank, TeamFailure::Protocol { rank: Rank(rank) });
            }
        }
    }

    fn ranks(&self, which: impl Fn(&Member) -> bool) -> Vec<u32> {
        (0..).zip(&self.members).filter_map(|(rank, member)| which(member).then_some(rank)).collect()
    }

    /// Sends the outputs of the operations.
    fn answer(&mut self) {
        while let Some(output) = self.operations.poll_output() {
            let (rank, frame, fd) = &output;
            if !self.send(*rank, frame, fd.as_ref().map(AsFd::as_fd)) {
                // Members receive the descriptors that are in flight, and the next turn continues.
                return self.operations.put_back(output);
            }
        }
    }

    fn tell_all(&mut self, frame: &ToMember) {
        for rank in (0..).take(self.members.len()) {
            self.send(rank, frame, None);
        }
    }

    /// Sends a frame to a member. If the member does not read, the frame is lost, and the member's
    /// own time limit ends its wait; its queue has room for all frames of one operation. Returns
    /// false if too many descriptors of this user are in flight for one more.
    fn send(&self, rank: u32, frame: &ToMember, fd: Option<BorrowedFd<'_>>) -> bool {
        let Some(Member::Connected(Connection { socket, .. })) = self.members.get(rank as usize) else {
            return true;
        };
        let fds: Vec<_> = fd.into_iter().collect();
        match wire::send(socket.as_fd(), &wire::encode(frame), &fds) {
            Err(error) if error.raw_os_error() == Some(libc::ETOOMANYREFS) => return false,
            Err(error) => tracing::debug!(rank, %error, "a member of a team was not told"),
            Ok(()) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests;
