//! Direct streams between two attachments: an accept and a connect that wait for an arena with room.

use super::Control;
use super::arena::{ArenaRings, Pair, Taken, pair_of};
use super::books::{StreamMemory, Wait, Waiter, Waiting};
use super::pair::Meeting;
use super::request::allowed;
use gpunet_abi::Error;
use gpunet_abi::options::TransportKind;
use std::collections::BTreeMap;

/// The joins that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct Joins {
    waiting: BTreeMap<u64, Join>,
    begun: u64,
}

/// An accept and a connect that have met.
struct Join {
    /// Attachment and slot.
    listener: (u32, u32),
    waiter: Waiter,
    meeting: Meeting,
}

impl Join {
    fn pair(&self) -> Pair {
        pair_of(self.meeting.client.device, self.meeting.server.device)
    }
}

impl Control {
    /// Joins a connect and an accept of two attachments, at once if there is room in an arena of theirs.
    pub(super) fn join(&mut self, listener: (u32, u32), waiter: Waiter, meeting: Meeting) {
        let join = Join { listener, waiter, meeting };
        self.try_join(join);
    }

    /// Opens the stream, or waits for an arena with room.
    fn try_join(&mut self, join: Join) {
        let (client, server) = (&join.meeting.client, &join.meeting.server);
        let (up, down) = join.meeting.sizes();
        match self.arenas.take(client.device, server.device, down, up) {
            Taken::Rings(clients, servers) => {
                self.open_joined(&join.meeting, clients, servers);
            }
            Taken::Pending => self.wait_for_arena(join),
            Taken::None if self.make_arena(client.device, server.device, down, up) => {
                self.wait_for_arena(join)
            }
            Taken::None => self.give_up_join(join),
        }
    }

    fn open_joined(&mut self, meeting: &Meeting, clients: ArenaRings, servers: ArenaRings) {
        let ends = [(&meeting.client, &meeting.server, clients), (&meeting.server, &meeting.client, servers)];
        // Both ends stand in the books before either hears of it.
        for (end, other, rings) in &ends {
            if let Some(device) = self.devices.get_mut(&end.device) {
                device.requests.remove(&end.request.0);
                device.open_end(end, other, StreamMemory::Arena(*rings));
            }
        }
        for (end, other, rings) in ends {
            let silent = self.devices.get(&other.device).is_some_and(|device| device.attached.polled);
            let numbers = self.arenas.regions(rings.arena, end.device);
            let layout = self.arenas.layout(rings.arena);
            let (Some(numbers), Some(layout)) = (numbers, layout) else { continue };
            if let Some(device) = self.devices.get_mut(&end.device) {
                let addrs = (end.addr, other.addr);
                let descriptor = device.arena_descriptor(numbers, &layout, silent, &rings, addrs);
                device.reply_end(end, descriptor);
            }
        }
    }

    /// Keeps a join until the arena that is being made is ready.
    fn wait_for_arena(&mut self, join: Join) {
        let (client, server) = (&join.meeting.client, &join.meeting.server);
        if join.waiter.no_wait {
            // It would wait. The connect stays where it was; a later accept finds the arena.
            let Join { waiter, meeting, .. } = join;
            if let Some(device) = self.device(meeting.server.device) {
                device.recycle(waiter.target);
                device.reply_result(waiter.control, waiter.seq, Err(Error::WouldBlock));
            }
            return self.peer.put_back(meeting.at, meeting.wish.ticket);
        }
        let id = self.joins.begun;
        self.joins.begun += 1;
        for (end, launch) in [(client, None), (server, Some(join.waiter.launch))] {
            if let Some(device) = self.devices.get_mut(&end.device) {
                let before = device.requests.get(&end.request.0).map(|waiting| waiting.launch);
                let launch = launch.or(before).unwrap_or_default();
                device.wait(end.request.0, end.request.1, launch, Wait::Joining { join: id });
            }
        }
        self.joins.waiting.insert(id, join);
    }

