//! Waiting for events on the control thread.

use std::io;
use std::os::fd::AsFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::cm::Id;
use super::event::Event;

/// Waits for the event that `wanted` picks.
///
/// # Errors
/// What another event means; the system's error when waiting fails.
pub(super) async fn expect(id: &mut Id, wanted: fn(&Event) -> bool) -> io::Result<Event> {
    loop {
        let event = next_event(id).await?;
        if wanted(&event) {
            return Ok(event);
        }
        if let Some(error) = event.error() {
            return Err(error);
        }
    }
}

async fn next_event(id: &mut Id) -> io::Result<Event> {
    loop {
        match id.next_event() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
        // Registered anew each time: that checks the present state, so no edge is missed, and the
        // descriptor is free to go to a data thread's epoll afterwards. Connections see few events.
        // SAFETY: the descriptor stays open and the same as long as the identifier is borrowed,
        // which is as long as `fd` lives; leaking the future leaks both.
        let fd = unsafe { AsyncFd::register_with_interest(id.as_fd(), Interest::READABLE) }
            .map_err(io::Error::from)?;
        drop(fd.readable().await?);
    }
}
