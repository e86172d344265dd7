//! The devices that a program has opened.

use std::any::Any;
use std::sync::{Arc, Weak};

use super::raw::CUdevice;

/// Finds what was made for a device and still lives. It does not know what that is.
#[derive(Default)]
pub(super) struct Registry {
    open: Vec<(CUdevice, Weak<dyn Any + Send + Sync>)>,
}

impl Registry {
    /// Returns what lives of that device.
    pub(super) fn find<T: Any + Send + Sync>(&mut self, device: CUdevice) -> Option<Arc<T>> {
        self.open.retain(|(_, opened)| opened.strong_count() > 0);
        let known = self.open.iter().find(|(known, _)| *known == device);
        known?.1.upgrade()?.downcast().ok()
    }

    /// Remembers what was made for a device, for as long as it lives.
    pub(super) fn add<T: Any + Send + Sync>(&mut self, device: CUdevice, opened: &Arc<T>) {
        let opened: Weak<T> = Arc::downgrade(opened);
        self.open.push((device, opened));
    }
}