    fn joins_of(&self, pair: Pair) -> Vec<u64> {
        self.joins.waiting.iter().filter(|(_, join)| join.pair() == pair).map(|(&id, _)| id).collect()
    }

    /// A pair has a new arena.
    pub(super) fn resume_joins(&mut self, pair: Pair) {
        for id in self.joins_of(pair) {
            let Some(join) = self.joins.waiting.remove(&id) else { continue };
            self.try_join(join);
        }
    }

    /// A pair gets no such arena: another one is tried (`again`), or the connects go another way.
    pub(super) fn retry_joins(&mut self, pair: Pair, again: bool) {
        for id in self.joins_of(pair) {
            let Some(join) = self.joins.waiting.remove(&id) else { continue };
            if again {
                self.try_join(join);
            } else {
                self.give_up_join(join);
            }
        }
    }

    /// There will be no direct stream: the accept waits for the next, the connect tries another way.
    fn give_up_join(&mut self, join: Join) {
        let Join { listener, waiter, meeting } = join;
        if let Some(device) = self.device(listener.0) {
            device.wait_first(listener.1, waiter);
        }
        let (client, wish) = (meeting.client, meeting.wish);
        let (control, seq) = client.request;
        let Some(device) = self.device(client.device) else { return };
        let Some(waiting) = device.requests.remove(&control) else { return };
        if allowed(wish.options.transport, TransportKind::Tcp) {
            tracing::info!(to = %wish.to, "no memory to share with that peer: not peer but the next transport");
            let (kind, next) = self.routes.plan(&wish);
            self.start_connect(client.device, (control, seq), waiting.launch, *wish, kind, next);
        } else {
            device.recycle(client.slot);
            device.reply_result(control, seq, Err(Error::NoBuffers));
        }
        self.serve(listener.0, listener.1);
    }

    /// One end of a join gives up: the other goes back to where it was.
    pub(super) fn leave_join(&mut self, device_id: u32, id: u64) {
        let Some(join) = self.joins.waiting.remove(&id) else { return };
        let Join { listener, waiter, meeting } = join;
        let (client, server) = (&meeting.client, &meeting.server);
        if device_id == client.device {
            if let Some(device) = self.device(client.device) {
                device.recycle(client.slot);
            }
            if let Some(device) = self.device(listener.0) {
                device.wait_first(listener.1, waiter);
            }
        } else {
            if let Some(device) = self.device(server.device) {
                device.recycle(server.slot);
            }
            if let Some(device) = self.devices.get_mut(&client.device)
                && let Some(waiting) = device.requests.get_mut(&client.request.0)
            {
                let ticket = meeting.wish.ticket;
                waiting.what = Wait::Queued { slot: client.slot, wish: meeting.wish };
                self.peer.put_back(meeting.at, ticket);
            }
        }
        self.serve(listener.0, listener.1);
    }

    /// A listener closes: its joins go back to their queues, which close with it.
    pub(super) fn leave_joins_at(&mut self, listener: (u32, u32)) {
        let at: Vec<u64> = self
            .joins
            .waiting
            .iter()
            .filter(|(_, join)| join.listener == listener)
            .map(|(&id, _)| id)
            .collect();
        for id in at {
            let Some(join) = self.joins.waiting.remove(&id) else { continue };
            let Join { waiter, meeting, .. } = join;
            if let Some(device) = self.device(listener.0) {
                device.wait_first(listener.1, waiter);
            }
            if let Some(device) = self.devices.get_mut(&meeting.client.device)
                && let Some(waiting) = device.requests.get_mut(&meeting.client.request.0)
            {
                let ticket = meeting.wish.ticket;
                *waiting = Waiting {
                    seq: waiting.seq,
                    launch: waiting.launch,
                    what: Wait::Queued { slot: meeting.client.slot, wish: meeting.wish },
                };
                self.peer.put_back(meeting.at, ticket);
            }
        }
    }
}
