//! What a connection is between its turns.

use crate::backlog::{Backlog, Full};

/// A connection between its turns, beside its service's state. Equal on all lanes.
///
/// The two are kept apart: LLVM copies a structure of 128 bytes or more byte by byte on a GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    /// What is left in its buffer of answers: from where to where.
    pub(super) pending: (u32, u32),
    /// What is sent before that.
    pub(super) backlog: Backlog,
    /// The limit that its answers have reached: nothing more is read of it until it takes some.
    pub(super) full: Option<Full>,
    /// It is closed once nothing is left.
    pub(super) closes: bool,
    /// It waits for space to send: for what is left, or for what the service has still to send.
    pub(super) waits_for_space: bool,
    /// Its peer has to read before more can be sent.
    pub(super) is_blocked: bool,
    /// It has given its bell away.
    pub(super) rings: bool,
    /// The time that it waits for; 0: none.
    pub(super) at: u64,
    /// It waits for its bell or its time, and not only for its peer.
    pub(super) is_served: bool,
    /// Its peer sends no more, and everything that it has sent has come.
    pub(super) ended: bool,
    /// When the first bytes of a request came that is not complete; 0: there is none.
    pub(super) since: u64,
    /// When it last received or sent something.
    pub(super) active: u64,
    /// When it last took something of its answers, or none were there.
    pub(super) taken: u64,
}

const _: () = assert!(size_of::<Connection>() < 128);

impl Connection {
    /// Returns whether answers wait for space to be sent.
    pub(super) const fn has_answers(&self) -> bool {
        self.pending.0 < self.pending.1 || !self.backlog.is_empty()
    }

    pub(super) fn new(now: u64) -> Self {
        Self {
            pending: (0, 0),
            backlog: Backlog::default(),
            full: None,
            closes: false,
            waits_for_space: false,
            is_blocked: false,
            rings: false,
            at: 0,
            is_served: false,
            ended: false,
            since: 0,
            active: now,
            taken: now,
        }
    }
}
