//! The root of a team: the thread in member 0's program at which all members meet.
//!
//! First it waits for a hello of every member (`rendezvous`), then for each one's connection to its
//! Unix-domain socket (`arrivals`), and then it serves what they do together (`operations`) until
//! the last has gone. One thread does all, by `poll`; it never waits for one member, and takes no
//! descriptor itself (`passed`). Strangers can connect to both sockets: in each turn it takes a few
//! connections, and hears all members. While they do nothing together it sleeps until it hears
//! something.
//!
//! It is a thread, as that of a [member](super::member) is, and no task of the proxy's runtime. A
//! program that has attached to a daemon has no runtime. That of an embedded proxy is the control
//! plane's, by whose turns the heartbeat knows that the proxy lives, while a member's thread waits
//! for copies into a GPU's memory and for descriptors. And a team outlives its proxy.
//!
//! | file | holds |
//! |---|---|
//! | `listener`, `accept` | where members meet before there is a team; taking connections, a few at a time |
//! | `rendezvous` | the hellos of all members |
//! | `arrivals` | connections that have not said yet which member they are |
//! | `operations` | what members do together: a state machine |
//! | `taking` | what members pass, received on threads of theirs |

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

/// How often the root looks at its clock while something may end by it.
const TICK: Duration = Duration::from_millis(50);
/// How long it may take to receive a descriptor. In ticks: a program that was stopped has not
/// waited.
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
    /// What it has passed is being received: for how many ticks it may still be. Nothing else is
    /// read from it meanwhile.
    taking: Option<u32>,
}

struct Root {
    rendezvous: Rendezvous,
    arrivals: Arrivals,
    secrets: Secrets,
    members: Vec<Member>,
    /// By what descriptors of GPU memory are known, until it is settled that members have none:
    /// then they pass memfds.
    exports: Option<ExportCheck>,
    taking: Taking,
    operations: Operations,
    /// When all must have connected.
    deadline: Instant,
    /// When the clock was looked at last.
    ticked: Instant,
    known_failure: KnownFailure,
}

/// Says why not all members can come to the rendezvous, if that is known.
pub(super) type KnownFailure = Box<dyn Fn() -> Option<TeamFailure> + Send>;

/// What a descriptor that `poll` watches belongs to.
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
            // Its sockets are closed with it, by which all members know.
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

    /// The team has failed to form, or all have gone.
    fn is_over(&self) -> bool {
        let all_gone = self.members.iter().all(|member| matches!(member, Member::Gone));
        all_gone || self.rendezvous.has_failed()
    }

    /// Returns whether anything may end by the clock. While members do nothing together, the root
    /// sleeps until it hears something.
    fn is_timed(&self) -> bool {
        let is_awaited = |member: &Member| match member {
            Member::Expected => true,
            Member::Connected(connection) => connection.taking.is_some(),
            Member::Gone => false,
        };
        self.rendezvous.is_timed() || self.operations.is_timed() || self.members.iter().any(is_awaited)
    }

    /// Waits until something is to be done, for a short time if there may be something to be done
    /// by the clock.
    fn poll(&self) -> io::Result<Vec<Source>> {
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
        // Before the listener: what waits until it takes connections again is timed.
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

    /// Hears who has connected, and takes those as members who know what only that member does.
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
            // The others need not wait for those who are still to come.
            return self.rendezvous.fail(TeamFailure::Died { rank: Rank(rank) });
        }
        self.rendezvous.forget(rank);
        if matches!(self.members[rank as usize], Member::Expected) {
            self.lose(rank, TeamFailure::Died { rank: Rank(rank) });
        }
    }

    /// A packet of a member, or its end.
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

    /// What members have passed has been received.
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

    /// What a member says of an operation.
    fn handle(&mut self, rank: u32, said: ToRoot, memory: Option<OwnedFd>) {
        match self.operations.handle(rank, said, memory) {
            Ok(()) => self.answer(),
            Err(why) => self.lose(rank, why),
        }
    }

    /// A member leaves in good order.
    fn part_with(&mut self, rank: u32) {
        self.members[rank as usize] = Member::Gone;
        self.operations.leave(rank);
        self.tell_all(&ToMember::Left { rank });
        self.answer();
    }

    /// A member is lost, and with it the team.
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
            // One is enough: the team is broken, and who comes now is told.
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

    /// Loses who has passed what nobody can receive.
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

    /// Sends what the operations have to say.
    fn answer(&mut self) {
        while let Some(output) = self.operations.poll_output() {
            let (rank, frame, fd) = &output;
            if !self.send(*rank, frame, fd.as_ref().map(AsFd::as_fd)) {
                // Members take what is under way, and the next turn goes on.
                return self.operations.put_back(output);
            }
        }
    }

    fn tell_all(&mut self, frame: &ToMember) {
        for rank in (0..).take(self.members.len()) {
            self.send(rank, frame, None);
        }
    }

    /// A member that reads nothing is told nothing: its own limit ends what it waits for. Its queue
    /// has room for all that one operation can say. Returns false if too many descriptors of this
    /// user are under way for one more.
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
