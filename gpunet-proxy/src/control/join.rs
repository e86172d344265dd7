//! Direct streams between two attachments: an accept and a connect that wait for an arena with room.

use super::Control;
use super::arena::{ArenaRings, Pair, Room, Taken, pair_of};
use super::books::{Role, StreamMemory, Wait, Waiter, Waiting};
use super::pair::Meeting;
use super::request::allowed;
use gpunet_abi::Error;
use gpunet_abi::options::TransportKind;
use gpunet_core::transport::Connect;
use std::collections::BTreeMap;

/// The joins that wait, in the order in which they came.
#[derive(Default)]
pub(super) struct Joins {
    waiting: BTreeMap<u64, Join>,
    /// Connects that have not joined a listener's queue yet: their pair has no arena with room.
    preparing: BTreeMap<u64, Preparing>,
    begun: u64,
}

/// An accept and a connect that have met.
struct Join {
    /// Attachment and slot.
    listener: (u32, u32),
    waiter: Waiter,
    meeting: Meeting,
}

/// A connect before it queues.
struct Preparing {
    pair: Pair,
    control: u32,
    seq: u64,
    launch: u32,
    wish: Connect,
}

impl Join {
    fn pair(&self) -> Pair {
        pair_of(self.meeting.client.device, self.meeting.server.device)
    }
}

impl Control {
    /// Makes sure that a connect to another attachment's listener finds an arena with room; says whether
    /// it waits for that.
    pub(super) fn prepare(&mut self, control: u32, seq: u64, launch: u32, wish: &Connect) -> bool {
        let device = wish.ticket.device;
        let Some((other, listener)) = self.listener_at(wish.to).filter(|at| at.0 != device) else {
            return false;
        };
        let book = self.devices.get(&other).and_then(|device| device.slots.get(listener as usize));
        let Some(Role::Listener(listener)) = book.map(|book| &book.role) else { return false };
        let (ours, theirs) = (wish.options, listener.bound.options);
        let (up, down) = (ours.send_log2.max(theirs.recv_log2), ours.recv_log2.max(theirs.send_log2));
        match self.arenas.look(device, other, down, up) {
            Room::Here => return false,
            Room::Coming => {}
            // If there will be none, the accept will find out, and the connect go another way.
            Room::None if !self.make_arena(device, other, down, up) => return false,
            Room::None => {}
        }
        let id = self.joins.begun;
        self.joins.begun += 1;
        let preparing = Preparing { pair: pair_of(device, other), control, seq, launch, wish: wish.clone() };
        self.joins.preparing.insert(id, preparing);
        if let Some(device) = self.devices.get_mut(&device) {
            device.wait(control, seq, launch, Wait::Joining { join: id });
        }
        true
    }

    /// Lets the connects of a pair go on.
    fn go_on(&mut self, pair: Pair) {
        let of_pair = self.joins.preparing.iter().filter(|(_, preparing)| preparing.pair == pair);
        let ids: Vec<u64> = of_pair.map(|(&id, _)| id).collect();
        for id in ids {
            let Some(Preparing { control, seq, launch, wish, .. }) = self.joins.preparing.remove(&id) else {
                continue;
            };
            let device = wish.ticket.device;
            if let Some(book) = self.device(device) {
                book.requests.remove(&control);
                self.connect_prepared(device, (control, seq), launch, wish);
            }
        }
    }

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
        self.go_on(pair);
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
        self.go_on(pair);
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
        if let Some(Preparing { wish, .. }) = self.joins.preparing.remove(&id)
            && let Some(device) = self.device(device_id)
        {
            return device.recycle(wish.ticket.slot);
        }
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
