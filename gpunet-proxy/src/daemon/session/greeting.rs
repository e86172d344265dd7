//! How a connection begins: who is it, and what does it want?

use super::leave::Leave;
use super::{Cut, HELLO, LAST_WORDS, MARGIN, PIECE, Session, UNASKED, Wire, answer_to, pace};
use crate::access::Credentials;
use crate::client_socket::ClientSocket;
use crate::daemon::admit::{Admitted, Refusal};
use crate::daemon::outbox::Outbox;
use crate::daemon::{ALL_VISITORS, Desk, Order, VISITORS, ending, lock};
use crate::model::message::Message;
use crate::model::snapshot::{Snapshot, Totals};
use crate::readiness::watch_shared;
use crate::wire::{
    self, BadFrame, DeviceIs, Incoming, MAX_FRAME, Sent, ToDaemon, ToProgram, Want, is_dma_buf,
};
use gpunet_abi::Error;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

/// A connection that has not attached: counted among its user's until it is dropped.
pub(in crate::daemon) struct Visit {
    who: Credentials,
    socket: Arc<ClientSocket>,
    _count: Count,
}

struct Count {
    desk: Arc<Desk>,
    /// `None` are all those who may not attach.
    uid: Option<u32>,
}

impl Visit {
    /// Takes in a connection, unless its user has too many, or all have.
    pub(in crate::daemon) fn enter(desk: &Arc<Desk>, socket: OwnedFd) -> Option<Self> {
        let who = match Credentials::of_peer(&socket) {
            Ok(who) => who,
            Err(error) => {
                tracing::warn!(%error, "a connection from nobody");
                return None;
            }
        };
        let socket = ClientSocket::new(socket, who.uid, desk.work.clone());
        let Some(_count) = Count::enter(desk, &who) else {
            tracing::warn!(uid = who.uid, "too many connections without an attachment");
            return None;
        };
        Some(Self { who, socket: Arc::new(socket), _count })
    }
}

impl Count {
    fn enter(desk: &Arc<Desk>, who: &Credentials) -> Option<Self> {
        let uid = desk.limits(who).is_ok().then_some(who.uid);
        // Those that are still being closed are connections, too.
        let closing = desk.work.waiting(who.uid);
        let mut visitors = lock(&desk.visitors);
        let count = visitors.entry(uid).or_default();
        *count += 1;
        let fits = *count + closing <= VISITORS && visitors.values().sum::<usize>() <= ALL_VISITORS;
        drop(visitors);
        let count = Self { desk: desk.clone(), uid };
        fits.then_some(count)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let mut visitors = lock(&self.desk.visitors);
        if let Some(count) = visitors.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                visitors.remove(&self.uid);
            }
        }
    }
}

/// Serves a connection until it ends.
pub(in crate::daemon) async fn serve(desk: Arc<Desk>, visit: Visit) {
    let (pid, uid) = (visit.who.pid, visit.who.uid);
    let mut orders = desk.orders.subscribe();
    let greeted = greet(&desk, visit, orders.clone());
    let ended = tokio::select! {
        ended = greeted => ended,
        () = ending(&mut orders) => return,
    };
    match ended {
        Ok(None) => {}
        Ok(Some((session, orders))) => session.run(orders).await,
        Err(cut) => tracing::warn!(pid, uid, %cut, "a connection that is none"),
    }
}

