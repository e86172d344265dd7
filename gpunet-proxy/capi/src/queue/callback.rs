//! The callbacks of a queue: a thread waits for the results that they report, in order.

use super::outcome::error_of;
use crate::failure::Failure;
use gpu_usermap::threads;
use gpunet_proxy::queue::{QueueError, QueueOutcome};
use std::ffi::{c_int, c_void};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

/// The callbacks and the results that they wait for. The thread starts with the first of them, and
/// ends after the last when the queue is gone.
#[derive(Default)]
pub(super) struct Callbacks {
    thread: Mutex<Option<Sender<Told>>>,
}

struct Told {
    done: Receiver<QueueOutcome>,
    callback: unsafe extern "C" fn(user: *mut c_void, error: c_int),
    user: *mut c_void,
}

// SAFETY: `gpunet_host_done_fn` says that the callback takes `user` on another thread.
unsafe impl Send for Told {}

impl Callbacks {
    /// Calls a callback when the operation that `begin` enqueues is done.
    ///
    /// # Errors
    /// The system's, when it refuses a thread; that of `begin`. Then nothing was enqueued.
    pub(super) fn tell(
        &self,
        callback: unsafe extern "C" fn(user: *mut c_void, error: c_int),
        user: *mut c_void,
        begin: impl FnOnce() -> Result<Receiver<QueueOutcome>, Failure>,
    ) -> Result<(), Failure> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let told = match &mut *thread {
            Some(told) => told,
            none => {
                let (told, inbox) = channel::<Told>();
                let run = move || {
                    for Told { done, callback, user } in inbox {
                        let error = error_of(done.recv().ok());
                        // SAFETY: the program that passed it promises a function of this type,
                        // which takes `user` on this thread.
                        unsafe { callback(user, error) };
                    }
                };
                threads::spawn("gpunet-callback", run).map_err(QueueError::Thread)?;
                none.insert(told)
            }
        };
        // The thread receives them while this end exists.
        let _ = told.send(Told { done: begin()?, callback, user });
        Ok(())
    }
}
