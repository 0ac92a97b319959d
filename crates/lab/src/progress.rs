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

/// How finely a bar of one step is divided.
const PARTS: u64 = 1_000;

/// The progress of work in steps, from any thread: a bar on a terminal, otherwise a line every few seconds. A step may be done in parts.
pub struct StepProgress {
    bar: ProgressBar,
    what: String,
    unit: String,
    steps: u64,
    started: Instant,
    /// When the last line was written; none on a terminal.
    lines: Option<Mutex<Instant>>,
    /// Steps, and a part of the next one.
    done: Mutex<f64>,
}

impl StepProgress {
    /// Progress of so many steps; `what` names the work, `unit` its steps.
    pub fn new(what: &str, steps: u64, unit: &str) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = match steps {
            1 => progress_bar(PARTS, "{msg}  {bar:40} {percent} %, {eta} to go"),
            _ => progress_bar(steps, "{msg}  {bar:40} {pos}/{len}, {eta} to go"),
        };
        bar.set_message(what.to_owned());
        if is_terminal {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let now = Instant::now();
        let lines = (!is_terminal).then(|| Mutex::new(now));
        let (what, unit) = (what.to_owned(), unit.to_owned());
        Self { bar, what, unit, steps, started: now, lines, done: Mutex::new(0.0) }
    }

    /// So many further steps are done.
    pub fn advance(&self, steps: u64) {
        self.advance_by(steps as f64);
    }

    /// A further part of a step is done.
    pub fn advance_by(&self, part: f64) {
        let done = {
            let mut done = self.done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *done += part;
            *done
        };
        let position = if self.steps == 1 { done * PARTS as f64 } else { done };
        self.bar.set_position(position as u64);
        let Some(lines) = &self.lines else { return };
        let mut last = lines.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= LINE_INTERVAL && done < self.steps as f64 {
            *last = Instant::now();
            let line = progress_line(&self.what, &self.unit, done, self.steps, self.started.elapsed());
            // A closed standard error is not an error of the run.
            let _ = writeln!(std::io::stderr(), "{line}");
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

/// The line of so many steps that are done after a time; the rest may be unknown as yet.
fn progress_line(what: &str, unit: &str, done: f64, steps: u64, elapsed: Duration) -> String {
    let left = elapsed.as_secs_f64() * (steps as f64 - done) / done;
    let left = if left.is_finite() { format!(", about {left:.0} s to go") } else { String::new() };
    match steps {
        1 => format!("{what}: {:.1} %{left}", 100.0 * done),
        _ if done.fract() == 0.0 => format!("{what}: {unit} {done} of {steps}{left}"),
        _ => format!("{what}: {unit} {done:.1} of {steps}{left}"),
    }
}

/// The parts of one step, told as the share of it that is done.
pub struct StepShare<'p> {
    progress: &'p StepProgress,
    done: f64,
}

impl<'p> StepShare<'p> {
    /// A step of which nothing is done.
    pub fn new(progress: &'p StepProgress) -> Self {
        Self { progress, done: 0.0 }
    }

    /// So much of the step is done; less than before is ignored.
    pub fn reach(&mut self, share: f64) {
        let further = share.min(1.0) - self.done;
        if further > 0.0 {
            self.done += further;
            self.progress.advance_by(further);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_long_the_rest_takes() {
        let line = |done, steps| progress_line("ring", "operations", done, steps, Duration::from_secs(10));
        assert_eq!(line(25.0, 100), "ring: operations 25 of 100, about 30 s to go");
        assert_eq!(line(2.5, 10), "ring: operations 2.5 of 10, about 30 s to go");
        assert_eq!(line(0.25, 1), "ring: 25.0 %, about 30 s to go");
        assert_eq!(line(0.0, 1), "ring: 0.0 %", "without a guess there is none");
    }

    #[test]
    fn the_share_of_a_step_ends_with_the_step() {
        let progress = StepProgress::new("two runs", 2, "operations");
        let mut share = StepShare::new(&progress);
        for reached in [0.25, 0.125, 0.5, 7.0] {
            share.reach(reached);
        }
        assert_eq!(*progress.done.lock().expect("one thread"), 1.0);
    }
}
