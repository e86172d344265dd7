//! The device's socket table, as the host reads it and retires sockets in it while kernels run.
//!
//! The proxy closes the sockets of a launch that has ended, and keeps their slots and rings out of use.
//! The host then makes their handles stale in the device's own memory, and reads which launches ever
//! used them. Both are needed before a slot may be given out again: a kernel of another launch finds the
//! handle dead, or it is among the users, and its launch is waited for.

use crate::device_memory::DeviceMemory;
use gpu_usermap::cuda::CopyError;
use gpunet_abi::Handle;
use gpunet_abi::entry::{Kind, SlotState};
use gpunet_abi::hand_off::{self, HandOff};
use gpunet_abi::layout::DeviceLayout;
use gpunet_core::ids::LaunchId;
use std::sync::Arc;

/// The table of one attachment.
#[derive(Debug)]
pub(crate) struct SocketTable {
    memory: Arc<DeviceMemory>,
    layout: DeviceLayout,
    sockets: u32,
}

impl SocketTable {
    pub(crate) const fn new(memory: Arc<DeviceMemory>, layout: DeviceLayout, sockets: u32) -> Self {
        Self { memory, layout, sockets }
    }

    /// The sockets that were made and neither bound nor connected, and the launches that made them.
    pub(crate) fn fresh(&self) -> Result<Vec<(Handle, LaunchId)>, CopyError> {
        let states = self.memory.load_words::<u32>(self.layout.states as usize, self.sockets as usize)?;
        let fresh = states.into_iter().map(SlotState).enumerate();
        let fresh = fresh.filter(|(_, state)| state.kind() == Kind::Fresh);
        Ok(fresh
            .map(|(slot, state)| (Handle::new(slot as u32, state.generation()), LaunchId(state.launch())))
            .collect())
    }

    /// Makes handles stale that the proxy has closed and not given out again. Returns for each a bit for every
    /// launch that ever used it.
    ///
    /// Writes the states first and reads the users after them: see `use_handle` in gpunet-device.
    pub(crate) fn retire(&self, closed: &[Handle]) -> Result<Vec<u64>, CopyError> {
        let mut sorted: Vec<Handle> = closed.to_vec();
        sorted.sort_unstable_by_key(|handle| handle.slot());
        for run in sorted.chunk_by(|a, b| a.slot() + 1 == b.slot()) {
            let states: Vec<u32> = run.iter().map(|h| SlotState::retired(h.generation()).0).collect();
            let first = self.layout.states as usize + run[0].slot() as usize * size_of::<u32>();
            self.memory.store_words(first, &states)?;
        }
        hand_off::at(HandOff::TableTouched);
        let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Ok(Vec::new()) };
        let (first, count) = (first.slot() as usize, (last.slot() - first.slot()) as usize + 1);
        let users =
            self.memory.load_words::<u64>(self.layout.users as usize + first * size_of::<u64>(), count)?;
        hand_off::at(HandOff::TableTouched);
        Ok(closed.iter().map(|handle| users[handle.slot() as usize - first]).collect())
    }
}
