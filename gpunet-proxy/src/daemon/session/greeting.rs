//! The beginning of a connection: the client's identity, and its request.

use super::connection::{ClientConnection, GOODBYE_TIMEOUT, SessionError, UNEXPECTED};
use super::teardown::Teardown;
use super::{DaemonSession, HELLO_TIMEOUT, SNAPSHOT_CHUNK, UNANSWERED_MARGIN};
use crate::daemon::admit::{Admitted, Refusal};
use crate::daemon::connections::CountedConnection;
use crate::daemon::outbox::Outbox;
use crate::daemon::{DaemonState, Phase, ending};
use crate::model::attachment_state::ClientInfo;
use crate::model::message::{Message, answer_to};
use crate::os::client_socket::ClientSocket;
use crate::os::peer::Credentials;
use crate::os::readiness::watch_shared;
use crate::wire::{
    self, BadFrame, DeviceRepr, Hello, Incoming, LogRepr, MAX_FRAME, Sent, ToDaemon, ToProgram, is_dma_buf,
};
use gpunet_abi::Error;
use gpunet_core::ids::AttachmentId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

/// A connection that has not attached. It counts for its user until it is dropped.
pub(in crate::daemon) struct PendingConnection {
    who: Credentials,
    socket: Arc<ClientSocket>,
    _count: CountedConnection,
}

impl PendingConnection {
    /// Takes over a connection; `None` if its user has too many, or all users have.
    pub(in crate::daemon) fn enter(daemon: &Arc<DaemonState>, socket: OwnedFd) -> Option<Self> {
        let who = match Credentials::of_peer(&socket) {
            Ok(who) => who,
            Err(error) => {
                tracing::warn!(%error, "a connection from nobody");
                return None;
            }
        };
        let socket = ClientSocket::new(socket, who.uid, daemon.work.clone());
        let user = daemon.limits(&who).is_ok().then_some(who.uid);
        // Connections that are still being closed count, too.
        let Some(_count) = daemon.pending.enter(user, daemon.work.waiting(who.uid)) else {
            tracing::warn!(uid = who.uid, "too many connections without an attachment");
            return None;
        };
        Some(Self { who, socket: Arc::new(socket), _count })
    }
}

/// Serves a connection until it ends.
pub(in crate::daemon) async fn serve(daemon: Arc<DaemonState>, pending: PendingConnection) {
    let (pid, uid) = (pending.who.pid, pending.who.uid);
    let mut phase = daemon.phase.subscribe();
    let greeted = greet(&daemon, pending, phase.clone());
    let ended = tokio::select! {
        ended = greeted => ended,
        () = ending(&mut phase) => return,
    };
    match ended {
        Ok(None) => {}
        Ok(Some((session, phase))) => session.run(phase).await,
        Err(error) => tracing::warn!(pid, uid, %error, "a connection that is none"),
    }
}

