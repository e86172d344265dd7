//! The log: tracing's events, as text, for a callback of the program.

use crate::failure::{Failure, done};
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Errors: something failed that nobody asked about.
pub const GPUNET_HOST_LOG_ERROR: c_int = 1;
/// Warnings: something works less well than it could.
pub const GPUNET_HOST_LOG_WARN: c_int = 2;
/// Actions of an operator, and what an operator has to know; nothing per connection.
pub const GPUNET_HOST_LOG_INFO: c_int = 3;
/// Details that explain a behaviour.
pub const GPUNET_HOST_LOG_DEBUG: c_int = 4;
/// Everything.
pub const GPUNET_HOST_LOG_TRACE: c_int = 5;

/// Takes one event of the log: its level (GPUNET_HOST_LOG_ERROR to _TRACE), the module that wrote
/// it, and the text in one line. Both texts are valid during the call only.
///
/// It runs on any thread, also on several at a time, and must return soon. It must not call
/// gpunet_host_set_log.
pub type gpunet_host_log_fn =
    Option<unsafe extern "C" fn(level: c_int, module: *const c_char, text: *const c_char, user: *mut c_void)>;

/// The callback and its argument.
struct Sink {
    callback: gpunet_host_log_fn,
    user: *mut c_void,
}

// SAFETY: the caller of `gpunet_host_set_log` promises that the callback takes `user` on any
// thread.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: RwLock<Sink> = RwLock::new(Sink { callback: None, user: std::ptr::null_mut() });

/// The highest level that the callback receives; 0: none. It is read without [`SINK`]'s lock: an
/// event of the callback would take that lock a second time, and wait for a `gpunet_host_set_log`
/// that waits for the callback.
///
/// Ordering: relaxed. It only filters; the lock publishes the callback.
static LEVEL: AtomicI32 = AtomicI32::new(0);

/// Whether this module receives events. It does not if the program has another subscriber.
static INSTALLED: OnceLock<bool> = OnceLock::new();

thread_local! {
    /// Whether this thread is in the callback.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Sets where the log goes: to `callback`, with `user` as its last argument, up to `level`. A NULL
/// callback ends the log, which is how a program starts: the library writes nothing anywhere.
///
/// When it returns, the callback before it is no longer running and will not be called again.
/// Errors: -EINVAL for another level; -EDEADLK from within the callback; -EBUSY when the program is
/// in Rust and logs itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_set_log(
    level: c_int,
    callback: gpunet_host_log_fn,
    user: *mut c_void,
) -> c_int {
    done(|| {
        if !(GPUNET_HOST_LOG_ERROR..=GPUNET_HOST_LOG_TRACE).contains(&level) {
            return Err(Failure::new(
                libc::EINVAL,
                format!("there is no log level {level}; they are 1 to 5"),
            ));
        }
        if INSIDE.get() {
            return Err(Failure::new(libc::EDEADLK, "the log cannot be set from within its callback"));
        }
        let installed = INSTALLED.get_or_init(|| {
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(ToSink)).is_ok()
        });
        if !installed {
            return Err(Failure::new(
                libc::EBUSY,
                "the program has a subscriber for tracing's events already",
            ));
        }
        *SINK.write().unwrap_or_else(PoisonError::into_inner) = Sink { callback, user };
        LEVEL.store(if callback.is_some() { level } else { 0 }, Ordering::Relaxed);
        // Events that the old level filtered out may pass the new one.
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    })
}

/// Hands events to [`SINK`], with the fields of the spans around them.
struct ToSink;

/// A span's fields, as text.
struct Fields(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ToSink {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.is_span() || number(*metadata.level()) <= LEVEL.load(Ordering::Relaxed)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut text = Text::default();
        attributes.record(&mut text);
        if let Some(span) = cx.span(id) {
            span.extensions_mut().insert(Fields(text.fields));
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        for span in cx.event_scope(event).into_iter().flatten() {
            if let Some(Fields(fields)) = span.extensions().get() {
                text.fields.push_str(fields);
            }
        }
        tell(event.metadata(), &text);
    }
}

const fn number(level: Level) -> c_int {
    match level {
        Level::ERROR => GPUNET_HOST_LOG_ERROR,
        Level::WARN => GPUNET_HOST_LOG_WARN,
        Level::INFO => GPUNET_HOST_LOG_INFO,
        Level::DEBUG => GPUNET_HOST_LOG_DEBUG,
        Level::TRACE => GPUNET_HOST_LOG_TRACE,
    }
}

fn tell(metadata: &Metadata<'_>, text: &Text) {
    let line = format!("{}{}", text.message, text.fields).replace(['\n', '\0'], " ");
    let (Ok(module), Ok(line)) = (CString::new(metadata.target()), CString::new(line)) else { return };
    // An event that the callback causes is not reported, because its report would cause another
    // one.
    if INSIDE.replace(true) {
        return;
    }
    // Held during the call, as `gpunet_host_set_log` promises.
    let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(callback) = sink.callback {
        // SAFETY: the program that set it promises that it may be called on any thread; the texts
        // live until it returns.
        unsafe { callback(number(*metadata.level()), module.as_ptr(), line.as_ptr(), sink.user) };
    }
    drop(sink);
    INSIDE.set(false);
}

/// An event or a span as text: the message, and ` name=value` for each field.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::thread;
    use std::time::Duration;

    /// Causes an event while another thread waits to end the log.
    unsafe extern "C" fn cause_an_event(_: c_int, _: *const c_char, _: *const c_char, done: *mut c_void) {
        let end = thread::spawn(|| {
            // SAFETY: no callback.
            unsafe { gpunet_host_set_log(GPUNET_HOST_LOG_ERROR, None, std::ptr::null_mut()) }
        });
        // The outcome is the same whether or not the other thread waits by then.
        thread::sleep(Duration::from_millis(50));
        tracing::info!("from the callback");
        // SAFETY: the test's sender, which lives until the test has received this.
        let done = unsafe { &*done.cast::<Sender<thread::JoinHandle<c_int>>>() };
        done.send(end).expect("the test waits");
    }

    #[test]
    fn an_event_of_the_callback_waits_for_nobody() {
        let (done, is_done) = channel::<thread::JoinHandle<c_int>>();
        let user = Box::into_raw(Box::new(done)).expose_provenance();
        thread::spawn(move || {
            let user = std::ptr::with_exposed_provenance_mut::<c_void>(user);
            // SAFETY: it takes the sender, which is not freed, on any thread.
            unsafe { gpunet_host_set_log(GPUNET_HOST_LOG_INFO, Some(cause_an_event), user) };
            tracing::info!("the first");
        });
        let end = is_done.recv_timeout(Duration::from_secs(60)).expect("the callback does not end");
        assert_eq!(end.join().expect("no panic"), 0);
    }
}
