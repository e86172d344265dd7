//! A connection's objects, and how it ends.

use std::sync::Arc;

use super::janitor::Janitor;
use super::parts::{Parts, Stage};

/// Ends a connection wherever it is: the card lets go at once, the janitor does the rest.
pub(super) struct Connection {
    parts: Option<Parts>,
    janitor: Arc<Janitor>,
}

impl Connection {
    pub(super) fn new(parts: Parts, janitor: Arc<Janitor>) -> Self {
        Self { parts: Some(parts), janitor }
    }

    pub(super) fn parts(&self) -> &Parts {
        self.parts.as_ref().expect("present until dropped")
    }

    pub(super) fn parts_mut(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("present until dropped")
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(mut parts) = self.parts.take() else { return };
        parts.quiesce();
        if parts.stage == Stage::Requested {
            // Fails when the client has gone, which is as good.
            let _ = parts.id.reject();
        }
        self.janitor.take(parts);
    }
}
