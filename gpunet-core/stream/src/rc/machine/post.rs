//! What the machine wants posted, and in which order: grants first, for the peer may be waiting for
//! them; then data; then the ends; and keep-alives when there is nothing else.

use super::{Ending, InFlight, Machine, Variant};
use crate::rc::message::{CONTROL_LIMIT, Message};
use crate::rc::work::{Op, Sge, Source};

impl Machine {
    /// The next request to post, if there is one; the driver posts it.
    pub fn poll(&mut self, now: u64) -> Option<Op> {
        if self.in_flight.is_empty() {
            self.waiting_since = now;
        }
        if let Some((message, entry)) = self.follow.take() {
            self.in_flight.push_back(entry);
            return Some(Op::Send { message });
        }
        if self.has_stopped() {
            return None;
        }
        self.poll_control()
            .or_else(|| self.poll_data())
            .or_else(|| self.poll_end())
            .or_else(|| self.poll_alive(now))
    }

    /// Grants and credits.
    fn poll_control(&mut self) -> Option<Op> {
        if self.peer_shut {
            return None;
        }
        let room = CONTROL_LIMIT - self.control_in_flight;
        let with_area = room >= self.cost(true);
        if room < self.cost(false) {
            return None;
        }
        let grant = self.receiver.grant(with_area)?;
        let (from, to, rkey) = match grant.area {
            Some((entry, area)) => {
                let sge = Sge { address: area.address, rkey: area.rkey, len: area.len };
                let swap = self.peer.big_endian != cfg!(target_endian = "big");
                let bytes = if swap { sge.to_swapped_bytes() } else { sge.to_bytes() };
                let to = self.peer.table.address + u64::from(entry) * size_of::<Sge>() as u64;
                (Source::Inline(bytes), to, self.peer.table.rkey)
            }
            None => (Source::Nothing, 0, 0),
        };
        let write = Op::Write { from, to, rkey, immediate: None };
        let entry = InFlight { data: 0, control: true, last: false };
        Some(self.post(write, Message::Credits(grant.limit), entry))
    }

    fn poll_data(&mut self) -> Option<Op> {
        if !self.has_slot() {
            return None;
        }
        let (len, write) = self.sender.next(self.offered - self.sender.posted())?;
        let entry = InFlight { data: len, control: false, last: false };
        Some(self.post(write, Message::Data(len), entry))
    }

    /// Shutdown, reset, disconnect.
    fn poll_end(&mut self) -> Option<Op> {
        if CONTROL_LIMIT - self.control_in_flight < self.cost(false) {
            return None;
        }
        let message = if self.reset == Ending::Wanted {
            self.reset = Ending::Sent;
            Message::Reset
        } else if self.disconnect == Ending::Wanted {
            self.disconnect = Ending::Sent;
            Message::Disconnect
        } else if self.shutdown == Ending::Wanted && self.offered == self.sender.posted() {
            self.shutdown = Ending::Sent;
            // The second half of a connection to end takes both along.
            if self.peer_shut {
                self.disconnect = Ending::Sent;
                Message::Disconnect
            } else {
                Message::Shutdown
            }
        } else {
            return None;
        };
        let entry = InFlight { data: 0, control: true, last: message != Message::Shutdown };
        let write = Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None };
        Some(self.post(write, message, entry))
    }

    /// A write of nothing, which only a living host acknowledges, and of which the peer sees
    /// nothing.
    fn poll_alive(&mut self, now: u64) -> Option<Op> {
        let due = self.in_flight.is_empty() && now.saturating_sub(self.alive_at) >= self.keepalive;
        if !due {
            return None;
        }
        self.control_in_flight += 1;
        self.in_flight.push_back(InFlight { data: 0, control: true, last: false });
        Some(Op::Write { from: Source::Nothing, to: 0, rkey: 0, immediate: None })
    }

    /// Posts a write and its message, as the variant has it.
    fn post(&mut self, write: Op, message: Message, entry: InFlight) -> Op {
        let bits = message.encode();
        let control = u32::from(entry.control);
        let Op::Write { from, to, rkey, .. } = write else { return write };
        self.control_in_flight += control;
        match self.variant {
            Variant::Immediate => {
                self.in_flight.push_back(entry);
                Op::Write { from, to, rkey, immediate: Some(bits) }
            }
            Variant::Send if from == Source::Nothing => {
                self.in_flight.push_back(entry);
                Op::Send { message: bits }
            }
            Variant::Send => {
                // The peer has the bytes when it has the message.
                self.in_flight.push_back(InFlight { data: 0, ..entry });
                self.control_in_flight += control;
                self.follow = Some((bits, entry));
                write
            }
        }
    }

    /// Send-queue slots of a message.
    const fn cost(&self, payload: bool) -> u32 {
        match self.variant {
            Variant::Send if payload => 2,
            _ => 1,
        }
    }

    pub(super) fn has_slot(&self) -> bool {
        let data = (self.in_flight.len() as u32).saturating_sub(self.control_in_flight);
        data + self.cost(true) <= self.sends
    }
}
