//! The log: to standard error, for people, for journald or for programs; rate-limited.

use crate::values::{Filter, LogFormat};
use std::collections::HashMap;
use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Context, Filter as LayerFilter, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Events a second from one place in the code. Twenty are enough to see what is going on, and a
/// client that provokes them, errors included, cannot fill a disk.
const PER_SECOND: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// Starts the log. The caller calls [`Limiter::tell`] of the result once a second.
pub fn init(filter: &Filter, format: LogFormat) -> Limiter {
    let limiter = Limiter::default();
    // journald has the time, and the level from a prefix.
    let journal = std::env::var_os("JOURNAL_STREAM").is_some();
    let writer = Writer { prefix: journal && format == LogFormat::Text };
    let ansi = !journal && io::stderr().is_terminal();
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(ansi);
    let layer = match (format, journal) {
        (LogFormat::Text, false) => layer.boxed(),
        (LogFormat::Text, true) => layer.without_time().boxed(),
        (LogFormat::Json, false) => layer.json().flatten_event(true).boxed(),
        (LogFormat::Json, true) => layer.json().flatten_event(true).without_time().boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(Limit(limiter.clone())))
        .with(filter.compile())
        .init();
    limiter
}

/// Counts the events of each place in the code within the last second.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    places: Arc<Mutex<HashMap<Identifier, Place>>>,
}

#[derive(Debug)]
struct Place {
    metadata: &'static Metadata<'static>,
    since: Instant,
    said: u32,
    suppressed: u64,
}

impl Limiter {
    /// Returns whether this event may be logged.
    fn passes(&self, metadata: &'static Metadata<'static>, now: Instant) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Place { metadata, since: now, said: 0, suppressed: 0 };
        let place = places.entry(metadata.callsite()).or_insert_with(fresh);
        if now.duration_since(place.since) >= WINDOW {
            (place.since, place.said) = (now, 0);
        }
        let passes = place.said < PER_SECOND;
        if passes {
            place.said += 1
        } else {
            place.suppressed += 1
        }
        passes
    }

    /// Takes what was suppressed since the last call.
    fn suppressed(&self) -> Vec<(&'static Metadata<'static>, u64)> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = places.values_mut().map(|place| (place.metadata, std::mem::take(&mut place.suppressed)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Logs how much was suppressed since the last call.
    pub fn tell(&self) {
        for (metadata, count) in self.suppressed() {
            let (file, line) = (metadata.file().unwrap_or("?"), metadata.line().unwrap_or(0));
            // At the level of the suppressed events.
            match *metadata.level() {
                Level::ERROR => tracing::error!("{count} more suppressed of {file}:{line}"),
                Level::WARN => tracing::warn!("{count} more suppressed of {file}:{line}"),
                Level::INFO => tracing::info!("{count} more suppressed of {file}:{line}"),
                _ => tracing::debug!("{count} more suppressed of {file}:{line}"),
            }
        }
    }
}

/// The limiter as a filter of what is written. Spans pass: they are only written with events.
struct Limit(Limiter);

impl<S: Subscriber> LayerFilter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.passes(event.metadata(), Instant::now())
    }
}

/// Standard error; with journald's prefix for the level, if wanted.
struct Writer {
    prefix: bool,
}

/// One line.
struct Line {
    prefix: &'static str,
    text: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { prefix: "", text: Vec::new() }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        // The priorities of syslog, see sd-daemon(3).
        let prefix = match *metadata.level() {
            _ if !self.prefix => "",
            Level::ERROR => "<3>",
            Level::WARN => "<4>",
            Level::INFO => "<6>",
            _ => "<7>",
        };
        Line { prefix, text: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.text.is_empty() {
            self.text.extend_from_slice(self.prefix.as_bytes());
        }
        self.text.extend_from_slice(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stderr: Stderr = io::stderr();
        let text = std::mem::take(&mut self.text);
        stderr.write_all(&text)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // There is nowhere left to report it.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts what reaches it.
    #[derive(Clone, Default)]
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn with_limit(body: impl FnOnce(&Limiter)) -> usize {
        let (limiter, count) = (Limiter::default(), Count::default());
        let layer = count.clone().with_filter(Limit(limiter.clone()));
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || body(&limiter));
        count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn each_place_is_limited_alone_and_the_rest_is_counted() {
        let passed = with_limit(|limiter| {
            (0..50).for_each(|_| tracing::warn!("one place"));
            (0..5).for_each(|_| tracing::warn!("another place"));
            let suppressed = limiter.suppressed();
            assert_eq!(suppressed.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [30]);
            assert!(limiter.suppressed().is_empty(), "said once");
        });
        assert_eq!(passed, 25);
    }

    #[test]
    fn errors_are_limited_as_well() {
        assert_eq!(with_limit(|_| (0..100).for_each(|_| tracing::error!("an error"))), 20);
    }

    #[test]
    fn what_was_suppressed_is_said_once_and_passes() {
        let passed = with_limit(|limiter| {
            (0..30).for_each(|_| tracing::info!("a flood"));
            limiter.tell();
            limiter.tell();
        });
        assert_eq!(passed, 21);
    }

    #[test]
    fn a_new_second_brings_new_events() {
        let metadata: Arc<Mutex<Option<&'static Metadata<'static>>>> = Arc::default();
        struct Keep(Arc<Mutex<Option<&'static Metadata<'static>>>>);
        impl<S: Subscriber> Layer<S> for Keep {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                *self.0.lock().unwrap() = Some(event.metadata());
            }
        }
        let subscriber = tracing_subscriber::registry().with(Keep(metadata.clone()));
        tracing::subscriber::with_default(subscriber, || tracing::info!("an event"));
        let metadata = metadata.lock().unwrap().unwrap();
        let (limiter, start) = (Limiter::default(), Instant::now());
        let passed =
            |ms| (0..100).filter(|_| limiter.passes(metadata, start + Duration::from_millis(ms))).count();
        assert_eq!([0, 999, 1000, 5000].map(passed), [20, 0, 20, 20]);
        assert_eq!(limiter.suppressed()[0].1, 340);
    }

    #[test]
    fn journald_gets_the_level_in_front() {
        let mut line = Line { prefix: "<4>", text: Vec::new() };
        line.write_all(b"a ").unwrap();
        line.write_all(b"b\n").unwrap();
        assert_eq!(std::mem::take(&mut line.text), b"<4>a b\n");
    }
}
