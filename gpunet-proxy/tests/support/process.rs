//! Programs that a test starts.

use std::ops::{Deref, DerefMut};
use std::process::Child;

/// A child process that is killed when this drops.
pub struct Killed(pub Child);

impl Deref for Killed {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Killed {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // Fails only if it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
