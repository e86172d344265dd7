//! Ctrl-C and SIGTERM.

use gpunet_proxy::descriptors;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that was interrupted: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// The exit code of a program that was terminated: 128 + SIGTERM.
pub const TERMINATED: u8 = 143;

/// A request to end the program, by Ctrl-C or SIGTERM. A second request ends it immediately.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM.
    ///
    /// # Errors
    /// The system refused a thread or a signal handler.
    pub fn install() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = asked.clone();
        on_each(move |_| {
            // Ordering: Relaxed; a polled flag, which orders nothing.
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(INTERRUPTED));
            }
        })?;
        Ok(Self { asked })
    }

    /// Returns whether the program was asked to end.
    #[must_use]
    pub fn asked(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.asked.load(Ordering::Relaxed)
    }
}

/// From now on SIGINT and SIGTERM call `clean` and then end the program immediately.
///
/// # Errors
/// The system refused a thread or a signal handler.
pub fn end_after(mut clean: impl FnMut() + Send + 'static) -> io::Result<()> {
    on_each(move |code| {
        clean();
        std::process::exit(i32::from(code));
    })
}

/// Calls `then` for each SIGINT and SIGTERM, with the exit code of that signal.
///
/// A separate thread waits for them, so that the rest of the program need not be async.
fn on_each(mut then: impl FnMut(u8) + Send + 'static) -> io::Result<()> {
    let runtime = descriptors::runtime()?;
    let (mut interrupt, mut terminate) = {
        let _entered = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        runtime.block_on(async {
            loop {
                let code = tokio::select! {
                    _ = interrupt.recv() => INTERRUPTED,
                    _ = terminate.recv() => TERMINATED,
                };
                then(code);
            }
        });
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}
