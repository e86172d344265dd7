//! A progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shorter work needs no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Shows the progress of the runs on stderr, if that is a terminal and they take longer than a
/// second.
pub struct Progress {
    start: Instant,
    bar: ProgressBar,
    total: u64,
    before: u64,
    shown: bool,
}

impl Progress {
    /// Makes a bar over `total` messages. With `quiet` it is never shown.
    pub fn new(total: u64, quiet: bool) -> Self {
        let visible = !quiet && std::io::stderr().is_terminal();
        let bar = if visible {
            ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden())
        } else {
            ProgressBar::hidden()
        };
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} messages  {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // "Shown" from the start if it must never be shown.
        Self { start: Instant::now(), bar, total, before: 0, shown: !visible }
    }

    /// Sets the name of the current run.
    pub fn run(&self, label: String) {
        self.bar.set_message(label);
    }

    /// Sets how many messages of the current run are done.
    pub fn set(&mut self, done: u64) {
        if !self.shown && self.start.elapsed() > SHOWN_AFTER {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position((self.before + done).min(self.total));
    }

    /// Counts the current run, of `messages`, as done.
    pub fn finish_run(&mut self, messages: u64) {
        self.set(messages);
        self.before += messages;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // The table follows, and must not contain the bar.
        self.bar.finish_and_clear();
    }
}
