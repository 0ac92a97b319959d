//! Progress on the standard error: bars on a terminal, a line every few seconds elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps. The template is a constant of the caller, in the language of `indicatif`.
///
/// # Panics
/// If the template is malformed.
pub fn progress_bar(steps: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).expect("a constant template");
    ProgressBar::new(steps).with_style(style)
}

/// The template of a bar with a message and the remaining time.
pub const MESSAGE_AND_ETA: &str = "{bar:40} {pos}/{len} {msg} {eta}";

/// How often a line is written where the standard error is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// The progress of work in steps, from any thread: a bar on a terminal, otherwise a line every few seconds.
pub struct StepProgress {
    bar: ProgressBar,
    what: String,
    steps: u64,
    started: Instant,
    /// When the last line was written; none on a terminal.
    lines: Option<Mutex<Instant>>,
    done: Mutex<u64>,
}

impl StepProgress {
    /// Progress of so many steps; `what` names the work, `unit` its steps.
    pub fn new(what: &str, steps: u64, unit: &str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = progress_bar(steps, "{msg}  {bar:40} {pos}/{len}, {eta} to go");
        bar.set_message(what.to_owned());
        if is_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let now = Instant::now();
        let lines = (!is_terminal).then(|| Mutex::new(now));
        Self { bar, what: format!("{what}: {unit}"), steps, started: now, lines, done: Mutex::new(0) }
    }

    /// So many further steps are done.
    pub fn advance(&self, steps: u64) {
        let done = {
            let mut done = self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *done += steps;
            *done
        };
        self.bar.set_position(done);
        let Some(lines) = &self.lines else { return };
        let mut last = lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= LINE_INTERVAL && done < self.steps {
            *last = Instant::now();
            // A closed standard error is not an error of the run.
            let _ = writeln!(
                std::io::stderr(),
                "{}",
                progress_line(&self.what, done, self.steps, self.started.elapsed())
            );
        }
    }

    /// Writes a line that stays, above the bar if there is one.
    pub fn note(&self, line: &str) {
        match &self.lines {
            None => self.bar.println(line),
            // A closed standard error is not an error of the run.
            Some(_) => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }

    /// All is done: the bar disappears.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The line of so many steps that are done after a time.
fn progress_line(what: &str, done: u64, steps: u64, elapsed: Duration) -> String {
    let left = elapsed.as_secs_f64() * (steps - done) as f64 / done.max(1) as f64;
    format!("{what} {done} of {steps}, about {left:.0} s to go")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_the_rest_takes() {
        let line = progress_line("ring: operations", 25, 100, Duration::from_secs(10));
        assert_eq!(line, "ring: operations 25 of 100, about 30 s to go");
    }
}
