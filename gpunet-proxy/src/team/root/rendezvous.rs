//! The hellos of all members, over TCP.

use super::accept::{ACCEPTS, BACKLOG, SPEAK_WITHIN, accepted, pause};
use crate::team::TeamOptions;
use crate::team::error::TeamFailure;
use crate::team::frames::{Answer, DeviceKind, Hello, PROTOCOL, Placement, decode_greeting, encode_greeting};
use gpunet_abi::team::{MAX_MEMBERS, Rank};
use rustix::net::listen;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

/// The most connections that have not said hello yet. A further one replaces the oldest that has
/// sent nothing.
const MAX_PENDING: usize = 2 * MAX_MEMBERS as usize;

/// Where members say hello. Members that come too late are refused.
#[derive(Debug)]
pub(super) struct Rendezvous {
    listener: TcpListener,
    nonce: u128,
    size: u32,
    signals: u32,
    /// In a part of a team: the secrets that each member shares with the first of them, by rank.
    /// Else empty.
    secrets: Vec<u128>,
    deadline: Instant,
    pending: Vec<PendingConnection>,
    members: Vec<Option<(TcpStream, Hello)>>,
    state: State,
    /// Members that were told of a failure.
    told: u32,
    /// No connection is accepted before then, because descriptors have run out.
    paused: Option<Instant>,
}

#[derive(Debug)]
enum State {
    Gathering,
    /// All have said hello, or one of them makes a team impossible.
    Decided(Option<TeamFailure>),
    Formed,
    /// Later members are told the same, until all have been told, or the timeout expires.
    Failed(TeamFailure),
}

/// A connection that has not said hello yet.
#[derive(Debug)]
struct PendingConnection {
    socket: TcpStream,
    bytes: Vec<u8>,
    since: Instant,
}

impl Rendezvous {
    /// # Errors
    /// The system's.
    pub(super) fn new(
        listener: TcpListener,
        nonce: u128,
        size: u32,
        options: &TeamOptions,
        secrets: Vec<u128>,
    ) -> io::Result<Self> {
        // The backlog has room for members in addition to other connections.
        listen(&listener, BACKLOG)?;
        Ok(Self {
            listener,
            nonce,
            size,
            signals: options.signals,
            secrets,
            deadline: Instant::now() + options.timeout,
            pending: Vec::new(),
            members: (0..size).map(|_| None).collect(),
            state: State::Gathering,
            told: 0,
            paused: None,
        })
    }

