//! The control plane: everything that is not bytes, on one tokio thread.
//!
//! An actor: it owns the tables of every attachment and changes them one message at a time. What
//! takes time (connect, waiting for a listener) runs as a local task that sends its result back as
//! a message. Files: `tables` (who owns which slot), `descriptor` (where a stream lies), `request`
//! (what the device asks), `listener`, `handshake` (clients before an accept), `stream` (connecting,
//! opening, closing), `pair` (both ends on one device), `join` (on two), `arena` (memory of two), `reap`
//! (what a finished launch, a detach or a dead process leaves), `rings` (their memory), `shortage` (what
//! there is too little of), `route` (which
//! transport), `snapshot` (what all of them hold), `grow` (ring memory that is made after the start).

mod arena;
mod descriptor;
mod grow;
mod handshake;
mod join;
mod listener;
mod pair;
#[cfg(test)]
mod plane;
mod quota;
mod reap;
mod request;
mod rings;
mod route;
mod shortage;
mod slots;
mod snapshot;
mod stream;
mod tables;

use crate::control_queue::{ControlReceiver, ControlSender};
use crate::model::attachment_state::Usage;
use crate::model::config::Config;
use crate::model::message::{Command, Message};
use crate::pulse::{Pulse, PulseGuard};
use arena::Arenas;
use crossbeam_channel::Sender;
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_core::ids::{AttachmentId, RequestId};
use gpunet_core::transport::peer::Peer;
use join::Joins;
use route::Routes;
use snapshot::Past;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tables::Device;

/// Bytes that the control plane keeps for each socket slot of an attachment, in use or not.
pub(crate) const SLOT_BYTES: u64 = size_of::<tables::Slot>() as u64;

/// How the control plane reaches a data thread.
#[derive(Clone)]
pub(crate) struct ShardLink {
    pub(crate) commands: Sender<Command>,
    pub(crate) bell: Arc<OwnedFd>,
}

impl ShardLink {
    pub(crate) fn send(&self, command: Command) {
        // A data thread that has ended is the heartbeat's business.
        let _ = self.commands.send(command);
        crate::doorbell::ring(&self.bell);
    }
}

/// The control plane's state.
pub(crate) struct Control {
    devices: BTreeMap<AttachmentId, Device>,
    shards: Vec<ShardLink>,
    messages: ControlSender,
    routes: Routes,
    /// Where connects and listeners of all attachments meet.
    peer: Peer,
    /// The listeners that `peer` knows: attachment and slot.
    peer_listeners: HashMap<SocketAddr, (AttachmentId, u32)>,
    arenas: Arenas,
    joins: Joins,
    /// What streams and attachments that are gone have carried.
    past: Past,
    started: Instant,
    linger: Duration,
}

impl Control {
    pub(crate) fn new(shards: Vec<ShardLink>, messages: ControlSender, config: &Config) -> Self {
        let routes = Routes::new(config);
        Self {
            devices: BTreeMap::new(),
            shards,
            messages,
            routes,
            peer: Peer::new(),
            peer_listeners: HashMap::new(),
            arenas: Arenas::default(),
            joins: Joins::default(),
            past: Past::default(),
            started: Instant::now(),
            linger: config.linger,
        }
    }

    /// Runs until told to stop.
    pub(crate) async fn run(mut self, mut inbox: ControlReceiver, pulse: Arc<Pulse>) {
        let _guard = PulseGuard(pulse.clone());
        loop {
            let message = inbox.recv().await;
            hand_off::at(HandOff::MessageTaken);
            match message {
                Message::Stop => return,
                Message::Ping => pulse.beat(),
                message => self.handle(message),
            }
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Request { device, id, request } => {
                if let Some(device) = self.device(device) {
                    device.attached.inbox.leave_request(id);
                }
                self.handle_request(device, id, &request);
            }
            Message::Ask { device, id, request, answer } => {
                let Some(attachment) = self.device(device) else { return };
                attachment.answers.insert(id, answer);
                self.handle_request(device, RequestId::Host(id), &request);
            }
            Message::Abandon { device, id } => {
                if let Some(device) = self.device(device) {
                    device.attached.inbox.leave_abandon(id);
                }
                self.handle_abandon(device, id);
            }
            Message::Attempted { device, id, attempt, result } => {
                self.handle_attempted(device, id, attempt, result);
            }
            Message::Handshake { device, listener, number, rings, result } => {
                self.handle_handshake(device, listener, number, rings, result);
            }
            Message::Refuse { device, tickets } => self.refuse(device, tickets),
            Message::Sweep { device, sweep } => self.sweep(device, sweep),
            Message::ListenerReady { device, socket } => {
                self.handle_listener_ready(device, socket);
            }
            Message::Finished { device, socket, undelivered, counts } => {
                if let Some(device) = self.device(device) {
                    device.warn_undelivered(socket.slot, undelivered);
                }
                self.handle_finished(device, socket, counts);
            }
            Message::OutQueue { device, id, bytes } => {
                self.handle_out_queue(device, id, bytes);
            }
            Message::Attach(attached) => {
                self.grow(&attached);
                self.devices.insert(attached.id, Device::new(attached));
            }
            Message::Grown { device, rings, last } => self.handle_grown(device, rings, last),
            Message::Agent { device, answer } => self.handle_agent(device, answer),
            Message::ArenaParts { arena, parts } => self.handle_arena_parts(arena, parts),
            Message::ArenaTimeout { arena } => self.handle_arena_timeout(arena),
            Message::FinishLaunch { device, launch, policy, fresh, done } => {
                done(self.finish_launch(device, launch, policy, &fresh));
            }
            Message::AbortLaunch { device, launch } => self.abort_launch(device, launch),
            Message::Release { device, handles } => self.release(device, &handles),
            Message::ResetAll { device } => self.reset_all(device),
            Message::Usage { device, done } => {
                let usage = self.device(device).map_or_else(Usage::default, |device| device.usage());
                done(usage);
            }
            Message::Detach { device, why, done } => self.detach(device, why, done),
            Message::Gone { device, done } => self.gone(device, done),
            Message::Snapshot { done } => self.take_snapshot(done),
            Message::DetachTimeout { device } => self.finish_detach(device),
            Message::Ping | Message::Stop => {}
        }
    }

    fn device(&mut self, id: AttachmentId) -> Option<&mut Device> {
        self.devices.get_mut(&id)
    }

    /// The data thread that serves a slot.
    fn shard(&self, slot: u32) -> &ShardLink {
        &self.shards[slot as usize % self.shards.len()]
    }
}
