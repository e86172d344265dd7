//! The log of this process, line by line.

use std::io::{self, Write};
use std::sync::{Mutex, Once, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps what is written to it in [`LINES`]. Every event is one write.
struct Keep;

impl Write for Keep {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(text).trim_end().to_owned();
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct MakeKeep;

impl MakeWriter<'_> for MakeKeep {
    type Writer = Keep;

    fn make_writer(&self) -> Keep {
        Keep
    }
}

/// Begins to keep the warnings and errors of all threads of this process, as a program has them
/// that asks for no more.
pub fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(MakeKeep)
            .with_ansi(false)
            .init();
    });
}

/// The lines so far that contain all these words. Tests run side by side: one of the words is the
/// test's own.
pub fn with(words: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).cloned().collect()
}