/// Hears what a client wants; returns the session of one that has attached, and the orders that it has not followed.
async fn greet(
    desk: &Arc<Desk>,
    visit: Visit,
    mut orders: watch::Receiver<Order>,
) -> Result<Option<(Session, watch::Receiver<Order>)>, Cut> {
    let Visit { who, socket, _count: visitor } = visit;
    let buffer = vec![0; MAX_FRAME].into();
    let (work, uid) = (desk.work.clone(), who.uid);
    let mut wire = Wire { socket: watch_shared(socket.clone())?, buffer, work, uid };
    let packet = match timeout(HELLO, wire.recv()).await {
        Ok(Ok(Some(Incoming::Plain(packet)))) => packet,
        Ok(Ok(Some(Incoming::WithDescriptors))) => return Err(UNASKED),
        Ok(Ok(None)) => return Ok(None),
        Ok(Err(error)) => return Err(error.into()),
        Err(_) => return Err(Cut::Breach("no hello")),
    };
    let want = match wire::decode_first::<Want>(packet) {
        Ok((want, _)) => want,
        Err(BadFrame::Version(program)) => {
            let daemon = wire::PROTOCOL;
            let reason = format!(
                "the daemon speaks version {daemon} of the attach protocol, this program {program}: \
                 update the older one"
            );
            wire.refuse(Refusal { errno: libc::EPROTONOSUPPORT, reason }).await;
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let refused = |refusal: &Refusal| {
        tracing::info!(pid = who.pid, uid = who.uid, reason = refusal.reason, "refused");
    };
    let limits = match desk.limits(&who) {
        Ok(limits) => limits,
        Err(refusal) => {
            refused(&refusal);
            wire.refuse(refusal).await;
            return Ok(None);
        }
    };
    match want {
        Want::Probe => {
            let ready = wire::encode_first(&ToProgram::Ready(desk.introduction()));
            let _ = timeout(LAST_WORDS, wire.send(&ready, &[])).await;
            Ok(None)
        }
        Want::Admin => show(desk, wire, who.uid, limits.admin).await.map(|()| None),
        Want::Attach(wish) => {
            let unanswered = 2 * wish.sockets.min(1 << 16) as usize + MARGIN;
            let (outbox, frames) = Outbox::new(socket.clone(), unanswered + MARGIN);
            let has_memory = matches!(wish.device, DeviceIs::Cuda { .. }) || wish.card.is_some();
            if has_memory {
                socket.take_descriptors();
            }
            let admitted = match wish.card {
                Some(_) => ask_for_card(&mut wire).await?.map(Some),
                None => Ok(None),
            };
            let admitted = match admitted {
                Ok(dmabuf) => desk.admit(&who, limits, wish, dmabuf, &outbox).await,
                Err(refusal) => Err(refusal),
            };
            let admitted = match admitted {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    refused(&refusal);
                    wire.refuse(refusal).await;
                    return Ok(None);
                }
            };
            // From here on it counts as an attachment.
            drop(visitor);
            let Admitted { attachment, asked, account, welcome } = admitted;
            let mut fds: Vec<Sent> = vec![attachment.memory.region().clone()];
            for bell in &*attachment.doorbells {
                fds.push(Arc::new(bell.try_clone()?));
            }
            // First the proxy, then the client: it may use what it was given at once.
            desk.proxy.add(&attachment);
            let client = &attachment.client;
            tracing::info!(
                id = attachment.id.0,
                pid = client.pid,
                uid = client.uid,
                command = client.command,
                device = client.device,
                "attached"
            );
            let session = Session {
                desk: desk.clone(),
                who: who.clone(),
                account,
                outbox,
                asked,
                requests: HashMap::new(),
                calls: HashSet::new(),
                limit: unanswered,
                paced: Instant::now(),
                resetting: Arc::default(),
                left: Leave::new(desk.clone(), attachment),
                wire,
                frames,
            };
            // The limits may have changed since it was asked whether it may attach.
            orders.borrow_and_update();
            session.follow_rules();
            let welcome = wire::encode_first(&welcome);
            if !matches!(timeout(LAST_WORDS, session.wire.send(&welcome, &fds)).await, Ok(Ok(()))) {
                session.gone(&"it did not take its welcome").await;
                return Ok(None);
            }
            Ok(Some((session, orders)))
        }
    }
}

/// Asks for the memory of a client's device that a network card reaches.
async fn ask_for_card(wire: &mut Wire) -> Result<Result<OwnedFd, Refusal>, Cut> {
    wire.send(&wire::encode_first(&ToProgram::SendCard), &[]).await?;
    match timeout(HELLO, wire.recv()).await {
        Ok(Ok(Some(Incoming::WithDescriptors))) => {}
        Ok(Err(error)) => return Err(error.into()),
        Ok(Ok(_)) => return Err(Cut::Breach("no memory of its device")),
        Err(_) => return Err(Cut::Breach("no memory of its device, in time")),
    }
    let check = |packet| {
        let (frame, fds) = wire::decode::<ToDaemon>(packet)?;
        let (ToDaemon::Card, Some(fd)) = (frame, fds.into_iter().next()) else { return Err(UNASKED) };
        let none =
            || Refusal::new(Error::InvalidArgument, "the descriptor of the device's memory is no dma-buf");
        Ok(if is_dma_buf(fd.as_fd()) { Ok(fd) } else { Err(none()) })
    };
    wire.take(check).await
}

/// Tells an admin what the proxy holds, as often as it asks.
async fn show(desk: &Desk, mut wire: Wire, uid: u32, admin: bool) -> Result<(), Cut> {
    wire.send(&wire::encode_first(&ToProgram::Ready(desk.introduction())), &[]).await?;
    let mut paced = Instant::now();
    while let Some(packet) = wire.recv().await? {
        let Incoming::Plain(packet) = packet else { return Err(UNASKED) };
        let (ToDaemon::Snapshot, _) = wire::decode::<ToDaemon>(packet)? else {
            return Err(Cut::Breach("an admin only looks"));
        };
        pace(&mut paced).await;
        let (done, snapshot) = oneshot::channel();
        let _ = desk.proxy.messages.send(Message::Snapshot { done: answer_to(done) });
        let Ok(mut snapshot) = snapshot.await else { return Ok(()) };
        if !admin {
            keep_own(&mut snapshot, uid);
        }
        let bytes = postcard::to_stdvec(&snapshot).map_err(io::Error::other)?;
        let pieces = bytes.chunks(PIECE).count();
        for (at, piece) in bytes.chunks(PIECE).enumerate() {
            let frame = ToProgram::Snapshot { piece: piece.to_vec(), last: at + 1 == pieces };
            let sent = timeout(LAST_WORDS, wire.send(&wire::encode(&frame), &[])).await;
            sent.map_err(|_| Cut::Breach("it does not read"))??;
        }
    }
    Ok(())
}

/// What a user may see who may not see everything.
fn keep_own(snapshot: &mut Snapshot, uid: u32) {
    snapshot.clients.retain(|client| client.uid == uid);
    let own: Vec<u32> = snapshot.clients.iter().map(|client| client.id).collect();
    snapshot.sockets.retain(|socket| own.contains(&socket.client));
    snapshot.totals = Totals::default();
}
