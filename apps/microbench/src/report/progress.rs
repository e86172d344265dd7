//! The progress of a table.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::thread::Builder;

/// A bar on stderr, if that is a terminal.
pub struct Progress(ProgressBar);

impl Progress {
    pub fn new() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Starts a new bar with `steps` steps.
    pub fn begin(&mut self, what: &str, steps: usize) {
        // indicatif draws nothing if stderr is not a terminal.
        self.0 = ProgressBar::new(steps as u64);
        let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {elapsed}");
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.0.set_message(what.to_owned());
        // The clock needs a thread, and indicatif panics if it gets none.
        let has_threads = || Builder::new().spawn(|| ()).is_ok();
        if std::io::stderr().is_terminal() && has_threads() {
            self.0.enable_steady_tick(std::time::Duration::from_millis(200));
        }
    }

    /// Advances by one step.
    pub fn step(&self) {
        self.0.set_position((self.0.position() + 1).min(self.0.length().unwrap_or(0)));
    }

    /// Prints with the bar hidden.
    pub fn around(&self, print: impl FnOnce()) {
        self.0.suspend(print);
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
