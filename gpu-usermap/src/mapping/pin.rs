//! GPU pages that GDRCopy's kernel module keeps in place, and the module's calls (`abi`).

pub(super) mod abi;

use std::os::fd::{AsFd, OwnedFd};

/// Keeps GPU pages pinned.
pub(super) struct Pin {
    pub(super) module: OwnedFd,
    pub(super) handle: u64,
}

impl Pin {
    /// Returns whether the driver took the memory back. A module that does not answer counts as one
    /// that did.
    pub(super) fn is_revoked(&self) -> bool {
        abi::is_revoked(self.module.as_fd(), self.handle).unwrap_or(true)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Err(error) = abi::unpin(self.module.as_fd(), self.handle) {
            // Closing the file, which comes next, unpins whatever is left.
            tracing::debug!(%error, "gdrdrv did not unpin");
        }
    }
}
