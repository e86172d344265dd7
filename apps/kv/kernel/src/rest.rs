//! What is left of an answer, or of a command, when a connection's turn is over.

use crate::reply::send_from;
use crate::store::Store;
use gpunet_device::{Group, Result};
use gpunet_kv_vectors::LongSearch;
use gpunet_serve::{Context, Pin, Queue, Writer};

/// Bytes of collected keys that are sent before other connections have their turns.
const SENT_IN_A_TURN: usize = 256 << 10;

/// Part of a connection's state, so plain data. [`Rest::clear`] gives its memory back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Rest {
    #[default]
    Nothing,
    /// A value that is being sent from where it lies, and how many bytes of it are sent.
    Value { pin: Pin, sent: u32 },
    /// Bulk strings that are being collected or sent, and how many bytes of the first of them are
    /// sent.
    Keys { keys: Queue, sent: u32 },
    /// A search of a set of vectors.
    Search { set: Pin, search: LongSearch },
}

// A connection's state is bounded.
const _: () = assert!(size_of::<Rest>() <= 24);

impl Rest {
    /// A value or a text. No byte of it has been sent.
    pub(crate) const fn of(pin: Pin) -> Self {
        Self::Value { pin, sent: 0 }
    }

    /// Returns whether it is a value that is being sent.
    pub(crate) const fn is_value(&self) -> bool {
        matches!(self, Self::Value { .. })
    }

    /// Goes on with a value, or with keys, these as far as a turn goes. Returns whether nothing of
    /// them is left.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn send<G: Group>(
        &mut self,
        g: &G,
        context: &Context,
        store: &Store,
        out: &mut Writer<'_>,
    ) -> Result<bool> {
        match self {
            Self::Nothing | Self::Search { .. } => return Ok(true),
            Self::Value { pin, sent } => loop {
                let rest = store.map.pinned(pin).skip(*sent as usize);
                if rest.is_empty() {
                    break;
                }
                match send_from(g, out, rest)? {
                    0 => return Ok(false),
                    more => *sent += more as u32,
                }
            },
            Self::Keys { keys, sent } => {
                let mut left = SENT_IN_A_TURN;
                while let Some(first) = keys.first(&store.requests) {
                    let rest = first.bytes.skip(*sent as usize).first(left);
                    let more = send_from(g, out, rest)?;
                    let is_blocked = more < rest.len();
                    *sent += more as u32;
                    left -= more;
                    if *sent as usize == first.bytes.len() {
                        keys.remove_first(g, context, &store.requests)?;
                        *sent = 0;
                    }
                    if is_blocked || left == 0 {
                        return Ok(keys.is_empty());
                    }
                }
                return Ok(true);
            }
        }
        if !out.make_room(g, 2)? {
            return Ok(false);
        }
        out.put(g, b"\r\n");
        self.clear(g, context, store)?;
        Ok(true)
    }

    /// Gives its memory back.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn clear<G: Group>(&mut self, g: &G, context: &Context, store: &Store) -> Result<()> {
        match core::mem::take(self) {
            Self::Nothing => Ok(()),
            Self::Value { pin, .. } => store.map.unpin(g, context, pin),
            Self::Keys { mut keys, .. } => keys.clear(g, context, &store.requests),
            Self::Search { set, search } => {
                store.vectors.end(g, context, search)?;
                store.map.unpin(g, context, set)
            }
        }
    }
}
