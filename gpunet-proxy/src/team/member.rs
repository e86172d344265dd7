//! A member's connection to the root of its team, and the thread that watches it.

use super::TeamOptions;
use super::error::{Collective, TeamError, TeamFailure};
use super::frames::{
    Answer, DeviceKind, Hello, Placement, ToMember, ToRoot, decode_greeting, encode_greeting,
};
use super::id::TeamId;
use super::symmetric::SharedMemory;
use crate::wire::{self, MAX_FRAME};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use gpunet_abi::Error;
use gpunet_abi::team::{BlockLayout, Rank};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with,
};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much longer than the root a member waits: the root's answer says more than the member's own limit.
const MARGIN: Duration = Duration::from_secs(5);
/// Between two attempts to reach member 0, which may start last.
const RETRY: Duration = Duration::from_millis(20);

/// Who joins.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub(super) id: TeamId,
    pub(super) rank: Rank,
    pub(super) size: u32,
    pub(super) device: DeviceKind,
}

/// What the root has answered.
#[derive(Debug)]
pub(super) struct Formed {
    /// Open until the root has heard of this member at its other socket: its end is a death.
    meeting: TcpStream,
    socket: String,
    key: u128,
    pub(super) placement: Placement,
    pub(super) is_polled: bool,
}

/// Meets the others. Blocks until all are there, or the time is over.
///
/// # Errors
/// [`TeamError`].
pub(super) fn meet(
    joining: &Joining,
    options: &TeamOptions,
    obstacle: Option<&dyn Fn() -> Option<TeamFailure>>,
) -> Result<Formed, TeamError> {
    let address = joining.id.address();
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(TeamError::io("cannot read /proc/sys/kernel/random/boot_id"))?;
    let hello = Hello {
        nonce: joining.id.nonce(),
        rank: joining.rank.0,
        size: joining.size,
        signals: options.signals,
        machine,
        device: joining.device.clone(),
    };
    let deadline = Instant::now() + options.timeout;
    let mut socket = loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(RETRY);
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => break socket,
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                if let Some(why) = obstacle.and_then(|obstacle| obstacle()) {
                    return Err(why.into());
                }
                std::thread::sleep(RETRY);
            }
            Err(error) => {
                return Err(TeamError::io(format!("cannot reach member 0 at {address}"))(error));
            }
        }
    };
    let limit = options.timeout + MARGIN;
    let talk = |socket: &mut TcpStream| -> io::Result<Answer> {
        socket.set_read_timeout(Some(limit))?;
        socket.write_all(&encode_greeting(&hello))?;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
        loop {
            match socket.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => bytes.extend(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Some(answer) = decode_greeting(&bytes)? {
                return Ok(answer);
            }
        }
    };
    match talk(&mut socket) {
        Ok(Answer::Formed { socket: name, key, placement, is_polled }) => {
            Ok(Formed { meeting: socket, socket: name, key, placement, is_polled })
        }
        Ok(Answer::Refused(why)) => Err(why.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(TeamError::Silent(limit)),
        Err(error) => Err(TeamError::io(format!("no answer of member 0 at {address}"))(error)),
    }
}

/// What has become of the team, and the block in which kernels look for it.
#[derive(Debug, Default)]
struct Fate {
    broken: Option<TeamFailure>,
    /// This member's own program has dropped the team, while queues still use it.
    is_closed: bool,
    /// Nobody tells this member anything any more.
    is_deaf: bool,
    /// Those who have died, as far as this member was told, and those who have left in good order: a bit for each rank.
    died: u64,
    left: u64,
    block: Option<(Arc<SharedMemory>, Rank, BlockLayout)>,
}

impl Fate {
    /// Why all waits are in vain, if they are.
    fn broken(&self) -> Option<Error> {
        let closed = self.is_closed.then_some(Error::NotConnected);
        self.broken.as_ref().map(|_| Error::ConnectionReset).or(closed)
    }

    /// Tells this member's kernels.
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
    socket: Arc<OwnedFd>,
    fate: Arc<Mutex<Fate>>,
    calls: Mutex<Calls>,
    limit: Duration,
    size: u32,
    thread: Option<JoinHandle<()>>,
}

/// What this member has done together with the others so far. Its lock is held during one operation.
#[derive(Debug)]
struct Calls {
    number: u64,
    answers: Receiver<Answered>,
}

/// What the root says of an operation.
#[derive(Debug)]
enum Answered {
    Part { number: u64, part: Part },
    Agreed { number: u64, bytes: Vec<Vec<u8>> },
    Done { number: u64 },
    Failed { number: u64, why: TeamFailure },
}

/// Another member's memory.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) rank: Rank,
    pub(super) len: u64,
    pub(super) fd: OwnedFd,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under one of these locks leaves at most an operation that failed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Member {
    /// Connects to the root's socket.
    ///
    /// # Errors
    /// [`TeamError::Io`].
    pub(super) fn connect(
        formed: Formed,
        (rank, size): (Rank, u32),
        options: &TeamOptions,
    ) -> Result<Self, TeamError> {
        let open = || -> io::Result<OwnedFd> {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            connect(&socket, &SocketAddrUnix::new_abstract_name(formed.socket.as_bytes())?)?;
            wire::send(socket.as_fd(), &wire::encode(&ToRoot::Here { key: formed.key, rank: rank.0 }), &[])?;
            Ok(socket)
        };
        let doing = "cannot reach member 0's Unix-domain socket (another container or network namespace?)";
        let socket = Arc::new(open().map_err(TeamError::io(doing))?);
        // This member was heard of.
        drop(formed.meeting);
        let fate = Arc::<Mutex<Fate>>::default();
        let (answered, answers) = crossbeam_channel::unbounded();
        let watch = Watch { socket: socket.clone(), fate: fate.clone(), answered };
        let thread = std::thread::Builder::new().name("gpunet-team".to_owned()).spawn(move || watch.run());
        let thread = thread.map_err(TeamError::io("cannot start a thread for the team"))?;
        let calls = Mutex::new(Calls { number: 0, answers });
        let limit = options.timeout + MARGIN;
        Ok(Self { socket, fate, calls, limit, size, thread: Some(thread) })
    }

    /// Says where kernels look for what becomes of the team.
    pub(super) fn show_in(&self, blocks: Arc<SharedMemory>, rank: Rank, layout: BlockLayout) {
        let mut fate = lock(&self.fate);
        fate.block = Some((blocks, rank, layout));
        fate.show();
    }

    /// Why the team is broken, if it is.
    pub(super) fn broken(&self) -> Option<TeamFailure> {
        lock(&self.fate).broken.clone()
    }

    /// Returns what says why `members` cannot meet, if that is known: one of them has died, nobody tells of deaths any more, or
    /// this member, whose rank is `rank`, has left. It keeps nothing of the team.
    pub(super) fn obstacle(
        &self,
        rank: Rank,
        members: &[u32],
    ) -> impl Fn() -> Option<TeamFailure> + Send + use<> {
        let (fate, members) = (Arc::downgrade(&self.fate), members.to_vec());
        move || {
            let Some(fate) = fate.upgrade() else { return Some(TeamFailure::Left { rank }) };
            let fate = lock(&fate);
            let dead = members.iter().find(|&&rank| fate.died >> rank & 1 != 0);
            let orphaned = if fate.is_deaf { fate.broken.clone() } else { None };
            dead.map(|&rank| TeamFailure::Died { rank: Rank(rank) }).or(orphaned)
        }
    }

    /// Why a wait for a member is in vain, if it is: as its kernels find it.
    pub(super) fn wait_failure(&self, source: Rank) -> Option<Error> {
        let fate = lock(&self.fate);
        let has_left = fate.left.checked_shr(source.0).unwrap_or(0) & 1 != 0;
        fate.broken().or(has_left.then_some(Error::NotConnected))
    }

    /// Ends the waits of this member's queues, whose team is dropped.
    pub(super) fn close(&self) {
        let mut fate = lock(&self.fate);
        fate.is_closed = true;
        fate.show();
    }

    /// Does something together with all others, without memory; returns the bytes of all.
    ///
    /// # Errors
    /// [`TeamError`].
    pub(super) fn together(&self, what: Collective, bytes: &[u8]) -> Result<Vec<Vec<u8>>, TeamError> {
        let mut calls = lock(&self.calls);
        let number = calls.begin();
        self.send(&ToRoot::Begin { number, what, bytes: bytes.to_vec() }, None)?;
        let (_, bytes) = self.await_agreement(&calls, number)?;
        if bytes.len() == self.size as usize {
            Ok(bytes)
        } else {
            Err(TeamFailure::Protocol { rank: Rank(0) }.into())
        }
    }

    /// Allocates together with all others. `make` makes this member's memory and a descriptor of it; `map` maps the others'.
    ///
    /// # Errors
    /// [`TeamError`]: nobody has the memory then.
    pub(super) fn share<M, R>(
        &self,
        (len, element): (u64, u32),
        make: impl FnOnce() -> Result<(M, OwnedFd, u64), String>,
        map: impl FnOnce(M, Vec<Part>) -> Result<R, String>,
    ) -> Result<R, TeamError> {
        let mut calls = lock(&self.calls);
        let number = calls.begin();
        let (memory, fd, mapped_len) = match make() {
            Ok(made) => made,
            Err(reason) => {
                self.send(&ToRoot::Unable { number, reason: reason.clone() }, None)?;
                return Err(match self.await_agreement(&calls, number) {
                    Err(error) => error,
                    Ok(_) => TeamError::Memory(reason),
                });
            }
        };
        let bytes = mapped_len.to_le_bytes().to_vec();
        let what = Collective::Alloc { len, element };
        self.send(&ToRoot::Begin { number, what, bytes }, Some(fd.as_fd()))?;
        drop(fd);
        let (parts, _) = self.await_agreement(&calls, number)?;
        let (result, mapped) = match map(memory, parts) {
            Ok(result) => (Some(result), Ok(())),
            Err(reason) => (None, Err(reason)),
        };
        let reason = mapped.clone().err().unwrap_or_default();
        self.send(&ToRoot::Mapped { number, result: mapped }, None)?;
        match self.next(&calls, number)? {
            Answered::Done { .. } => result.ok_or(TeamError::Memory(reason)),
            _ => Err(TeamFailure::Protocol { rank: Rank(0) }.into()),
        }
    }

    fn await_agreement(&self, calls: &Calls, number: u64) -> Result<(Vec<Part>, Vec<Vec<u8>>), TeamError> {
        let mut parts = Vec::new();
        loop {
            match self.next(calls, number)? {
                Answered::Part { part, .. } => parts.push(part),
                Answered::Agreed { bytes, .. } => return Ok((parts, bytes)),
                Answered::Done { .. } | Answered::Failed { .. } => {
                    return Err(TeamFailure::Protocol { rank: Rank(0) }.into());
                }
            }
        }
    }

    /// The root's next word on an operation.
    fn next(&self, calls: &Calls, number: u64) -> Result<Answered, TeamError> {
        loop {
            match calls.answers.recv_timeout(self.limit) {
                Ok(Answered::Failed { number: of, why }) if of == number => return Err(why.into()),
                Ok(answer) if answer.number() == number => return Ok(answer),
                // Of an operation that this member has given up.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err(TeamError::Silent(self.limit)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.end()),
            }
        }
    }

    /// Why there is no connection.
    fn end(&self) -> TeamError {
        self.broken().unwrap_or(TeamFailure::Died { rank: Rank(0) }).into()
    }

    fn send(&self, frame: &ToRoot, fd: Option<BorrowedFd<'_>>) -> Result<(), TeamError> {
        let fds: Vec<_> = fd.into_iter().collect();
        wire::send(self.socket.as_fd(), &wire::encode(frame), &fds).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => TeamError::Silent(Duration::ZERO),
            _ => self.end(),
        })
    }
}

