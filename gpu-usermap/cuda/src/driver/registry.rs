//! The devices that a program has opened, and in which contexts.

use std::any::Any;
use std::sync::{Arc, Weak};

use super::raw::{CUdevice, ContextHandle};

/// Finds what was made for a device and still lives. It does not know what that is.
#[derive(Default)]
pub(crate) struct Registry {
    open: Vec<Open>,
}

struct Open {
    /// The device whose primary context was retained; `None` for a context of the caller's.
    primary: Option<CUdevice>,
    context: ContextHandle,
    opened: Weak<dyn Any + Send + Sync>,
}

impl Registry {
    /// Returns what lives in the primary context of that device and holds it.
    pub(crate) fn find<T: Any + Send + Sync>(&mut self, device: CUdevice) -> Option<Arc<T>> {
        self.find_where(|open| open.primary == Some(device))
    }

    /// Returns what lives in that context, whoever holds it.
    pub(crate) fn find_in<T: Any + Send + Sync>(&mut self, context: ContextHandle) -> Option<Arc<T>> {
        self.find_where(|open| open.context == context)
    }

    fn find_where<T: Any + Send + Sync>(&mut self, is: impl Fn(&Open) -> bool) -> Option<Arc<T>> {
        self.open.retain(|open| open.opened.strong_count() > 0);
        self.open.iter().find(|open| is(open))?.opened.upgrade()?.downcast().ok()
    }

    /// Remembers what was made in a context, for as long as it lives.
    pub(crate) fn add<T: Any + Send + Sync>(
        &mut self,
        primary: Option<CUdevice>,
        context: ContextHandle,
        opened: &Arc<T>,
    ) {
        let opened: Weak<T> = Arc::downgrade(opened);
        self.open.push(Open { primary, context, opened });
    }
}
