//! Everything that lives on a device's agent thread: the current context, copies, launches,
//! deferred releases.

#![allow(unsafe_code, reason = "makes a context current, and releases it")]

use std::time::{Duration, Instant};

use super::backoff::Backoff;
use super::copies::CopyLane;
use super::launches::Launches;
use super::release::Release;
use crate::driver::raw::constants::STREAM_CAPTURE_MODE_RELAXED;
use crate::driver::raw::{CUdevice, ContextHandle};
use crate::driver::{Cuda, CudaError, Driver, log};

/// How long the last handle's drop waits for kernels that still run. Longer than the 2 s for which
/// a gpunet kernel outlives its proxy's heartbeat, short enough for a person to wait.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// Whose context it is.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// The device's primary context, retained here and released at the end.
    Primary(CUdevice),
    /// The caller's: it outlives the device handle, and is left as it is.
    Borrowed(ContextHandle),
}

/// The agent's state. Made, used and closed on the agent thread.
pub(crate) struct Context {
    cuda: Cuda,
    device: CUdevice,
    handle: ContextHandle,
    owned: bool,
    pub(crate) copies: CopyLane,
    pub(crate) launches: Launches,
    deferred: Vec<Release>,
}

impl Context {
    /// Makes the context current on this thread, and the streams and staging memory in it.
    pub(crate) fn open(cuda: Cuda, origin: Origin) -> Result<Self, CudaError> {
        let driver = cuda.driver();
        let (handle, owned) = match origin {
            Origin::Primary(device) => (driver.primary_context_retain(device)?, true),
            Origin::Borrowed(handle) => (handle, false),
        };
        // SAFETY: just retained, or borrowed from a caller who promised that it lives on.
        let lanes = unsafe { driver.context_set_current(handle) }
            .and_then(|()| Ok((driver.current_device()?, CopyLane::open(driver)?, Launches::open(driver)?)));
        if let Ok(streams) = driver.streams() {
            // While any thread captures a graph in the global mode, the driver refuses many calls
            // on all threads but those that have said that their calls have nothing to do with it,
            // and the capture fails with the call.
            log(streams.exchange_capture_mode(STREAM_CAPTURE_MODE_RELAXED).map(|_| ()));
        }
        match lanes {
            Ok((device, copies, launches)) => {
                Ok(Self { cuda, device, handle, owned, copies, launches, deferred: Vec::new() })
            }
            Err(error) => {
                if let Origin::Primary(device) = origin {
                    // SAFETY: retained above; what was made in it goes with it, or stays for its
                    // other users.
                    log(unsafe { driver.primary_context_release(device) });
                }
                Err(error)
            }
        }
    }

    pub(crate) fn driver(&self) -> &Driver {
        self.cuda.driver()
    }

    pub(crate) fn device(&self) -> CUdevice {
        self.device
    }

    pub(crate) fn handle(&self) -> ContextHandle {
        self.handle
    }

    /// Splits the state, for an operation of the copy lane.
    pub(crate) fn copying(&mut self) -> (&Driver, &mut CopyLane) {
        (self.cuda.driver(), &mut self.copies)
    }

    /// Splits the state, for an operation on launches.
    pub(crate) fn launching(&mut self) -> (&Driver, &mut Launches) {
        (self.cuda.driver(), &mut self.launches)
    }

    /// Finds the launches that have ended, and returns how many still run.
    pub(crate) fn reap(&mut self) -> usize {
        let (driver, launches) = self.launching();
        launches.reap(driver)
    }

    /// Returns whether a call that waits for kernels would wait now, for others than `own` streams.
    pub(crate) fn is_busy(&mut self, own: usize) -> bool {
        let runs = self.reap() > 0 || self.launches.has_foreign();
        runs || self.launches.busy_streams().hold().has_more_than(own)
    }

    /// Returns whether work may be running whose end will be announced: launches of others,
    /// streams.
    fn has_announced(&self) -> bool {
        self.launches.has_foreign() || self.launches.busy_streams().hold().is_busy()
    }

    /// Sets local memory aside for stacks of so many bytes per thread, unless a kernel runs: the
    /// driver would wait for it.
    pub(crate) fn set_local_memory_aside(&mut self, bytes: u32) {
        let (driver, launches) = self.launching();
        launches.set_local_memory_aside(driver, bytes);
    }

    pub(crate) fn defer(&mut self, release: Release) {
        self.deferred.push(release);
    }

    /// Returns whether something is to be given back as soon as the launches of this device and
    /// dropped streams have ended. The end of others is announced.
    pub(crate) fn has_deferred(&self) -> bool {
        self.launches.has_left() || (!self.deferred.is_empty() && !self.has_announced())
    }

    /// Gives back what dropped handles left, if no launch runs.
    pub(crate) fn release_if_idle(&mut self) {
        if self.deferred.is_empty() && !self.launches.has_left() {
            return;
        }
        let runs = self.reap() > 0 || self.launches.has_foreign();
        let busy_streams = self.launches.busy_streams().clone();
        let mut streams = busy_streams.hold();
        let is_idle = !runs && !streams.is_busy();
        // Under the lock: a stream that ends from here on tells.
        streams.await_end(!is_idle);
        if is_idle {
            for release in std::mem::take(&mut self.deferred) {
                log(release.perform(self.driver()));
            }
        }
    }

    /// Ends the agent's use of the context: waits for kernels, up to a bound, and gives everything
    /// back.
    ///
    /// A kernel that outlasts the bound keeps what it uses: memory, mappings, module and context
    /// are leaked to it, because every call that frees them would wait for it as well.
    pub(crate) fn close(mut self) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        let mut backoff = Backoff::new();
        while self.reap() > 0 {
            if Instant::now() >= deadline {
                let launches = self.reap();
                tracing::error!(
                    launches,
                    deferred = self.deferred.len(),
                    "kernels run on after their device was dropped; their memory is leaked"
                );
                return;
            }
            backoff.pause(Some(deadline));
        }
        self.release_if_idle();
        let driver = self.cuda.driver();
        self.copies.close(driver).into_iter().for_each(log);
        self.launches.close(driver).into_iter().for_each(log);
        if self.owned {
            // SAFETY: `open` retained it once, and every child of this device is gone.
            log(unsafe { driver.primary_context_release(self.device) });
        }
    }
}
