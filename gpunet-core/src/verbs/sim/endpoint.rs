//! Endpoints: the data thread's handle of a connection.

use super::domain::Domain;
use super::event::EventChannel;
use super::hold::Hold;
use super::settings::Dice;
use crate::verbs::{Completion, Endpoint, Table, WorkRequest};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// An established connection.
pub(super) struct SimEndpoint {
    hold: Hold,
    qp: u64,
    domain: Arc<Domain>,
    completion_event: Arc<EventChannel>,
    connection_event: Arc<EventChannel>,
    arm_delay: RangeInclusive<Duration>,
    dice: Dice,
}

impl SimEndpoint {
    /// # Errors
    /// `ConnectionAborted` when the queue pair is gone, its process having been killed.
    pub fn new(hold: Hold, domain: Arc<Domain>) -> io::Result<Self> {
        let made = hold.fabric.locked(|state| {
            let number = hold.qp?;
            let qp = state.qps.get(&number)?;
            let events = (qp.completion_event.clone(), qp.connection_event.clone());
            // Its own dice: how often it arms must not change what happens to requests.
            let dice = Dice::new(!state.settings.seed, number);
            Some((number, events, state.settings.arm_delay.clone(), dice))
        });
        let (qp, (completion_event, connection_event), arm_delay, dice) =
            made.ok_or(io::ErrorKind::ConnectionAborted)?;
        Ok(Self { hold, qp, domain, completion_event, connection_event, arm_delay, dice })
    }
}

impl Endpoint for SimEndpoint {
    fn post(&mut self, request: &WorkRequest) -> io::Result<()> {
        self.hold.fabric.locked(|state| state.post(self.qp, request, Instant::now()))
    }

    fn post_receive(&mut self) -> io::Result<()> {
        self.hold.fabric.locked(|state| state.post_receive(self.qp))
    }

    fn poll(&mut self) -> Option<Completion> {
        self.hold.fabric.locked(|state| state.qps.get_mut(&self.qp)?.poll())
    }

    fn arm(&mut self) -> io::Result<()> {
        let delay = self.dice.within(&self.arm_delay);
        if !delay.is_zero() {
            thread::sleep(delay);
        }
        self.hold.fabric.locked(|state| {
            self.completion_event.clear();
            if let Some(qp) = state.qps.get_mut(&self.qp) {
                qp.armed = true;
            }
        });
        Ok(())
    }

    fn table(&self) -> &Table {
        &self.domain.table
    }

    fn is_disconnected(&mut self) -> bool {
        self.hold.fabric.locked(|state| {
            self.connection_event.clear();
            state.qps.get(&self.qp).is_none_or(|qp| qp.disconnected)
        })
    }

    fn shorten_rnr_timer(&mut self) -> io::Result<()> {
        self.hold.fabric.locked(|state| {
            let timer = state.settings.short_rnr_timer;
            if let Some(qp) = state.qps.get_mut(&self.qp) {
                qp.rnr_timer = timer;
            }
        });
        Ok(())
    }

    fn readiness(&self) -> [BorrowedFd<'_>; 2] {
        [self.completion_event.as_fd(), self.connection_event.as_fd()]
    }
}
