//! How a member comes to the root of its team: over TCP until all are there, then over a
//! Unix-domain socket.

use super::TeamOptions;
use super::error::{TeamError, TeamFailure};
use super::frames::{
    Answer, DeviceKind, Hello, Placement, ToMember, ToRoot, decode_greeting, encode_greeting,
};
use super::id::TeamId;
use super::secrets::OwnSecrets;
use crate::attached::session::next;
use crate::os::same_host::{MachineId, VisitError, visit};
use crate::wire;
use gpunet_abi::team::Rank;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How much longer than the root a member waits: the root's answer says more than a timeout of the
/// member.
const MARGIN: Duration = Duration::from_secs(5);
/// The delay between two attempts to reach member 0, which may start last, or whose backlog may be
/// full of other connections.
const RETRY: Duration = Duration::from_millis(20);
/// How long one attempt may take: a connection that finds no room gets no answer.
const ATTEMPT: Duration = Duration::from_millis(500);

/// Returns why a member cannot be reached, if that is known.
pub(super) type Known<'a> = Option<&'a dyn Fn() -> Option<TeamFailure>>;

/// The member that joins.
#[derive(Clone, Debug)]
pub(super) struct Joining {
    pub(super) id: TeamId,
    pub(super) rank: Rank,
    pub(super) size: u32,
    /// In a part of a team: the secret that it shares with the part's first member. Else 0.
    pub(super) secret: u128,
    pub(super) device: DeviceKind,
}

/// A member that the root knows.
pub(super) struct Entered {
    pub(super) socket: OwnedFd,
    pub(super) secrets: OwnSecrets,
    pub(super) placement: Placement,
    pub(super) is_polled: bool,
}

/// How long a member waits for the root.
pub(super) fn limit(options: &TeamOptions) -> Duration {
    options.timeout + MARGIN
}

/// Joins. Blocks until all members have joined, or the timeout expires.
///
/// # Errors
/// [`TeamError`].
pub(super) fn enter(
    joining: &Joining,
    options: &TeamOptions,
    known: Known<'_>,
) -> Result<Entered, TeamError> {
    // It stays open until the root has received this member's introduction at its other socket: the
    // root takes an earlier end for a death.
    let (_meeting, answer) = meet(joining, options, known)?;
    let (name, key, placement, is_polled) = match answer {
        Answer::Formed { socket, key, placement, is_polled } => (socket, key, placement, is_polled),
        Answer::Refused(why) => return Err(why.into()),
    };
    let (socket, secrets) = introduce(&name, &ToRoot::Here { key, rank: joining.rank.0 }, limit(options))?;
    let secrets = OwnSecrets::new(secrets, joining.size).ok_or(TeamFailure::Protocol { rank: Rank(0) })?;
    Ok(Entered { socket, secrets, placement, is_polled })
}

/// Sends the hello, and waits for the answer.
fn meet(
    joining: &Joining,
    options: &TeamOptions,
    known: Known<'_>,
) -> Result<(TcpStream, Answer), TeamError> {
    let address = joining.id.address();
    let machine = MachineId::here().map_err(TeamError::io("cannot tell which machine this is"))?;
    let hello = encode_greeting(&Hello {
        nonce: joining.id.nonce(),
        rank: joining.rank.0,
        size: joining.size,
        signals: options.signals,
        secret: joining.secret,
        machine: machine.to_string(),
        device: joining.device.clone(),
    });
    let (deadline, limit) = (Instant::now() + options.timeout, limit(options));
    let mut cut = None;
    loop {
        let mut socket = match TcpStream::connect_timeout(&address, ATTEMPT) {
            Ok(socket) => socket,
            Err(error) if may_come(&error, cut.is_some()) && Instant::now() < deadline => {
                if let Some(why) = known.and_then(|known| known()) {
                    return Err(why.into());
                }
                std::thread::sleep(RETRY);
                continue;
            }
            // Member 0 was reachable before, and is not now.
            Err(_) if cut.is_some() => break,
            Err(error) => {
                return Err(TeamError::io(format!("cannot reach member 0 at {address}"))(error));
            }
        };
        match talk(&mut socket, &hello, Instant::now() + limit) {
            Ok(answer) => return Ok((socket, answer)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(TeamError::Silent(limit)),
            // Other connections had taken all the room before this member had sent its hello.
            Err(error) if is_cut(&error) && Instant::now() < deadline => cut = Some(error),
            Err(error) => {
                cut = Some(error);
                break;
            }
        }
        std::thread::sleep(RETRY);
    }
    let error = cut.unwrap_or_else(|| ErrorKind::UnexpectedEof.into());
    Err(TeamError::io(format!("no answer of member 0 at {address}"))(error))
}

/// Returns whether another attempt may succeed, for a member that has reached member 0 before or
/// not.
fn may_come(error: &io::Error, has_reached: bool) -> bool {
    let is_refused = error.kind() == ErrorKind::ConnectionRefused;
    error.kind() == ErrorKind::TimedOut || (is_refused && !has_reached)
}

fn is_cut(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)
}

fn talk(socket: &mut TcpStream, hello: &[u8], deadline: Instant) -> io::Result<Answer> {
    socket.write_all(hello)?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 1024]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        socket.set_read_timeout(Some(left.max(RETRY)))?;
        match socket.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes.extend(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(answer) = decode_greeting(&bytes)? {
            return Ok(answer);
        }
        if left.is_zero() {
            return Err(ErrorKind::WouldBlock.into());
        }
    }
}

/// Introduces this member at the root's other socket, and tries again until the root has received
/// it.
fn introduce(name: &str, here: &ToRoot, limit: Duration) -> Result<(OwnedFd, Vec<u128>), TeamError> {
    let doing = "cannot reach member 0's Unix-domain socket (another container or network namespace?)";
    let deadline = Instant::now() + limit;
    let mut cut = false;
    loop {
        let socket = match visit(name, Some(limit)) {
            Ok(socket) => socket,
            Err(VisitError::OtherUser { uid, own }) => {
                return Err(TeamFailure::OtherUser { its: own, ours: uid }.into());
            }
            // The root was reachable before, and has closed its socket.
            Err(VisitError::Unreachable(_)) if cut => {
                return Err(TeamFailure::Died { rank: Rank(0) }.into());
            }
            Err(VisitError::Unreachable(error)) => return Err(TeamError::io(doing)(error)),
        };
        // The root may have closed this connection before it has read anything.
        let _ = wire::send(socket.as_fd(), &wire::encode(here), &[]);
        let left = deadline.saturating_duration_since(Instant::now());
        match next(&socket, left.max(RETRY)).map(wire::decode::<ToMember>) {
            Ok(Ok((ToMember::Welcome { secrets }, _))) => return Ok((socket, secrets)),
            Ok(Ok((ToMember::Broken { why }, _))) => return Err(why.into()),
            Ok(_) => return Err(TeamFailure::Protocol { rank: Rank(0) }.into()),
            Err(error) if error.kind() == ErrorKind::TimedOut => return Err(TeamError::Silent(limit)),
            Err(_) if Instant::now() >= deadline => return Err(TeamFailure::Died { rank: Rank(0) }.into()),
            Err(_) => cut = true,
        }
        std::thread::sleep(RETRY);
    }
}
