//! Ctrl-C and SIGTERM.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code of a program that was interrupted: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;

/// Says whether somebody asked the program to end. The second asking ends it at once.
#[derive(Clone, Debug)]
pub struct Interrupt {
    asked: Arc<AtomicBool>,
}

impl Interrupt {
    /// Takes over SIGINT and SIGTERM.
    ///
    /// A thread of its own waits for them, so that nothing else of the program needs to be async.
    ///
    /// # Errors
    /// The system's, when it refuses a thread or a handler.
    pub fn install() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut interrupt, mut terminate) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        let asked = Arc::new(AtomicBool::new(false));
        let flag = asked.clone();
        let wait = move || {
            runtime.block_on(async {
                loop {
                    tokio::select! {
                        _ = interrupt.recv() => {}
                        _ = terminate.recv() => {}
                    }
                    // Ordering: Relaxed; a flag that is polled, nothing is ordered by it.
                    if flag.swap(true, Ordering::Relaxed) {
                        std::process::exit(i32::from(INTERRUPTED));
                    }
                }
            });
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait)?;
        Ok(Self { asked })
    }

    /// Says whether the program is to end.
    #[must_use]
    pub fn asked(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.asked.load(Ordering::Relaxed)
    }
}
