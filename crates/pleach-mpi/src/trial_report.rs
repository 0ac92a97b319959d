//! The trials in the report: what was tried both ways, and which way was faster.

use std::fmt::Write as _;

use serde::Serialize;

use crate::call_statistics::COLLECTIVES;
use crate::choice_table;
use crate::configuration::ChoiceMode;
use crate::trial::Way;

/// Summed over all ranks. Field names are part of the report's format.
#[derive(Serialize, Default)]
pub(crate) struct TrialReport {
    /// `PLEACH_MPI_CHOICE`.
    choice: &'static str,
    /// Calls that were part of a trial.
    calls: i64,
    /// Rounds of trials.
    rounds: i64,
    /// The time that trials cost: calls that were done the slower way, and exchanges.
    lost_microseconds: f64,
    ways: Vec<TriedRow>,
}

/// What was chosen for calls of one kind.
#[derive(Serialize)]
struct TriedRow {
    operation: &'static str,
    most_bytes: Option<u64>,
    /// `mpi` or `pleach`.
    faster: &'static str,
    /// The number of communicators that chose this.
    communicators: i64,
    /// The median of both ways, as a mean over these communicators.
    pleach_microseconds: f64,
    mpi_microseconds: f64,
}

impl TrialReport {
    /// From summed numbers: of the budget, and of the choices.
    pub(crate) fn new(choice: ChoiceMode, budget: &[i64], choices: &[i64]) -> Self {
        let ways = choice_table::rows(choices).into_iter().map(|row| TriedRow {
            operation: COLLECTIVES[row.collective].1,
            most_bytes: row.class.most_bytes(),
            faster: if row.way == Way::Native { ChoiceMode::Native } else { ChoiceMode::Pleach }.name(),
            communicators: row.communicators,
            pleach_microseconds: row.pleach_ns as f64 / 1e3,
            mpi_microseconds: row.native_ns as f64 / 1e3,
        });
        Self {
            choice: choice.name(),
            calls: budget[0],
            rounds: budget[1],
            lost_microseconds: budget[2] as f64 / 1e3,
            ways: ways.collect(),
        }
    }

    /// One line for each kind of calls that was left to the native MPI.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if self.calls > 0 {
            let Self { calls, rounds, lost_microseconds: lost, .. } = self;
            let _ = writeln!(text, "  trials: {calls} calls in {rounds} rounds, {lost:.1} us lost");
        }
        for row in self.ways.iter().filter(|row| row.faster == ChoiceMode::Native.name()) {
            let size = row.most_bytes.map_or("longer".to_owned(), |most| format!("at most {most} B"));
            let (name, pleach, mpi) = (row.operation, row.pleach_microseconds, row.mpi_microseconds);
            let _ = writeln!(text, "  slower: {name}, {size}: {pleach:.2} us, with the native MPI {mpi:.2} us");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_lists_what_was_left_to_the_native_mpi_with_both_medians() {
        let mut choices = vec![0; choice_table::CHOICE_NUMBERS];
        let row = (2 * crate::size_class::SIZE_CLASSES * 3 + 1) * 3; // Allreduce, the first class, the native MPI.
        choices[row..row + 3].copy_from_slice(&[2, 14_000, 6_000]);
        let report = TrialReport::new(ChoiceMode::Measure, &[12, 2, 4_500], &choices);
        let text = report.text();
        assert!(text.contains("trials: 12 calls in 2 rounds, 4.5 us lost"), "{text}");
        assert!(text.contains("slower: allreduce, at most 8 B: 7.00 us, with the native MPI 3.00 us"), "{text}");
    }
}
