//! How far a long measurement has come: a bar where somebody watches, now and then a line where a log is kept.
//!
//! In: what is being done, and how many milliseconds each part of it was expected to take. Out: text on standard error.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A log gets a line no more often than this.
const LINE_EVERY: Duration = Duration::from_secs(20);

pub(super) struct MeasurementProgress {
    bar: ProgressBar,
    /// When the last line was written; none if somebody watches.
    line: Option<Cell<Option<Instant>>>,
    began: Instant,
}

impl MeasurementProgress {
    /// Of something that is expected to take so many milliseconds.
    pub(super) fn new(expected_ms: u64) -> Self {
        let watched = std::io::stderr().is_terminal();
        let target = if watched { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(expected_ms), target).with_style(
            ProgressStyle::with_template("{bar:40} {percent} %, {eta} left: {msg}").expect("a constant template"),
        );
        if watched {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bar, line: (!watched).then(Cell::default), began: Instant::now() }
    }

    /// This is done now.
    pub(super) fn say(&self, what: String) {
        if let Some(last) = &self.line
            && last.get().is_none_or(|last| last.elapsed() >= LINE_EVERY)
        {
            last.set(Some(Instant::now()));
            eprintln!("{:4} s, {:3} %: {what}", self.began.elapsed().as_secs(), self.percent());
        }
        self.bar.set_message(what);
    }

    /// A part that was expected to take so many milliseconds is done.
    pub(super) fn add(&self, expected_ms: u64) {
        self.bar.inc(expected_ms);
    }

    /// All is done.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn percent(&self) -> u64 {
        100 * self.bar.position() / self.bar.length().unwrap_or(1).max(1)
    }
}
