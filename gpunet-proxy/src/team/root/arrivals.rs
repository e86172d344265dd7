//! Connections to the root's Unix-domain socket that have not identified their member.
//!
//! Every program on the machine can connect to it. Nothing is read from programs of other users.

use super::accept::{ACCEPTS, BACKLOG, SPEAK_WITHIN, accepted, pause};
use crate::os::client_socket::ClientSocket;
use crate::os::peer::Credentials;
use crate::os::same_host::{MeetingPoint, own_user};
use crate::os::user_work::UserWork;
use crate::team::error::TeamFailure;
use crate::team::frames::{ToMember, ToRoot};
use crate::wire::{self, Incoming};
use gpunet_abi::team::MAX_MEMBERS;
use rustix::net::{SocketFlags, acceptfrom_with};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

/// What the socket's name says.
const PURPOSE: &str = "team";
/// The most connections that have not identified their member. A further one replaces the oldest.
const MAX_UNKNOWN: usize = 2 * MAX_MEMBERS as usize;
/// The most connections that wait until their descriptors are closed; no further ones are accepted
/// then. (Only before Linux 6.16.)
const MAX_CLOSING: usize = 64;

/// The introduction of a connection.
pub(super) struct Here {
    pub(super) key: u128,
    pub(super) rank: u32,
    pub(super) socket: ClientSocket,
}

/// The listening socket and its connections.
pub(super) struct Arrivals {
    /// `None` once no member is expected.
    listener: Option<ClientSocket>,
    name: String,
    own: u32,
    unknown: Vec<(ClientSocket, Instant)>,
    closing: Arc<UserWork>,
    /// No connection is accepted before then, because descriptors have run out.
    paused: Option<Instant>,
}

impl Arrivals {
    /// Listens at an abstract name of its own.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn listen() -> io::Result<Self> {
        let point = MeetingPoint::open(PURPOSE, BACKLOG)?;
        let name = MeetingPoint::full_name(PURPOSE, point.name());
        let (own, closing) = (own_user(), Arc::<UserWork>::default());
        let listener = Some(ClientSocket::new(point.into_socket(), own, closing.clone()));
        Ok(Self { listener, name, own, unknown: Vec::new(), closing, paused: None })
    }

    /// The name of the socket.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the sockets to watch for input.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open().map(AsFd::as_fd).into_iter().chain(self.unknown.iter().map(|(socket, _)| socket.as_fd()))
    }

    /// Returns the listening socket, unless no connection is accepted now.
    fn open(&self) -> Option<&ClientSocket> {
        let is_paused = self.paused.is_some_and(|until| Instant::now() < until);
        let takes = !is_paused && self.closing.waiting_of_all() < MAX_CLOSING;
        self.listener.as_ref().filter(|_| takes)
    }

    /// Accepts some of the waiting connections. Returns all new introductions.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Vec<Here> {
        let mut heard = Vec::new();
        for _ in 0..ACCEPTS {
            let socket = match self.open().map(accept) {
                None | Some(Ok(None)) => break,
                Some(Ok(Some(socket))) => socket,
                Some(Err(error)) => {
                    self.paused = Some(pause(&error));
                    break;
                }
            };
            let Ok(who) = Credentials::of_peer(&socket) else { continue };
            let socket = ClientSocket::new(socket, who.uid, self.closing.clone());
            if who.uid != self.own {
                let why = TeamFailure::OtherUser { its: who.uid, ours: self.own };
                // It may be a member that was started wrongly. Any other program may ignore the
                // message.
                let _ = wire::send(socket.as_fd(), &wire::encode(&ToMember::Broken { why }), &[]);
                continue;
            }
            if self.unknown.len() == MAX_UNKNOWN {
                self.receive_unknown(buffer, &mut heard);
            }
            if self.unknown.len() == MAX_UNKNOWN {
                // The connections that are left have sent nothing. A member tries again.
                self.unknown.remove(0);
            }
            self.unknown.push((socket, Instant::now()));
        }
        self.receive_unknown(buffer, &mut heard);
        heard
    }

    /// Reads the introductions of connections, and closes connections that send anything else.
    fn receive_unknown(&mut self, buffer: &mut [u8], heard: &mut Vec<Here>) {
        for (socket, since) in std::mem::take(&mut self.unknown) {
            match wire::recv_plain(socket.as_fd(), buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.unknown.push((socket, since)),
                Ok(Some(Incoming::Plain(packet))) => {
                    if let Ok((ToRoot::Here { key, rank }, _)) = wire::decode(packet) {
                        heard.push(Here { key, rank, socket });
                    }
                }
                _ => {}
            }
        }
    }

    /// Closes connections that have sent nothing for too long.
    pub(super) fn expire(&mut self, now: Instant) {
        self.unknown.retain(|(_, since)| now < *since + SPEAK_WITHIN);
    }

    /// Stops accepting: no member is expected now.
    pub(super) fn close(&mut self) {
        self.listener = None;
        self.unknown.clear();
    }
}

/// Returns the next waiting connection, if there is one.
fn accept(listener: &ClientSocket) -> io::Result<Option<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    accepted(acceptfrom_with(listener, flags).map(|(socket, _)| socket).map_err(io::Error::from))
}
