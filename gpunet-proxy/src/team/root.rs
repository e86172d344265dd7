//! The root of a team: the thread in member 0's program at which all members meet.
//!
//! First it waits for a hello of every member, then for each one's connection to its Unix-domain socket, and then it serves
//! what they do together until the last has gone. One thread does all, by `poll`; it never waits for one member.

mod meeting;
mod operations;

use super::TeamOptions;
use super::error::{TeamError, TeamFailure};
use super::frames::{ToMember, ToRoot};
use super::id::{TeamId, random};
use crate::wire::{self, MAX_FRAME};
use gpunet_abi::team::{MAX_MEMBERS, Rank};
use meeting::Meeting;
use operations::Operations;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, listen, socket_with,
};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Connections that may not have said which member they are. Further ones take the place of the oldest.
const MAX_UNKNOWN: usize = 2 * MAX_MEMBERS as usize;
/// How often the root looks at its clock.
const TICK: Duration = Duration::from_millis(50);

/// A place for the members of a team to meet, before there is a team. Member 0 makes it where the address is not known
/// beforehand, and passes its [`id`](Self::id) on.
///
/// # Examples
/// ```
/// use gpunet_proxy::team::TeamListener;
///
/// let listener = TeamListener::bind("127.0.0.1:0".parse()?)?;
/// println!("join {}", listener.id());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TeamListener {
    listener: TcpListener,
    id: TeamId,
}

impl TeamListener {
    /// Binds an address that the other members can reach; port 0 takes a free one.
    ///
    /// # Errors
    /// The system's; InvalidInput, for an address that stands for all of the machine's.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = Self::listener(address)?;
        let id = TeamId::new(listener.local_addr()?)?;
        Ok(Self { listener, id })
    }

    /// Binds the address of an id.
    ///
    /// # Errors
    /// As [`TeamListener::bind`].
    pub fn with_id(id: TeamId) -> io::Result<Self> {
        Ok(Self { listener: Self::listener(id.address())?, id })
    }

    fn listener(address: SocketAddr) -> io::Result<TcpListener> {
        if address.ip().is_unspecified() {
            let text = "members cannot connect to an unspecified address; name one of this machine's";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Returns what the other members join by.
    #[must_use]
    pub const fn id(&self) -> TeamId {
        self.id
    }

    /// Starts the root's thread for a team of `size` members. It ends with the last of them.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(self, size: u32, options: &TeamOptions) -> Result<(), TeamError> {
        self.start_part(size, options, Box::new(|| None))
    }

    /// As [`TeamListener::start`], for a part of a team: `obstacle` says why not all can come to the meeting, as that team knows.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start_part(
        self,
        size: u32,
        options: &TeamOptions,
        obstacle: Obstacle,
    ) -> Result<(), TeamError> {
        let (name, unix) = local_socket().map_err(TeamError::io("cannot make a socket for the team"))?;
        let key = random().map_err(TeamError::io("cannot make a key for the team"))?;
        let meeting = Meeting::new(self.listener, self.id.nonce(), size, options);
        let root = Root {
            meeting,
            unix,
            name,
            key,
            // Of those who have not said which member they are.
            unknown: Vec::new(),
            members: (0..size).map(|_| Member::Expected).collect(),
            operations: Operations::new(size, options.timeout),
            deadline: Instant::now() + options.timeout,
            obstacle,
        };
        let thread = std::thread::Builder::new().name("gpunet-team-root".to_owned());
        thread.spawn(move || root.run()).map_err(TeamError::io("cannot start a thread for the team"))?;
        Ok(())
    }
}

/// An abstract Unix-domain socket with a name of its own, which listens.
fn local_socket() -> io::Result<(String, OwnedFd)> {
    let name = format!("gpunet-team-{:032x}", random()?);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    listen(&socket, 128)?;
    Ok((name, socket))
}

/// One member's connection.
#[derive(Debug)]
enum Member {
    /// It has not connected yet.
    Expected,
    Connected(OwnedFd),
    /// It has left, or died.
    Gone,
}

struct Root {
    meeting: Meeting,
    unix: OwnedFd,
    name: String,
    key: u128,
    unknown: Vec<OwnedFd>,
    members: Vec<Member>,
    operations: Operations,
    /// When all must have connected.
    deadline: Instant,
    obstacle: Obstacle,
}

/// Says why not all members can come to the meeting, if that is known.
pub(super) type Obstacle = Box<dyn Fn() -> Option<TeamFailure> + Send>;

/// What a descriptor that `poll` watches belongs to.
#[derive(Clone, Copy)]
enum Source {
    Listener,
    Stranger,
    Unix,
    Unknown,
    /// The connection over which a member has met the others.
    Met(u32),
    Member(u32),
}

