//! Times at which keys expire: clients count from 1970 or from now, keys expire by the device's
//! clock.

use super::Cx;
use gpunet_device::Group;
use gpunet_serve::Bytes;

/// How a client gives a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Milliseconds.
    pub(super) ms: i64,
    /// It counts from 1970.
    pub(super) is_absolute: bool,
}

impl Unit {
    /// What an option of SET and GETEX gives its time in.
    pub(super) fn of(option: Bytes<'_>) -> Option<Self> {
        let (ms, is_absolute) = if option.eq_ignore_case(b"ex") {
            (1000, false)
        } else if option.eq_ignore_case(b"px") {
            (1, false)
        } else if option.eq_ignore_case(b"exat") {
            (1000, true)
        } else if option.eq_ignore_case(b"pxat") {
            (1, true)
        } else {
            return None;
        };
        Some(Self { ms, is_absolute })
    }
}

/// What nanoseconds cannot express is centuries away, and cut.
const MOST: i64 = 1 << 62;
const NS_PER_MS: i64 = 1_000_000;

impl<G: Group> Cx<'_, '_, G> {
    /// In how many nanoseconds a time is, if Redis would take it: it counts milliseconds since 1970
    /// in 63 bits. Not above 0: it is over.
    pub(super) fn until(&self, time: i64, unit: Unit) -> Option<i64> {
        let ms = time.checked_mul(unit.ms)?;
        let ns = if unit.is_absolute {
            ms.saturating_mul(NS_PER_MS).saturating_sub(self.unix_ns as i64)
        } else {
            ms.checked_add(self.unix_ns as i64 / NS_PER_MS)?;
            ms.saturating_mul(NS_PER_MS)
        };
        Some(ns.clamp(-MOST, MOST))
    }

    /// The device's time in so many nanoseconds. What is over is so at once.
    pub(super) fn expires_in(&self, ns: i64) -> u64 {
        self.context.now + ns.max(0) as u64
    }

    /// Milliseconds from 1970 to a time of the device's clock.
    pub(super) fn unix_ms(&self, at: u64) -> i64 {
        (self.unix_ns as i64).saturating_add((at - self.context.now) as i64) / NS_PER_MS
    }
}
