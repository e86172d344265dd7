//! Endpoints: the data thread's handle of a connection.

use super::domain::Domain;
use super::event::EventFd;
use super::link::Hold;
use crate::verbs::{Completion, Endpoint, Table, WorkRequest};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

/// An established connection.
pub(super) struct SimEndpoint {
    hold: Hold,
    qp: u64,
    domain: Arc<Domain>,
    completion_event: Arc<EventFd>,
    connection_event: Arc<EventFd>,
}

impl SimEndpoint {
    /// # Errors
    /// `ConnectionAborted` when the queue pair is gone, its process having been killed.
    pub fn new(hold: Hold, domain: Arc<Domain>) -> io::Result<Self> {
        let events = hold.fabric.locked(|state| {
            let qp = hold.qp.and_then(|number| Some((number, state.qps.get(&number)?)))?;
            Some((qp.0, qp.1.completion_event.clone(), qp.1.connection_event.clone()))
        });
        let (qp, completion_event, connection_event) = events.ok_or(io::ErrorKind::ConnectionAborted)?;
        Ok(Self { hold, qp, domain, completion_event, connection_event })
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
