//! What is known of a panic in a thread block: where it was, and why.

use gpunet_abi::panic_record::{PANIC_TEXT, PanicRecord};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// A thread block of a launch panicked, on the CPU or on a GPU.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Group, Kernel, cpu};
///
/// #[derive(Clone, Copy)]
/// struct Fails;
/// impl Kernel for Fails {
///     const ENTRY: &'static str = "fails";
///     fn run<G: Group>(self, _: &G) {
///         panic!("on purpose");
///     }
/// }
///
/// let panicked = cpu::launch(1, 1, Fails)?.wait().unwrap_err();
/// assert_eq!((panicked.thread.as_str(), panicked.message.as_str()), ("gpunet-block-0", "on purpose"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockPanicked {
    /// The thread that panicked first: the name of a CPU block's thread, or block and thread of a
    /// GPU.
    pub thread: String,
    /// The panic's text.
    pub message: String,
    /// File, line and column; empty when the program has a panic hook of its own that does not call
    /// the one before it.
    pub location: String,
}

impl BlockPanicked {
    /// The panic that a GPU recorded.
    #[must_use]
    pub fn from_record(record: &PanicRecord) -> Self {
        let text = |bytes: &[u8; PANIC_TEXT], len: u32| {
            String::from_utf8_lossy(&bytes[..(len as usize).min(PANIC_TEXT)]).into_owned()
        };
        let (file, message) =
            (text(&record.file, record.file_len), text(&record.message, record.message_len));
        Self {
            thread: format!("block {}, thread {}", record.block, record.thread),
            message: if message.is_empty() {
                "(a text that a GPU cannot format)".to_owned()
            } else {
                message
            },
            location: format!("{file}:{}:{}", record.line, record.column),
        }
    }
}

impl std::fmt::Display for BlockPanicked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { thread, message, location } = self;
        match location.as_str() {
            "" => write!(f, "{thread} panicked: {message}"),
            location => write!(f, "{thread} panicked at {location}: {message}"),
        }
    }
}

impl std::error::Error for BlockPanicked {}

/// What a lane panics with because another one of its group did. Not reported: the first panic is
/// the reason.
struct AnotherLanePanicked;

thread_local! {
    static IS_BLOCK: Cell<bool> = const { Cell::new(false) };
    static LOCATION: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Ends the calling lane: another lane of its group has panicked.
pub(crate) fn follow() -> ! {
    // Without the hook, which would report it as a panic of its own.
    panic::resume_unwind(Box::new(AnotherLanePanicked))
}

/// Runs the body of a thread block's thread; returns its panic, unless it only followed another
/// one.
pub(crate) fn catch(body: impl FnOnce()) -> Result<(), BlockPanicked> {
    note_locations();
    IS_BLOCK.set(true);
    let Err(payload) = panic::catch_unwind(AssertUnwindSafe(body)) else { return Ok(()) };
    if payload.is::<AnotherLanePanicked>() {
        return Ok(());
    }
    Err(BlockPanicked {
        thread: std::thread::current().name().unwrap_or("a thread block").to_owned(),
        message: text(&*payload),
        location: LOCATION.take(),
    })
}

fn text(payload: &(dyn Any + Send)) -> String {
    let literal = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
    let formatted = || payload.downcast_ref::<String>().cloned();
    literal.or_else(formatted).unwrap_or_else(|| "(a value that is no text)".to_owned())
}

/// Makes panics of thread blocks note where they are: a hook before the program's own, which is
/// called as ever.
fn note_locations() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IS_BLOCK.get()
                && let Some(location) = info.location()
            {
                LOCATION.set(location.to_string());
            }
            before(info);
        }));
    });
}
