//! What a connection is between its requests.

use crate::resp::Arguments;
use crate::store::Store;
use gpunet_device::{Group, Result};
use gpunet_serve::{Bytes, Context, Queue, SPACES, Spill};

/// Whether requests are carried out as they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transaction {
    /// They are.
    #[default]
    None,
    /// They are queued for EXEC.
    Open,
    /// One of them was wrong: EXEC will carry out none.
    Aborted,
}

/// Which requests are answered: CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Replies {
    #[default]
    On,
    /// All but the next one.
    SkipNext,
    /// All but this one.
    Skip,
    Off,
}

/// What a client has set for its connection. Its memory is given back by [`Session::clear`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Session {
    pub(crate) name: Spill,
    /// The requests of its transaction, and how many they are.
    pub(crate) queue: Queue,
    pub(crate) queued: u32,
    pub(crate) transaction: Transaction,
    /// The number of its database, below [`SPACES`].
    pub(crate) database: u8,
    /// [`LET_IN`], [`RESP3`]: two in one byte, because a connection's state has few.
    flags: u8,
    pub(crate) replies: Replies,
}

/// It has given the password.
const LET_IN: u8 = 1;
/// Its answers are written as RESP3 has it.
const RESP3: u8 = 2;

impl Session {
    /// Returns whether the client has given the password.
    pub(crate) fn is_let_in(&self) -> bool {
        self.flags & LET_IN != 0
    }

    pub(crate) fn let_in(&mut self) {
        self.flags |= LET_IN;
    }

    /// Returns whether answers are written as RESP3 has it.
    pub(crate) fn is_resp3(&self) -> bool {
        self.flags & RESP3 != 0
    }

    pub(crate) fn set_resp3(&mut self, is_resp3: bool) {
        self.flags = self.flags & !RESP3 | if is_resp3 { RESP3 } else { 0 };
    }

    /// Returns whether the present request is not answered.
    pub(crate) fn is_muted(&self) -> bool {
        matches!(self.replies, Replies::Skip | Replies::Off)
    }

    /// Goes on to the next request.
    pub(crate) fn end_request(&mut self) {
        self.replies = match self.replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
    }

    /// Ends the transaction, if there is one, and forgets what was queued.
    pub(crate) fn end_transaction<G: Group>(
        &mut self,
        g: &G,
        context: &Context,
        store: &Store,
    ) -> Result<()> {
        (self.transaction, self.queued) = (Transaction::None, 0);
        self.queue.clear(g, context, &store.requests)
    }

    /// Bytes of memory that it takes.
    pub(crate) fn held(&self, store: &Store) -> usize {
        self.name.held(&store.requests) + self.queue.held()
    }

    /// Gives its memory back.
    pub(crate) fn clear<G: Group>(&mut self, g: &G, context: &Context, store: &Store) -> Result<()> {
        self.end_transaction(g, context, store)?;
        self.name.clear(g, context, &store.requests)
    }
}

/// The number of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Is(u8),
    NoInteger,
    NoInt32,
    OutOfRange,
}

impl Database {
    pub(crate) fn of(mut arguments: Arguments<'_>) -> Self {
        match arguments.next().unwrap_or(Bytes::EMPTY).number() {
            None => Self::NoInteger,
            Some(number) if number < i32::MIN as i64 || number > i32::MAX as i64 => Self::NoInt32,
            Some(number) if number < 0 || number >= SPACES as i64 => Self::OutOfRange,
            Some(number) => Self::Is(number as u8),
        }
    }
}
