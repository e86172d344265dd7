//! Notifications to systemd (sd_notify), if it started the daemon.

use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

fn tell(states: &[NotifyState<'_>]) {
    let Some(place) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    if let Err(error) = send(place.as_bytes(), text.as_bytes()) {
        tracing::warn!(%error, "cannot tell systemd how it goes");
    }
}

/// Sends a datagram to a path, or to the abstract socket that `@` stands in front of (sd-notify
/// takes that for a path, too).
fn send(place: &[u8], text: &[u8]) -> io::Result<()> {
    let addr = match place {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(text, &addr).map(drop)
}

/// Reports that clients can attach.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Reports that settings are being reloaded; [`ready`] follows.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "no clock to tell systemd of a reload"),
    }
}

/// Reports that the daemon is stopping, which may take up to `bound`.
pub fn stopping(bound: Duration) {
    let micros = u32::try_from(bound.as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("sending what was accepted"),
    ]);
}

/// Reports that the daemon lives.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// The interval in which systemd expects [`alive`], if it does.
pub fn watchdog() -> Option<Duration> {
    // Zero is no interval.
    sd_notify::watchdog_enabled().filter(|interval| !interval.is_zero())
}
