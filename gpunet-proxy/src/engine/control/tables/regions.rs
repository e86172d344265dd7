//! The numbers of a device's regions, and rings that lie in arenas.

use crate::model::message::Ring;
use gpunet_abi::region::{FIRST_ARENA, REGIONS};

/// The region numbers of a device's table.
#[derive(Debug)]
pub(in crate::engine::control) struct Regions {
    used: [bool; REGIONS],
}

impl Default for Regions {
    fn default() -> Self {
        Self { used: std::array::from_fn(|number| number < usize::from(FIRST_ARENA)) }
    }
}

impl Regions {
    pub(in crate::engine::control) fn take(&mut self) -> Option<u8> {
        let number = self.used.iter().position(|used| !used)?;
        self.used[number] = true;
        u8::try_from(number).ok()
    }

    pub(in crate::engine::control) fn give(&mut self, number: u8) {
        self.used[usize::from(number)] = false;
    }
}

/// The rings of one end of a stream in an arena.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine::control) struct ArenaRings {
    pub(in crate::engine::control) arena: u32,
    /// The ring in the peer's part.
    pub(in crate::engine::control) send: Ring,
    /// The ring in the own part.
    pub(in crate::engine::control) recv: Ring,
}
