//! Notifications to systemd (sd_notify), if it started the daemon.

use sd_notify::NotifyState;
use std::time::Duration;

fn tell(states: &[NotifyState<'_>]) {
    // Without NOTIFY_SOCKET there is no receiver, and this succeeds.
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot tell systemd how it goes");
    }
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

/// Reports that the daemon stops, which may take so long.
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
    sd_notify::watchdog_enabled()
}