impl Calls {
    fn begin(&mut self) -> u64 {
        self.number += 1;
        self.number
    }
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
        let _ = shutdown(&*self.socket, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // It ends with the connection. A panic in it was logged by the runtime.
            let _ = thread.join();
        }
    }
}

/// The thread that hears what the root says.
struct Watch {
    socket: Arc<OwnedFd>,
    fate: Arc<Mutex<Fate>>,
    answered: Sender<Answered>,
}

impl Watch {
    fn run(self) {
        let mut buffer = vec![0; MAX_FRAME];
        while let Ok(true) = self.hear(&mut buffer) {}
        // The root has gone, and with it whoever could tell of a death; or this member leaves, and nobody looks any more.
        self.change(|fate| {
            fate.is_deaf = true;
            fate.broken.get_or_insert(TeamFailure::Died { rank: Rank(0) });
        });
    }

    /// Hears one packet; returns whether there may be more.
    fn hear(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let mut fds = [PollFd::new(&*self.socket, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut fds, None))?;
        let packet = match wire::recv(self.socket.as_fd(), buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            packet => packet?,
        };
        let Some(packet) = packet else { return Ok(false) };
        let (frame, fds) = wire::decode::<ToMember>(packet).map_err(io::Error::other)?;
        let answered = match frame {
            ToMember::Part { number, rank, len } => fds
                .into_iter()
                .next()
                .map(|fd| Answered::Part { number, part: Part { rank: Rank(rank), len, fd } }),
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
        if let Some(answered) = answered {
            let _ = self.answered.send(answered);
        }
        Ok(true)
    }

    fn change(&self, change: impl FnOnce(&mut Fate)) {
        let mut fate = lock(&self.fate);
        change(&mut fate);
        fate.show();
    }
}
