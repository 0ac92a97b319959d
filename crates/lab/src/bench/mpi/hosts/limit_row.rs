//! The rows of the second table: what bare sockets take, beside the best MPI alone and the best with Pleach.

use serde::Serialize;

use super::plan::{HostsMeasure, MpiOperation};
use super::row::HostsRow;
use super::sweep::LimitSamples;
use crate::bench::TrialSummary;
use crate::bench::bare_socket::DatagramLayout;
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi_installation::PreloadChoice;

/// One measure; microseconds.
#[derive(Serialize)]
pub(super) struct LimitRow {
    pub(super) operation: MpiOperation,
    /// None for a barrier.
    pub(super) bytes: Option<ByteSize>,
    pub(super) bytes_only: TrialSummary,
    pub(super) with_headers: TrialSummary,
    /// The least median of any MPI without the library.
    pub(super) best_alone_us: f64,
    /// The least median of any MPI with any number of nodes, everything by Pleach; of what was measured, if that was not.
    pub(super) best_with_us: f64,
}

/// Rows of all measures that bare sockets and an MPI completed.
pub(super) fn rows(measures: &[HostsMeasure], limits: &LimitSamples, rows: &[HostsRow]) -> Vec<LimitRow> {
    let row = |(index, measure): (usize, &HostsMeasure)| {
        let of = |layout| {
            let times: Vec<f64> = limits.get(&layout)?.iter().filter_map(|round| round.get(index).copied()).collect();
            (!times.is_empty()).then(|| TrialSummary::of(times))
        };
        let measured = || rows.iter().filter(|row| row.measure() == *measure);
        let by_pleach = || measured().filter(|row| row.choice == PreloadChoice::Pleach);
        let least = |times: &mut dyn Iterator<Item = f64>| times.min_by(f64::total_cmp);
        Some(LimitRow {
            operation: measure.operation,
            bytes: measure.size,
            bytes_only: of(DatagramLayout::BytesOnly)?,
            with_headers: of(DatagramLayout::WithHeaders)?,
            best_alone_us: least(&mut measured().map(|row| row.best_plain_us))?,
            best_with_us: least(&mut by_pleach().map(|row| row.with.median))
                .or_else(|| least(&mut measured().map(|row| row.with.median)))?,
        })
    };
    measures.iter().enumerate().filter_map(row).collect()
}
