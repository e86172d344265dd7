//! Sockets of the host program: a stream as `socket.socket` has it, and a listener.
//!
//! Each direction of a stream has a lock and a `Notify` of its own, so that one thread sends while
//! another receives. A close finds both free, since nobody sleeps with a lock in hand, and ends the
//! waits of other threads.

mod listener;
mod stream;

pub(crate) use listener::Listener;
pub(crate) use stream::{Connecting, Socket};

use crate::wait::{Limit, lock};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Mutex;

/// A timeout that can be.
pub(crate) fn checked(seconds: Option<f64>) -> PyResult<Option<f64>> {
    match seconds {
        Some(seconds) if seconds.is_nan() || seconds < 0.0 => {
            Err(PyValueError::new_err("a timeout is a number of seconds, not negative; or None: no limit"))
        }
        _ => Ok(seconds),
    }
}

/// How long the calls of a socket wait, as `socket.settimeout` sets it.
#[derive(Debug, Default)]
pub(super) struct Timeout(Mutex<Option<f64>>);

impl Timeout {
    pub(super) fn new(seconds: Option<f64>) -> PyResult<Self> {
        let timeout = Self::default();
        timeout.set(seconds)?;
        Ok(timeout)
    }

    pub(super) fn get(&self) -> Option<f64> {
        *lock(&self.0)
    }

    pub(super) fn set(&self, seconds: Option<f64>) -> PyResult<()> {
        *lock(&self.0) = checked(seconds)?;
        Ok(())
    }

    pub(super) fn limit(&self) -> Limit {
        Limit::of(self.get())
    }
}