impl Root {
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
                    Source::Listener => self.meeting.accept(),
                    Source::Stranger => self.meeting.hear(),
                    Source::Unix => self.accept(),
                    Source::Unknown => self.hear_unknown(&mut buffer),
                    Source::Met(rank) => self.part_at_the_meeting(rank, &mut buffer),
                    Source::Member(rank) => self.hear_member(rank, &mut buffer),
                }
            }
            if !self.meeting.is_formed()
                && let Some(why) = (self.obstacle)()
            {
                self.meeting.fail(why);
                self.meeting.end_soon();
            }
            if self.meeting.conclude(&self.name, self.key) {
                self.deadline = Instant::now() + self.operations.timeout();
            }
            self.check_deadlines();
        }
        Ok(())
    }

    /// The team has failed to form, or all have gone.
    fn is_over(&self) -> bool {
        let all_gone = self.members.iter().all(|member| matches!(member, Member::Gone));
        all_gone || self.meeting.has_failed()
    }

    fn poll(&self) -> io::Result<Vec<Source>> {
        let mut watched: Vec<(Source, BorrowedFd<'_>)> = vec![(Source::Listener, self.meeting.listener())];
        watched.extend(self.meeting.strangers().map(|socket| (Source::Stranger, socket)));
        watched.extend(self.meeting.met().map(|(rank, socket)| (Source::Met(rank), socket)));
        watched.push((Source::Unix, self.unix.as_fd()));
        watched.extend(self.unknown.iter().map(|socket| (Source::Unknown, socket.as_fd())));
        for (rank, member) in (0..).zip(&self.members) {
            if let Member::Connected(socket) = member {
                watched.push((Source::Member(rank), socket.as_fd()));
            }
        }
        let mut fds: Vec<_> =
            watched.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as _ };
        rustix::io::retry_on_intr(|| poll(&mut fds, Some(&tick)))?;
        let ready = fds.iter().zip(&watched).filter(|(fd, _)| !fd.revents().is_empty());
        Ok(ready.map(|(_, (source, _))| *source).collect())
    }

    /// Takes all who have connected.
    fn accept(&mut self) {
        while let Ok(socket) = acceptfrom(&self.unix) {
            if self.unknown.len() == MAX_UNKNOWN {
                self.unknown.remove(0);
            }
            self.unknown.push(socket);
        }
    }

    /// A member's connection to the meeting has ended: it has said at the other socket that it is there, or it is dead.
    fn part_at_the_meeting(&mut self, rank: u32, buffer: &mut [u8]) {
        if !self.meeting.is_formed() {
            // The others need not wait for those who are still to come.
            return self.meeting.fail(TeamFailure::Died { rank: Rank(rank) });
        }
        self.meeting.forget(rank);
        self.accept();
        self.hear_unknown(buffer);
        if matches!(self.members[rank as usize], Member::Expected) {
            self.lose(rank, TeamFailure::Died { rank: Rank(rank) });
        }
    }

    /// Those who have connected say which member they are, or are sent away.
    fn hear_unknown(&mut self, buffer: &mut [u8]) {
        for socket in std::mem::take(&mut self.unknown) {
            let packet = match wire::recv(socket.as_fd(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unknown.push(socket);
                    continue;
                }
                Ok(Some(packet)) => packet,
                _ => continue,
            };
            let Ok((ToRoot::Here { key, rank }, _)) = wire::decode::<ToRoot>(packet) else { continue };
            let place = self.members.get_mut(rank as usize);
            if let (true, Some(place @ Member::Expected)) = (key == self.key, place) {
                *place = Member::Connected(socket);
                if let Some(why) = self.operations.broken() {
                    self.send(rank, &ToMember::Broken { why }, None);
                }
            }
        }
    }

    /// A packet of a member, or its end.
    fn hear_member(&mut self, rank: u32, buffer: &mut [u8]) {
        let Member::Connected(socket) = &self.members[rank as usize] else { return };
        let packet = match wire::recv(socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(Some(packet)) => packet,
            _ => return self.lose(rank, TeamFailure::Died { rank: Rank(rank) }),
        };
        match wire::decode::<ToRoot>(packet) {
            Ok((ToRoot::Leave, _)) => self.part_with(rank),
            Ok((ToRoot::Here { .. }, _)) | Err(_) => {
                self.lose(rank, TeamFailure::Protocol { rank: Rank(rank) })
            }
            Ok((said, fds)) => match self.operations.handle(rank, said, fds.into_iter().next()) {
                Ok(()) => self.answer(),
                Err(why) => self.lose(rank, why),
            },
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
        let expected = |(rank, member)| matches!(member, &Member::Expected).then_some(rank);
        if self.meeting.is_formed() && now >= self.deadline {
            let missing: Vec<u32> = (0..).zip(&self.members).filter_map(expected).collect();
            // One is enough: the team is broken, and who comes now is told.
            for rank in missing {
                self.lose(rank, TeamFailure::Died { rank: Rank(rank) });
            }
        }
        self.operations.check_deadline(now);
        self.answer();
    }

    /// Sends what the operations have to say.
    fn answer(&mut self) {
        while let Some((rank, frame, fd)) = self.operations.poll_output() {
            self.send(rank, &frame, fd.as_ref().map(AsFd::as_fd));
        }
    }

    fn tell_all(&mut self, frame: &ToMember) {
        for rank in (0..).take(self.members.len()) {
            self.send(rank, frame, None);
        }
    }

    /// A member that reads nothing is told nothing: its own limit ends what it waits for. Its queue has room for all that
    /// one operation can say.
    fn send(&self, rank: u32, frame: &ToMember, fd: Option<BorrowedFd<'_>>) {
        let Some(Member::Connected(socket)) = self.members.get(rank as usize) else { return };
        let fds: Vec<_> = fd.into_iter().collect();
        if let Err(error) = wire::send(socket.as_fd(), &wire::encode(frame), &fds) {
            tracing::debug!(rank, %error, "a member of a team was not told");
        }
    }
}

fn acceptfrom(listener: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    acceptfrom_with(listener, flags).map(|(socket, _)| socket)
}

#[cfg(test)]
mod tests;
