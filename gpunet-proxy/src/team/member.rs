//! A member's connection to the root of its team, and the thread that watches it.

use super::error::{Collective, TeamError, TeamFailure};
use super::frames::{ToMember, ToRoot};
use super::joining::Entered;
use super::memory::{Part, SharedMemory};
use super::passed::{Passed, TAKE_WITHIN, take};
use super::secrets::OwnSecrets;
use crate::attached::session::MAX_REASON;
use crate::os::client_socket::ClientSocket;
use crate::os::descriptors::hint;
use crate::os::user_work::UserWork;
use crate::wire::{self, BadFrame, Incoming, MAX_FRAME};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gpu_usermap::cuda::ExportCheck;
use gpu_usermap::threads;
use gpunet_abi::Error;
use gpunet_abi::team::{BlockLayout, MAX_MEMBERS, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The most answers of the root that this member has not read yet: those of an operation that it
/// has given up, and of one that is under way.
const MAX_ANSWERS: usize = 4 * MAX_MEMBERS as usize;

/// The state of the team, and the block in which kernels read it.
#[derive(Debug, Default)]
struct Fate {
    broken: Option<TeamFailure>,
    /// This member's program has dropped the team, while queues still use it.
    is_closed: bool,
    /// The connection to the root has ended.
    is_disconnected: bool,
    /// The members known to have died, and the members that have left in good order: a bit for each
    /// rank.
    died: u64,
    left: u64,
    block: Option<(Arc<SharedMemory>, Rank, BlockLayout)>,
}

impl Fate {
    /// Returns why no wait can succeed, if none can.
    fn broken(&self) -> Option<Error> {
        let closed = self.is_closed.then_some(Error::NotConnected);
        self.broken.as_ref().map(|_| Error::ConnectionReset).or(closed)
    }

    /// Publishes the state to this member's kernels.
    fn show(&self) {
        let Some((blocks, rank, layout)) = &self.block else { return };
        let block = &blocks.parts[rank.0 as usize];
        let broken = self.broken().map_or(0, |error| error.errno() as u64);
        for (offset, value) in [(layout.left, self.left), (layout.broken, broken)] {
            if value != 0
                && let Err(error) = block.publish(offset, value)
            {
                tracing::error!(%error, "kernels are not told what became of their team");
            }
        }
    }
}

/// A member's side of its connection.
#[derive(Debug)]
pub(super) struct Member {
    socket: Arc<ClientSocket>,
    fate: Arc<Mutex<Fate>>,
    calls: Mutex<Calls>,
    limit: Duration,
    size: u32,
    /// In a part of a team: the members' ranks in the team that was joined. Else empty.
    joined: Vec<Rank>,
    secrets: OwnSecrets,
    thread: Option<JoinHandle<()>>,
}

/// The operations of this member with the others so far. Its lock is held during one operation.
#[derive(Debug)]
struct Calls {
    number: u64,
    answers: Receiver<Answered>,
}

/// The root's answer to an operation.
#[derive(Debug)]
enum Answered {
    /// Another member's memory, or why it could not be received.
    Part {
        number: u64,
        part: Result<Part, String>,
    },
    Agreed {
        number: u64,
        bytes: Vec<Vec<u8>>,
    },
    Done {
        number: u64,
    },
    Failed {
        number: u64,
        why: TeamFailure,
    },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves at most an operation that failed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Starts the thread that watches the connection. If the members' memory is that of GPUs,
    /// `exports` checks that a descriptor is such memory.
    ///
    /// # Errors
    /// [`TeamError::Io`].
    pub(super) fn new(
        entered: Entered,
        size: u32,
        limit: Duration,
        exports: Option<ExportCheck>,
        joined: Vec<Rank>,
    ) -> Result<Self, TeamError> {
        let Entered { socket, secrets, .. } = entered;
        let work = Arc::<UserWork>::default();
        let socket = Arc::new(ClientSocket::new(socket, 0, work.clone()));
        socket.take_descriptors();
        let fate = Arc::<Mutex<Fate>>::default();
        let (answered, answers) = crossbeam_channel::bounded(MAX_ANSWERS);
        let watch = Watch { socket: socket.clone(), fate: fate.clone(), answered, work, exports };
        let thread = threads::spawn("gpunet-team", move || watch.run());
        let thread = thread.map_err(TeamError::io("cannot start a thread for the team"))?;
        let calls = Mutex::new(Calls { number: 0, answers });
        Ok(Self { socket, fate, calls, limit, size, joined, secrets, thread: Some(thread) })
    }

    /// Returns the secret that this member shares with another one, or with itself. No third member
    /// knows it.
    pub(super) fn secret(&self, other: Rank) -> u128 {
        self.secrets.with(other)
    }

    /// Returns the ranks, in the team that was joined, of the members with these ranks here.
    pub(super) fn joined(&self, ranks: &[Rank]) -> Vec<Rank> {
        ranks.iter().map(|rank| self.joined.get(rank.0 as usize).copied().unwrap_or(*rank)).collect()
    }

    /// Adds the members' ranks in the team that was joined to an error of this team.
    pub(super) fn named(&self, error: TeamError) -> TeamError {
        error.named(&self.joined)
    }

    /// Sets the block in which kernels read the state of the team.
    pub(super) fn show_in(&self, blocks: Arc<SharedMemory>, rank: Rank, layout: BlockLayout) {
        let mut fate = lock(&self.fate);
        fate.block = Some((blocks, rank, layout));
        fate.show();
    }

    /// Returns why the team is broken, if it is.
    pub(super) fn broken(&self) -> Option<TeamFailure> {
        lock(&self.fate).broken.clone()
    }

    /// Returns a function that returns why `members` cannot meet, if that is known: one of them has
    /// died, the connection that reports deaths has ended, or this member, whose rank is `rank`,
    /// has left: [`TeamFailure::InParent`]. The function keeps no part of the team alive.
    pub(super) fn known_failure(
        &self,
        rank: Rank,
        members: &[u32],
    ) -> impl Fn() -> Option<TeamFailure> + Clone + Send + use<> {
        let (fate, members) = (Arc::downgrade(&self.fate), members.to_vec());
        move || {
            let known = || {
                let Some(fate) = fate.upgrade() else { return Some(TeamFailure::Left { rank }) };
                let fate = lock(&fate);
                let dead = members.iter().find(|&&rank| fate.died >> rank & 1 != 0);
                let orphaned = if fate.is_disconnected { fate.broken.clone() } else { None };
                dead.map(|&rank| TeamFailure::Died { rank: Rank(rank) }).or(orphaned)
            };
            known().map(|failure| TeamFailure::InParent(Box::new(failure)))
        }
    }

    /// Returns why a wait for a member cannot succeed, if it cannot, as its kernels see it.
    pub(super) fn wait_failure(&self, source: Rank) -> Option<Error> {
        let fate = lock(&self.fate);
        let has_left = fate.left.checked_shr(source.0).unwrap_or(0) & 1 != 0;
        fate.broken().or(has_left.then_some(Error::NotConnected))
    }

    /// Ends the waits of this member's queues when their team is dropped.
    pub(super) fn close(&self) {
        let mut fate = lock(&self.fate);
        fate.is_closed = true;
        fate.show();
    }

    /// Carries out an operation of all members, without memory. Returns the bytes of all.
    ///
    /// # Errors
    /// [`TeamError`].
    pub(super) fn together(&self, what: Collective, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TeamError> {
        self.do_together(what, bytes).map_err(|error| self.named(error))
    }

    fn do_together(&self, what: Collective, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TeamError> {
        let mut calls = lock(&self.calls);
        let begin = |number| ToRoot::Begin { number, what, bytes: bytes.to_vec() };
        let number = self.begin(&mut calls, begin, None)?;
        let bytes = self.await_agreement(&calls, number, drop)?;
        if bytes.len() == self.size as usize {
            Ok(bytes)
        } else {
            Err(TeamFailure::Protocol { rank: Rank(0) }.into())
        }
    }

    /// As [`together`](Self::together), if this member is able to; otherwise the operation fails
    /// for all.
    pub(super) fn together_if(&self, able: Result<(), String>, what: Collective) -> Result<(), TeamError> {
        match able {
            Ok(()) => self.together(what, &[]).map(drop),
            Err(reason) => Err(self.named(self.unable(&mut lock(&self.calls), &reason))),
        }
    }

    /// Carries out an operation of all members in which each shares its memory. `make` creates this
    /// member's memory and a descriptor of it, `own` starts with it, `add` maps each other member's
    /// memory when it arrives, and `all` finishes.
    ///
    /// # Errors
    /// [`TeamError`]: no member has the memory then.
    pub(super) fn share<M, P, R>(
        &self,
        what: Collective,
        make: impl FnOnce() -> Result<(M, OwnedFd, u64), String>,
        own: impl FnOnce(M) -> P,
        mut add: impl FnMut(&mut P, Part) -> Result<(), String>,
        all: impl FnOnce(P) -> Result<R, String>,
    ) -> Result<R, TeamError> {
        let mut calls = lock(&self.calls);
        let (memory, fd, mapped_len) = match make() {
            Ok(made) => made,
            Err(reason) => return Err(self.unable(&mut calls, &reason)),
        };
        let bytes = mapped_len.to_le_bytes().to_vec();
        let begin = |number| ToRoot::Begin { number, what, bytes };
        let number = match self.begin(&mut calls, begin, Some(fd.as_fd())) {
            Err(TeamError::Io { source, .. }) => {
                return Err(self.unable(&mut calls, &format!("{source}{}", hint(&source))));
            }
            number => number?,
        };
        drop(fd);
        let mut parts = Ok(own(memory));
        self.await_agreement(&calls, number, |part| {
            let added = parts.as_mut().map_or(Ok(()), |parts| add(parts, part?));
            // If several fail, the first one gives the reason.
            if let Err(reason) = added {
                parts = Err(reason);
            }
        })?;
        let (result, mapped) = match parts.and_then(all) {
            Ok(result) => (Some(result), Ok(())),
            Err(reason) => (None, Err(shortened(&reason))),
        };
        let reason = mapped.clone().err().unwrap_or_default();
        self.send(&ToRoot::Mapped { number, result: mapped }, None)?;
        match self.next(&calls, number)? {
            Answered::Done { .. } => result.ok_or(TeamError::Memory(reason)),
            _ => Err(TeamFailure::Protocol { rank: Rank(0) }.into()),
        }
    }

    /// Takes part in an allocation for which this member has no memory.
    fn unable(&self, calls: &mut Calls, reason: &str) -> TeamError {
        let reason = shortened(reason);
        let unable = |number| ToRoot::Unable { number, reason: reason.clone() };
        let agreed =
            self.begin(calls, unable, None).and_then(|number| self.await_agreement(calls, number, drop));
        agreed.err().unwrap_or(TeamError::Memory(reason))
    }

    /// Begins the next operation. Returns its number, which is used only if the root receives it.
    fn begin(
        &self,
        calls: &mut Calls,
        frame: impl FnOnce(u64) -> ToRoot,
        fd: Option<BorrowedFd<'_>>,
    ) -> Result<u64, TeamError> {
        let number = calls.number + 1;
        self.send(&frame(number), fd)?;
        calls.number = number;
        Ok(number)
    }

    fn await_agreement(
        &self,
        calls: &Calls,
        number: u64,
        mut part_has_come: impl FnMut(Result<Part, String>),
    ) -> Result<Vec<Vec<u8>>, TeamError> {
        loop {
            match self.next(calls, number)? {
                Answered::Part { part, .. } => part_has_come(part),
                Answered::Agreed { bytes, .. } => return Ok(bytes),
                Answered::Done { .. } | Answered::Failed { .. } => {
                    return Err(TeamFailure::Protocol { rank: Rank(0) }.into());
                }
            }
        }
    }

    /// Returns the root's next answer to an operation.
    fn next(&self, calls: &Calls, number: u64) -> Result<Answered, TeamError> {
        loop {
            match calls.answers.recv_timeout(self.limit) {
                Ok(Answered::Failed { number: of, why }) if of == number => return Err(why.into()),
                Ok(answer) if answer.number() == number => return Ok(answer),
                // An answer to an operation that this member has given up.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(TeamError::Silent(self.limit)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            }
        }
    }

    /// Returns why there is no connection.
    fn end(&self) -> TeamError {
        self.broken().unwrap_or(TeamFailure::Died { rank: Rank(0) }).into()
    }

    fn send(&self, frame: &ToRoot, fd: Option<BorrowedFd<'_>>) -> Result<(), TeamError> {
        let fds: Vec<_> = fd.into_iter().collect();
        wire::send(self.socket.as_fd(), &wire::encode(frame), &fds).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => TeamError::Silent(Duration::ZERO),
            _ if error.raw_os_error() == Some(libc::ETOOMANYREFS) => {
                TeamError::io("cannot pass a file descriptor to the team")(error)
            }
            _ => self.end(),
        })
    }
}

/// Shortens a reason of this member for the others.
fn shortened(reason: &str) -> String {
    reason.chars().take(MAX_REASON).collect()
}

impl Answered {
    const fn number(&self) -> u64 {
        match self {
            Self::Part { number, .. }
            | Self::Agreed { number, .. }
            | Self::Done { number }
            | Self::Failed { number, .. } => *number,
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.send(&ToRoot::Leave, None);
        self.socket.shut_down();
        if let Some(thread) = self.thread.take() {
            // It ends with the connection. A panic in it was logged by the runtime.
            let _ = thread.join();
        }
    }
}

/// The thread that receives the root's messages.
struct Watch {
    socket: Arc<ClientSocket>,
    fate: Arc<Mutex<Fate>>,
    answered: Sender<Answered>,
    work: Arc<UserWork>,
    exports: Option<ExportCheck>,
}

impl Watch {
    fn run(self) {
        let mut buffer = vec![0; MAX_FRAME];
        let end = loop {
            if let Err(why) = self.receive(&mut buffer) {
                break why;
            }
        };
        // The root has gone, and no other thread reports deaths; or this member leaves, and no
        // kernel reads the state now.
        self.change(|fate| {
            fate.is_disconnected = true;
            fate.broken.get_or_insert(end);
        });
    }

    /// Receives one packet.
    ///
    /// # Errors
    /// The connection has ended, and why.
    fn receive(&self, buffer: &mut [u8]) -> Result<(), TeamFailure> {
        let died = || TeamFailure::Died { rank: Rank(0) };
        let protocol = || TeamFailure::Protocol { rank: Rank(0) };
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None)).map_err(|_| died())?;
        let packet = match wire::recv_plain(self.socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Ok(Some(Incoming::Plain(packet))) => packet,
            Ok(Some(Incoming::WithDescriptors)) => {
                let answered = self.take().ok_or_else(protocol)?;
                return self.answered.try_send(answered).map_err(|_| protocol());
            }
            _ => return Err(died()),
        };
        let (frame, _) = wire::decode::<ToMember>(packet).map_err(|_| protocol())?;
        let answered = match frame {
            // A part without its memory, or a second welcome.
            ToMember::Part { .. } | ToMember::Welcome { .. } => return Err(protocol()),
            ToMember::Agreed { number, bytes } => Some(Answered::Agreed { number, bytes }),
            ToMember::Done { number } => Some(Answered::Done { number }),
            ToMember::Failed { number, why } => Some(Answered::Failed { number, why }),
            ToMember::Broken { why } => {
                self.change(|fate| {
                    if let TeamFailure::Died { rank } = why {
                        fate.died |= 1u64.checked_shl(rank.0).unwrap_or(0);
                    }
                    fate.broken.get_or_insert(why);
                });
                None
            }
            ToMember::Left { rank } => {
                self.change(|fate| fate.left |= 1u64.checked_shl(rank).unwrap_or(0));
                None
            }
        };
        answered.map_or(Ok(()), |answered| self.answered.try_send(answered)).map_err(|_| protocol())
    }

    /// Receives another member's memory; `None` if something else has arrived.
    fn take(&self) -> Option<Answered> {
        const PARTS: u32 = 50;
        let (done, taken) = channel();
        take(&self.work, 0, &self.socket, self.exports, move |passed| drop(done.send(passed)));
        // In parts: the time during which this program was stopped does not count.
        match (0..PARTS).find_map(|_| taken.recv_timeout(TAKE_WITHIN / PARTS).ok()) {
            Some(Passed::Memory(ToMember::Part { number, rank, len, .. }, fd)) => {
                Some(Answered::Part { number, part: Ok(Part { rank: Rank(rank), len, fd }) })
            }
            Some(Passed::NoDescriptor(ToMember::Part { number, .. })) => {
                Some(Answered::Part { number, part: Err(BadFrame::NoDescriptor.to_string()) })
            }
            _ => None,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Fate)) {
        let mut fate = lock(&self.fate);
        change(&mut fate);
        fate.show();
    }
}
