//! How a connection begins: who is it, and what does it want?

use super::leave::Leave;
use super::{Cut, HELLO, LAST_WORDS, MARGIN, PIECE, Session, Wire, answer_to, pace};
use crate::access::Credentials;
use crate::daemon::admit::{Admitted, Refusal};
use crate::daemon::outbox::Outbox;
use crate::daemon::{Desk, Order, VISITORS, lock};
use crate::message::Message;
use crate::readiness::watch_shared;
use crate::snapshot::{Snapshot, Totals};
use crate::wire::{self, BadFrame, MAX_FRAME, Sent, ToDaemon, ToProgram, Want};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// Counts a connection among its user's visitors.
struct Visitor {
    desk: Arc<Desk>,
    uid: u32,
}

impl Visitor {
    fn enter(desk: &Arc<Desk>, uid: u32) -> Option<Self> {
        let mut visitors = lock(&desk.visitors);
        let count = visitors.entry(uid).or_default();
        *count += 1;
        let fits = *count <= VISITORS;
        drop(visitors);
        let visitor = Self { desk: desk.clone(), uid };
        fits.then_some(visitor)
    }
}

impl Drop for Visitor {
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
pub(in crate::daemon) async fn serve(desk: Arc<Desk>, socket: OwnedFd) {
    let socket = Arc::new(socket);
    let who = match Credentials::of_peer(&socket) {
        Ok(who) => who,
        Err(error) => return tracing::warn!(%error, "a connection from nobody"),
    };
    let Some(visitor) = Visitor::enter(&desk, who.uid) else {
        return tracing::warn!(uid = who.uid, "more connections without an attachment than a user may have");
    };
    let wire = match watch_shared(socket.clone()) {
        Ok(socket) => Wire { socket, buffer: vec![0; MAX_FRAME].into() },
        Err(error) => return tracing::warn!(%error, "cannot watch a connection"),
    };
    let mut orders = desk.orders.subscribe();
    let ended = tokio::select! {
        ended = greet(&desk, wire, socket, &who, visitor) => ended,
        _ = orders.wait_for(|order| *order == Order::Drain) => return,
    };
    match ended {
        Ok(None) => {}
        Ok(Some(session)) => session.run(orders).await,
        Err(cut) => tracing::warn!(pid = who.pid, uid = who.uid, %cut, "a connection that is none"),
    }
}

/// Hears what a client wants; returns the session of one that has attached.
async fn greet(
    desk: &Arc<Desk>,
    mut wire: Wire,
    socket: Arc<OwnedFd>,
    who: &Credentials,
    visitor: Visitor,
) -> Result<Option<Session>, Cut> {
    let Ok(packet) = timeout(HELLO, wire.recv()).await else { return Err(Cut::Breach("no hello")) };
    let Some(packet) = packet? else { return Ok(None) };
    let (want, fds) = match wire::decode_first::<Want>(packet) {
        Ok(said) => said,
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
    let limits = match desk.limits(who) {
        Ok(limits) => limits,
        Err(refusal) => {
            tracing::info!(pid = who.pid, uid = who.uid, reason = refusal.reason, "refused");
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
            let (outbox, frames) = Outbox::new(socket, unanswered + MARGIN);
            let admitted = match desk.admit(who, limits, wish, fds, &outbox).await {
                Ok(admitted) => admitted,
                Err(refusal) => {
                    tracing::info!(pid = who.pid, uid = who.uid, reason = refusal.reason, "refused");
                    wire.refuse(refusal).await;
                    return Ok(None);
                }
            };
            drop(visitor);
            let Admitted { attached, asked, account, welcome } = admitted;
            let mut fds: Vec<Sent> = vec![attached.memory.region().clone()];
            for bell in &*attached.doorbells {
                fds.push(Arc::new(bell.try_clone()?));
            }
            // First the proxy, then the client: it may use what it was given at once.
            desk.proxy.add(&attached);
            let client = &attached.client;
            tracing::info!(
                id = attached.id,
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
                unanswered: HashMap::new(),
                limit: unanswered,
                paced: Instant::now(),
                resetting: Arc::default(),
                left: Leave::new(desk.clone(), attached),
                wire,
                frames,
            };
            let welcome = wire::encode_first(&welcome);
            if !matches!(timeout(LAST_WORDS, session.wire.send(&welcome, &fds)).await, Ok(Ok(()))) {
                session.gone(&"it did not take its welcome").await;
                return Ok(None);
            }
            Ok(Some(session))
        }
    }
}

/// Tells an admin what the proxy holds, as often as it asks.
async fn show(desk: &Desk, mut wire: Wire, uid: u32, admin: bool) -> Result<(), Cut> {
    wire.send(&wire::encode_first(&ToProgram::Ready(desk.introduction())), &[]).await?;
    let mut paced = Instant::now();
    while let Some(packet) = wire.recv().await? {
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
