//! Time stamps of the proxy's data thread: when it saw bytes of a kernel, and when bytes for the
//! kernel had landed.
//!
//! They come from the proxy's trace events, which cost nothing while they are off.

use gpunet_device::now_ns;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

/// The step of the data thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has seen bytes to send.
    Saw,
    /// It has published received bytes.
    Landed,
}

static WANTED: AtomicBool = AtomicBool::new(false);
static STAMPS: Mutex<Vec<(Step, u64)>> = Mutex::new(Vec::new());
static INSTALL: Once = Once::new();

/// Records steps from now on.
pub fn begin() {
    INSTALL.call_once(|| {
        // Fails if there is a subscriber already; then there are no stamps, which the caller
        // counts.
        let _ = tracing::subscriber::set_global_default(Stamps);
    });
    let mut stamps = STAMPS.lock().unwrap_or_else(PoisonError::into_inner);
    stamps.clear();
    stamps.reserve(1 << 16);
    drop(stamps);
    want(true);
}

/// Stops recording. Returns the recorded steps.
pub fn end() -> Vec<(Step, u64)> {
    want(false);
    std::mem::take(&mut *STAMPS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn want(wanted: bool) {
    // Ordering: Relaxed; the rebuilt cache decides, under a lock of its own.
    WANTED.store(wanted, Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

struct Stamps;

impl Stamps {
    fn is_wanted(metadata: &Metadata<'_>) -> bool {
        WANTED.load(Ordering::Relaxed) && metadata.target() == "gpunet_proxy::data"
    }
}

impl Subscriber for Stamps {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::is_wanted(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let wanted = WANTED.load(Ordering::Relaxed);
        Some(if wanted { LevelFilter::TRACE } else { LevelFilter::OFF })
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Self::is_wanted(metadata)
    }

    fn event(&self, event: &Event<'_>) {
        let at = now_ns();
        let mut name = Name(None);
        event.record(&mut name);
        if let Some(step) = name.0 {
            STAMPS.lock().unwrap_or_else(PoisonError::into_inner).push((step, at));
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Finds out which step an event is.
struct Name(Option<Step>);

impl Visit for Name {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = match format!("{value:?}").as_str() {
                "saw" => Some(Step::Saw),
                "landed" => Some(Step::Landed),
                _ => None,
            };
        }
    }
}
