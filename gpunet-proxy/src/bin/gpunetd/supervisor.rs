//! What systemd is told (sd_notify), if it started the daemon.

use sd_notify::NotifyState;
use std::time::Duration;

fn tell(states: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET nobody wants to know, and this succeeds.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell systemd how it goes");
    }
}

/// Clients can attach.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Settings are being read again; to be followed by [`ready`].
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "no clock to tell systemd of a reload"),
    }
}

/// The end begins, and may take so long.
pub fn stopping(bound: Duration) {
    let micros = u32::try_from(bound.as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("sending what was accepted"),
    ]);
}

/// It lives.
pub fn alive() {
    tell(&[NotifyState::Watchdog]);
}

/// How often systemd wants to hear [`alive`], if at all.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}