/// Reads the hello of a client. Returns the session of one that has attached, and the phases that
/// it has not followed yet.
async fn greet(
    daemon: &Arc<DaemonState>,
    pending: PendingConnection,
    mut phase: watch::Receiver<Phase>,
) -> Result<Option<(DaemonSession, watch::Receiver<Phase>)>, SessionError> {
    let PendingConnection { who, socket, _count: count } = pending;
    let buffer = vec![0; MAX_FRAME].into();
    let (work, uid) = (daemon.work.clone(), who.uid);
    let mut connection = ClientConnection { socket: watch_shared(socket.clone())?, buffer, work, uid };
    let packet = match timeout(HELLO_TIMEOUT, connection.recv()).await {
        Ok(Ok(Some(Incoming::Plain(packet)))) => packet,
        Ok(Ok(Some(Incoming::WithDescriptors))) => return Err(UNEXPECTED),
        Ok(Ok(None)) => return Ok(None),
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(SessionError::Breach("no hello")),
    };
    let hello = match wire::decode_first::<Hello>(packet) {
        Ok((hello, _)) => hello,
        Err(BadFrame::Version(program)) => {
            let daemon = wire::PROTOCOL;
            let reason = format!(
                "the daemon speaks version {daemon} of the attach protocol, this program {program}: \
                 update the older one"
            );
            connection.refuse(Refusal { errno: libc::EPROTONOSUPPORT, reason }).await;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let refused = |refusal: &Refusal| {
        tracing::info!(pid = who.pid, uid = who.uid, reason = refusal.reason, "refused");
    };
    let limits = match daemon.limits(&who) {
        Ok(limits) => limits,
        Err(refusal) => {
            refused(&refusal);
            connection.refuse(refusal).await;
            return Ok(None);
        }
    };
    match hello {
        Hello::Probe => {
            let ready = wire::encode_first(&ToProgram::Ready(daemon.introduction()));
            let _ = timeout(GOODBYE_TIMEOUT, connection.send(&ready, &[])).await;
            Ok(None)
        }
        Hello::Admin => {
            let Some(_looks) = daemon.looking.enter(Some(who.uid), 0) else {
                let reason =
                    format!("user {}, or all users, have too many connections that look; end some", who.uid);
                let refusal = Refusal::new(Error::WouldBlock, reason);
                refused(&refusal);
                connection.refuse(refusal).await;
                return Ok(None);
            };
            // From here on it counts as a connection that asks for snapshots.
            drop(count);
            serve_admin(daemon, connection, who.uid, limits.admin).await.map(|()| None)
        }
        Hello::Attach(request) => {
            let unanswered = 2 * request.sockets.min(1 << 16) as usize + UNANSWERED_MARGIN;
            let (outbox, frames) = Outbox::new(socket.clone(), unanswered + UNANSWERED_MARGIN);
            let has_memory = matches!(request.device, DeviceRepr::Cuda { .. }) || request.card.is_some();
            if has_memory {
                socket.take_descriptors();
            }
            let admitted = match request.card {
                Some(_) => ask_for_card(&mut connection).await?.map(Some),
                None => Ok(None),
            };
            let admitted = match admitted {
                Ok(dmabuf) => daemon.admit(&who, limits, request, dmabuf, &outbox).await,
                Err(refusal) => Err(refusal),
            };
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    refused(&refusal);
                    connection.refuse(refusal).await;
                    return Ok(None);
                }
            };
            // From here on it counts as an attachment.
            drop(count);
            let Admitted { attachment, agent_requests, account, welcome } = admitted;
            let mut fds: Vec<Sent> = vec![attachment.memory.region().clone()];
            for bell in &*attachment.doorbells {
                fds.push(Arc::new(bell.try_clone()?));
            }
            // First the proxy, then the client, which may use the attachment at once.
            daemon.proxy.add(&attachment);
            let client = &attachment.client;
            tracing::info!(
                id = attachment.id.0,
                pid = client.pid,
                uid = client.uid,
                command = client.command,
                device = client.device,
                "attached"
            );
            let session = DaemonSession {
                daemon: daemon.clone(),
                who: who.clone(),
                account,
                outbox,
                agent_requests,
                requests: HashMap::new(),
                calls: HashSet::new(),
                limit: unanswered,
                paced: Instant::now(),
                resetting: Arc::default(),
                teardown: Teardown::new(daemon.clone(), attachment),
                connection,
                frames,
            };
            // The limits may have changed since they were checked.
            phase.borrow_and_update();
            session.follow_rules();
            let welcome = wire::encode_first(&welcome);
            if !matches!(timeout(GOODBYE_TIMEOUT, session.connection.send(&welcome, &fds)).await, Ok(Ok(())))
            {
                session.gone(&"it did not take its welcome").await;
                return Ok(None);
            }
            Ok(Some((session, phase)))
        }
    }
}

