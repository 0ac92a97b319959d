//! Progress of a long measurement: a bar on a terminal, a line from time to time in a log.
//!
//! In: the current activity, and the expected milliseconds of each part. Out: text on the standard error.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::progress::progress_bar;

/// Minimum time between two lines of a log.
const LINE_EVERY: Duration = Duration::from_secs(20);

pub(super) struct MeasurementProgress {
    bar: ProgressBar,
    /// When the last line was written; none on a terminal.
    last_line: Option<Cell<Option<Instant>>>,
    began: Instant,
}

impl MeasurementProgress {
    /// Starts a measurement of so many expected milliseconds.
    pub(super) fn new(expected_ms: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = progress_bar(expected_ms, "{bar:40} {percent} %, {eta} left: {msg}");
        if is_terminal {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        Self { bar, last_line: (!is_terminal).then(Cell::default), began: Instant::now() }
    }

    /// Reports the current activity.
    pub(super) fn report(&self, what: String) {
        if let Some(last) = &self.last_line
            && last.get().is_none_or(|last| last.elapsed() >= LINE_EVERY)
        {
            last.set(Some(Instant::now()));
            eprintln!("{:4} s, {:3} %: {what}", self.began.elapsed().as_secs(), self.percent());
        }
        self.bar.set_message(what);
    }

    /// A part of so many expected milliseconds is done.
    pub(super) fn add(&self, expected_ms: u64) {
        self.bar.inc(expected_ms);
    }

    /// The measurement is done.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn percent(&self) -> u64 {
        100 * self.bar.position() / self.bar.length().unwrap_or(1).max(1)
    }
}
