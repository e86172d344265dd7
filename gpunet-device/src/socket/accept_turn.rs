//! When several groups find one connection to accept, one of them asks for it.
//!
//! Without turns, every idle block of a server sends a request for the same connection. All but one
//! get nothing, and the next connection waits behind these requests.

use crate::table::membership;
use crate::wait::turn::Turn;
use crate::{Net, platform};

/// How long others leave a connection to the group that asks for it: some times what the answer
/// takes.
const TURN_NS: u64 = 500_000;

/// The turn of one group. When it is dropped, others may ask.
pub(crate) struct AcceptTurn {
    net: Net,
    /// The listener's.
    slot: u32,
    turn: Turn,
}

/// Returns whether a group is asking for the only connection that waits at the listener in that
/// slot.
#[inline(always)]
pub(crate) fn is_taken(net: Net, slot: u32) -> bool {
    Turn::is_taken(net.accept_turn(slot))
}

impl AcceptTurn {
    /// Takes the turn, unless another group has it. By one lane.
    pub(crate) fn take(net: Net, slot: u32) -> Option<Self> {
        Some(Self { net, slot, turn: Turn::take(net.accept_turn(slot), TURN_NS)? })
    }
}

impl Drop for AcceptTurn {
    fn drop(&mut self) {
        self.turn.end();
        // A CPU block that saw the turn taken may sleep, although one more connection waits.
        membership::touch(self.net, self.slot);
        platform::wake_pollers(self.net.pollers(), self.net.epoch().as_ptr(), self.slot);
    }
}