/// Asks a client for the dma-buf of its device's memory.
async fn ask_for_card(connection: &mut ClientConnection) -> Result<Result<OwnedFd, Refusal>, SessionError> {
    connection.send(&wire::encode_first(&ToProgram::SendCard), &[]).await?;
    match timeout(HELLO_TIMEOUT, connection.recv()).await {
        Ok(Ok(Some(Incoming::WithDescriptors))) => {}
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(_)) => return Err(SessionError::Breach("no memory of its device")),
        Err(_) => return Err(SessionError::Breach("no memory of its device, in time")),
    }
    let check = |packet| {
        let (frame, fds) = wire::decode::<ToDaemon>(packet)?;
        let (ToDaemon::Card, Some(fd)) = (frame, fds.into_iter().next()) else { return Err(UNEXPECTED) };
        let none =
            || Refusal::new(Error::InvalidArgument, "the descriptor of the device's memory is no dma-buf");
        Ok(if is_dma_buf(fd.as_fd()) { Ok(fd) } else { Err(none()) })
    };
    connection.take(check).await
}

/// Sends snapshots to an admin, as often as it asks and its user may.
async fn serve_admin(
    daemon: &DaemonState,
    mut connection: ClientConnection,
    uid: u32,
    admin: bool,
) -> Result<(), SessionError> {
    connection.send(&wire::encode_first(&ToProgram::Ready(daemon.introduction())), &[]).await?;
    while let Some(packet) = connection.recv().await? {
        let Incoming::Plain(packet) = packet else { return Err(UNEXPECTED) };
        let (frame, _) = wire::decode::<ToDaemon>(packet)?;
        let mut turn = daemon.operators.turn(uid).await;
        match frame {
            ToDaemon::Snapshot => {}
            ToDaemon::Logs { client } => {
                turn.charge(0);
                send_logs(daemon, &connection, client, (!admin).then_some(uid)).await?;
                continue;
            }
            _ => return Err(SessionError::Breach("an admin only looks")),
        }
        let (done, snapshot) = oneshot::channel();
        // Without the admin right a user sees its own.
        let of = (!admin).then_some(uid);
        let _ = daemon.proxy.messages.send(Message::Snapshot { of, done: answer_to(done) });
        let Ok(snapshot) = snapshot.await else { return Ok(()) };
        turn.charge(snapshot.sockets.len());
        // Of many sockets it takes a while.
        let bytes = daemon.pool.call(move || postcard::to_stdvec(&snapshot)).await;
        let bytes = bytes.ok_or(SessionError::Breach("no snapshot"))?.map_err(io::Error::other)?;
        let sent = timeout(GOODBYE_TIMEOUT, send_pieces(&connection, &bytes)).await;
        sent.map_err(|_| SessionError::Breach("it does not read"))??;
    }
    Ok(())
}

/// Sends the memory in which a client's kernels have recorded; `of`: only if it is that user's.
async fn send_logs(
    daemon: &DaemonState,
    connection: &ClientConnection,
    client: u32,
    of: Option<u32>,
) -> Result<(), SessionError> {
    let (found, clients) = daemon.logs.find(AttachmentId(client), of);
    let mut fds: Vec<Sent> = Vec::new();
    let log = found.map(|found| {
        fds.extend(found.regions.into_iter().map(|region| -> Sent { region }));
        let ClientInfo { pid, command, device, .. } = found.info;
        LogRepr { pid, command, device, has_ended: found.has_ended, sets: fds.len() as u32 }
    });
    let bytes = wire::encode(&ToProgram::Logs { log, clients });
    let sent = timeout(GOODBYE_TIMEOUT, connection.send(&bytes, &fds)).await;
    Ok(sent.map_err(|_| SessionError::Breach("it does not read"))??)
}

async fn send_pieces(connection: &ClientConnection, bytes: &[u8]) -> io::Result<()> {
    let pieces = bytes.chunks(SNAPSHOT_CHUNK).count();
    for (at, piece) in bytes.chunks(SNAPSHOT_CHUNK).enumerate() {
        let frame = ToProgram::Snapshot { piece: piece.to_vec(), last: at + 1 == pieces };
        connection.send(&wire::encode(&frame), &[]).await?;
    }
    Ok(())
}
