//! A machine whose peer lies. The audit decides what is a lie.

use crate::audit::Audit;
use gpunet_core::rc::{Config, Failure, Hello, Machine};
use gpunet_core::verbs::Sge;

/// A machine whose peer lies, and the account of what it may do.
pub struct Victim {
    pub machine: Machine,
    audit: Audit,
    peer_shut: bool,
    offered: u64,
    consumed: u64,
}

impl Victim {
    pub fn new(config: Config, peer: Hello) -> Self {
        Self {
            machine: Machine::new(&config, peer, 0),
            audit: Audit::new(config, peer),
            peer_shut: false,
            offered: 0,
            consumed: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.machine.failure().is_some()
    }

    fn pump(&mut self) {
        while let Some(op) = self.machine.poll(0) {
            self.audit.posted(&op);
        }
    }

    fn message(&mut self, bits: u32, written: Option<u32>) {
        let argument = bits & 0x1fff_ffff;
        let wrong_length = written.is_some_and(|written| written != argument);
        let no_credit = self.audit.peer_credits() == 0;
        let lie = match bits >> 29 {
            0 => {
                let too_long = u64::from(argument) > self.audit.room();
                argument == 0 || self.peer_shut || wrong_length || no_credit || too_long
            }
            4 => self.audit.is_bad_limit(argument as u16),
            6 => no_credit,
            2 | 7 => false,
            _ => true,
        };
        let taken = self.machine.handle_message(bits, written, 0);
        assert_eq!(taken.is_err(), lie, "{bits:#x} was taken as {taken:?}");
        if let Err(violation) = taken {
            assert_eq!(self.machine.failure(), Some(Failure::Protocol(violation)));
            return;
        }
        match (bits >> 29, argument) {
            (0, len) => self.audit.data(len),
            (4, limit) => self.audit.limit(limit as u16),
            (6, _) => self.audit.counted(),
            (7, 0 | 2) => self.peer_shut = true,
            (7, 3) => assert_eq!(self.machine.failure(), Some(Failure::Reset)),
            _ => {}
        }
        assert_eq!(self.machine.is_peer_shut(), self.peer_shut);
        assert_eq!(self.machine.received(), self.audit.received());
    }

    fn area(&mut self, area: Sge) {
        let impossible = area.len == 0 || area.address.checked_add(u64::from(area.len)).is_none();
        let lie = impossible || self.audit.areas() == 2;
        let taken = self.machine.handle_area(area);
        assert_eq!(taken.is_err(), lie, "{area:?} was taken as {taken:?}");
        if lie {
            assert!(self.is_over());
        } else {
            self.audit.area(area);
        }
    }

    fn step(&mut self, (what, how): (u8, u32)) {
        let some = how % 512;
        match what {
            // Honest, while it can be.
            0..40 => {
                let len = u64::from(some + 1).min(self.audit.room()) as u32;
                if len > 0 && self.audit.peer_credits() > 0 && !self.peer_shut {
                    self.message(len, (how & 512 == 0).then_some(len));
                }
            }
            40..60 => {
                let more = (some as u16).min(self.audit.most_credits());
                self.message(4 << 29 | u32::from(self.audit.limit_for(more)), None);
            }
            60..80 => {
                if self.audit.areas() < 2 {
                    self.area(Sge { address: u64::from(how) << 20, rkey: how, len: some + 1 });
                }
            }
            80..130 => {
                let unread = self.audit.received() - self.consumed;
                self.consumed += u64::from(some).min(unread);
                self.audit.consumed(self.consumed);
                self.machine.handle_consumed(self.consumed);
            }
            130..190 => {
                self.offered += u64::from(some);
                self.machine.offer(self.offered);
            }
            190..230 => {
                if !self.audit.is_idle() {
                    self.audit.completed();
                    self.machine.handle_sent(0);
                }
            }
            230..232 => self.message(if how & 1 == 0 { 0xe000_0002 } else { 0xe000_0000 }, Some(0)),
            232 => {
                if how & 1 == 0 {
                    self.machine.disconnect();
                }
            }
            // Lies.
            233..236 => self.message(how, None),
            236..238 => self.message(some, Some(how >> 20)),
            238..240 => self.message(self.audit.room() as u32 + 1, None),
            240..243 => self.message(4 << 29 | (how & 0xffff), None),
            243..246 => self.message(6 << 29, None),
            246..250 => self.area(Sge { address: u64::MAX - u64::from(how >> 16), rkey: 0, len: how }),
            250..253 => self.area(Sge { address: 0, rkey: how, len: some }),
            _ => self.machine.handle_send_failed(Failure::Unreachable),
        }
    }

    /// Plays them, and checks all that the machine does.
    pub fn play(&mut self, steps: &[(u8, u32)]) {
        let mut steps = steps.iter();
        while !self.is_over()
            && let Some(step) = steps.next()
        {
            self.step(*step);
            if !self.is_over() && step.0 < 253 {
                self.pump();
            }
        }
        if !self.is_over() {
            return;
        }
        let failure = self.machine.failure();
        assert_eq!(self.machine.poll(0), None, "nothing is posted after the failure");
        assert!(self.machine.is_settled() && !self.machine.may_send());
        // Whatever comes then: no panic, and the first reason stays.
        for (what, how) in steps {
            let bits = how ^ u32::from(*what) << 24;
            _ = self.machine.handle_message(bits, what.is_multiple_of(2).then_some(*how), 0);
            _ = self.machine.handle_area(Sge { address: u64::from(*how), rkey: 0, len: bits });
            self.machine.handle_sent(0);
            assert_eq!(self.machine.poll(0), None);
        }
        assert_eq!(self.machine.failure(), failure);
    }
}
