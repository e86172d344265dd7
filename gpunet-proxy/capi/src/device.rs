//! Sockets that the host program opens in the table of a device: for its kernels, or to take their
//! directions.
//!
//! As with a socket in C, one kind of handle names streams and listeners. Its state is behind a
//! lock that no call holds while it waits: a call that waits for a connection has a future of its
//! own, and the socket's [`Notify`] as its waker.
//!
//! | file | holds |
//! |---|---|
//! | `opening` | opening and closing |
//! | `names` | number, addresses, transport |
//! | `direction` | taken directions, and messages that are prepared in them |

mod direction;
mod names;
mod opening;

pub use direction::*;
pub use names::*;
pub use opening::*;

use crate::failure::Failure;
use crate::handle::handles;
use crate::socket::Notify;
use gpunet_proxy::socket::{ListeningSocket, Socket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A socket in the table of a device: a stream or a listener. Kernels use it by its number
/// (gpunet_host_device_number), as if one of them had opened it. Any thread may use it.
pub struct gpunet_host_device_socket_t(());

handles! { gpunet_host_device_socket_t, DEVICE_SOCKETS: DeviceSocket, 6, "device socket" }

pub(crate) struct DeviceSocket {
    /// `None` once it is closed, or left to the kernels.
    role: Mutex<Option<Role>>,
    notify: Arc<Notify>,
}

enum Role {
    Stream(Socket),
    Listener(ListeningSocket),
}

impl DeviceSocket {
    fn enter(role: Role) -> Result<*mut gpunet_host_device_socket_t, Failure> {
        let (role, notify) = (Mutex::new(Some(role)), Arc::default());
        gpunet_host_device_socket_t::new(Arc::new(Self { role, notify }))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Role>> {
        self.role.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uses the socket, which stays open during the call.
    fn with<R>(&self, body: impl FnOnce(&Role) -> Result<R, Failure>) -> Result<R, Failure> {
        self.lock().as_ref().ok_or_else(|| Failure::of(libc::EBADF)).and_then(body)
    }

    /// Takes the socket out, and ends the waits of other threads.
    fn take(&self) -> Result<Role, Failure> {
        let role = self.lock().take();
        self.notify.close();
        role.ok_or_else(|| Failure::of(libc::EBADF))
    }

    fn is_closed(&self) -> bool {
        self.lock().is_none()
    }
}