    /// Returns the listening socket, unless accepting is paused.
    pub(super) fn listener(&self) -> Option<BorrowedFd<'_>> {
        let is_paused = self.paused.is_some_and(|until| Instant::now() < until);
        (!is_paused).then(|| self.listener.as_fd())
    }

    pub(super) fn pending(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.pending.iter().map(|connection| connection.socket.as_fd())
    }

    pub(super) const fn is_formed(&self) -> bool {
        matches!(self.state, State::Formed)
    }

    /// Returns whether a deadline is pending: for members to come, for connections to send a hello,
    /// or for the end of a pause in accepting.
    pub(super) fn is_timed(&self) -> bool {
        !self.is_formed() || !self.pending.is_empty() || self.listener().is_none()
    }

    /// Returns whether the team has failed, and all have been told.
    pub(super) fn has_failed(&self) -> bool {
        let is_over = self.told >= self.size || Instant::now() >= self.deadline;
        matches!(self.state, State::Failed(_)) && is_over
    }

    /// Accepts some new connections.
    pub(super) fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let socket = match accepted(self.listener.accept()) {
                Ok(None) => return,
                Ok(Some((socket, _))) => socket,
                Err(error) => {
                    self.paused = Some(pause(&error));
                    return;
                }
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.pending.len() == MAX_PENDING {
                self.receive();
            }
            if self.pending.len() == MAX_PENDING {
                // A member that has not sent anything yet tries again.
                let silent = self.pending.iter().position(|connection| connection.bytes.is_empty());
                self.pending.remove(silent.unwrap_or(0));
            }
            self.pending.push(PendingConnection { socket, bytes: Vec::new(), since: Instant::now() });
        }
    }

    /// Receives the hellos of pending connections.
    pub(super) fn receive(&mut self) {
        for mut connection in std::mem::take(&mut self.pending) {
            match connection.receive() {
                Ok(None) => self.pending.push(connection),
                Ok(Some(hello)) => self.consider(connection.socket, hello),
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    let its = error.to_string().parse().unwrap_or(0);
                    refuse(connection.socket, &TeamFailure::WrongVersion { its, ours: PROTOCOL });
                }
                Err(_) => {}
            }
        }
    }

    fn consider(&mut self, socket: TcpStream, hello: Hello) {
        if hello.nonce != self.nonce {
            return refuse(socket, &TeamFailure::WrongId);
        }
        // The program that sent this hello is not that member.
        if !self.secrets.is_empty() && self.secrets.get(hello.rank as usize) != Some(&hello.secret) {
            return refuse(socket, &TeamFailure::WrongId);
        }
        // From here on an error is one of this team: all are told.
        let why = match &self.state {
            State::Gathering => self.mistake(&hello),
            State::Decided(Some(why)) | State::Failed(why) => Some(why.clone()),
            State::Decided(None) | State::Formed => return refuse(socket, &TeamFailure::Complete),
        };
        if let Some(why) = why {
            self.told += 1;
            refuse(socket, &why);
            if matches!(self.state, State::Gathering) {
                self.state = State::Decided(Some(why));
            }
            return;
        }
        let rank = hello.rank as usize;
        self.members[rank] = Some((socket, hello));
        if self.members.iter().all(Option::is_some) {
            self.state = State::Decided(self.known_failure());
        }
    }

    fn mistake(&self, hello: &Hello) -> Option<TeamFailure> {
        let rank = hello.rank;
        let unequal = |what: &str, its: u32, ours: u32| {
            let (its, ours) = (u64::from(its), u64::from(ours));
            (its != ours).then(|| TeamFailure::Unequal { rank: Rank(rank), what: what.to_owned(), its, ours })
        };
        unequal("size", hello.size, self.size)
            .or_else(|| unequal("number of signals", hello.signals, self.signals))
            .or_else(|| {
                (rank >= self.size).then_some(TeamFailure::NoSuchRank { rank: Rank(rank), size: self.size })
            })
            .or_else(|| {
                self.members[rank as usize].is_some().then_some(TeamFailure::SameRank { rank: Rank(rank) })
            })
    }

    fn hellos(&self) -> impl Iterator<Item = &Hello> {
        self.members.iter().flatten().map(|(_, hello)| hello)
    }

    /// Returns why the members, now that all are there, cannot map each other's memory.
    fn known_failure(&self) -> Option<TeamFailure> {
        let machine = self.hellos().map(|hello| &hello.machine).next();
        let other = self.hellos().find(|hello| Some(&hello.machine) != machine);
        other.map(|hello| TeamFailure::OtherMachine { rank: Rank(hello.rank) })
    }

    /// Returns where the parts of the members can lie, now that all are there.
    fn placement(&self) -> Placement {
        let all_share = self.hellos().all(|hello| hello.device == DeviceKind::Gpu(Ok(())));
        if all_share { Placement::Gpu } else { Placement::Pinned }
    }

    /// Returns the connections of members that have said hello and have not come to the root's
    /// other socket yet. They send nothing more: a connection becomes readable only when it ends.
    pub(super) fn met(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        let is_open = matches!(self.state, State::Gathering | State::Formed);
        let met = (0..).zip(&self.members).filter(move |_| is_open);
        met.filter_map(|(rank, member)| Some((rank, member.as_ref()?.0.as_fd())))
    }

    /// Fails the team, if it is still gathering its members.
    pub(super) fn fail(&mut self, why: TeamFailure) {
        if matches!(self.state, State::Gathering) {
            self.state = State::Decided(Some(why));
        }
    }

    /// Shortens the time in which late members are told of a failure: not all will come, and those
    /// that come later learn the reason elsewhere.
    pub(super) fn end_soon(&mut self) {
        self.deadline = self.deadline.min(Instant::now() + SPEAK_WITHIN);
    }

    /// Closes the connection of a member that has come to the other socket, or is gone.
    pub(super) fn forget(&mut self, rank: u32) {
        self.members[rank as usize] = None;
    }

    /// Tells all members the decision, or that the timeout has expired. Returns where their parts
    /// lie if the team has formed just now.
    pub(super) fn conclude(&mut self, name: &str, key: impl Fn(u32) -> u128) -> Option<Placement> {
        let now = Instant::now();
        self.pending.retain(|connection| now < connection.since + SPEAK_WITHIN);
        if matches!(self.state, State::Gathering) && now >= self.deadline {
            let missing = (0..).map(Rank).zip(&self.members).filter(|(_, member)| member.is_none());
            let ranks = missing.map(|(rank, _)| rank).collect();
            self.state = State::Decided(Some(TeamFailure::Missing { ranks }));
        }
        let State::Decided(why) = &self.state else { return None };
        let (why, placement) = (why.clone(), self.placement());
        let is_polled = self.hellos().any(|hello| hello.device != DeviceKind::Cpu);
        for (member, hello) in self.members.iter_mut().flatten() {
            let answer = match &why {
                Some(why) => Answer::Refused(why.clone()),
                None => {
                    Answer::Formed { socket: name.to_owned(), key: key(hello.rank), placement, is_polled }
                }
            };
            tell(member, &answer);
        }
        let Some(why) = why else {
            // Their connections show whether they are alive.
            self.state = State::Formed;
            return Some(placement);
        };
        self.state = State::Failed(why);
        self.told += self.members.drain(..).flatten().count() as u32;
        None
    }
}

impl PendingConnection {
    fn receive(&mut self) -> io::Result<Option<Hello>> {
        let mut bytes = [0; 1024];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => self.bytes.extend(&bytes[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some(hello) = decode_greeting(&self.bytes)? {
                return Ok(Some(hello));
            }
        }
    }
}

fn refuse(mut socket: TcpStream, why: &TeamFailure) {
    tell(&mut socket, &Answer::Refused(why.clone()));
}

/// Sends an answer, which fits into the empty send buffer of a connection.
fn tell(socket: &mut TcpStream, answer: &Answer) {
    if let Err(error) = socket.write_all(&encode_greeting(answer)) {
        tracing::debug!(%error, "one who wanted to join a team was not told");
    }
}
