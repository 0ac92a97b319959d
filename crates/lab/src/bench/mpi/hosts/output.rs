//! The tables as text and as sections of an HTML page.

use super::limit_row::LimitRow;
use super::row::HostsRow;
use super::{HostsReport, HostsTable};
use crate::bench::TrialSummary;
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi::target_verdict::TargetVerdict;
use crate::number_format::pluralize;
use crate::report::{TableRows, with_header};

/// The title and the rows of each table.
pub(in crate::bench::mpi) fn sections(report: &HostsReport) -> Vec<(String, TableRows)> {
    let title = |table: &HostsTable| {
        format!(
            "{} hosts (network namespaces on one bridge), MTU {}, {} on each; the MPI over TCP",
            table.hosts,
            table.mtu_bytes,
            pluralize(u64::from(report.ranks_per_host), "rank")
        )
    };
    let limits = |table: &HostsTable| {
        let (hosts, mtu) = (table.hosts, table.mtu_bytes);
        (format!("Limit: UDP sockets without a protocol, {hosts} hosts, MTU {mtu}"), limit_rows(table))
    };
    report.tables.iter().flat_map(|table| [(title(table), rows(table)), limits(table)]).collect()
}

fn limit_rows(table: &HostsTable) -> TableRows {
    let header = [
        "operation",
        "size",
        "bytes alone, us",
        "with packet headers, us",
        "best MPI alone",
        "of the headers'",
        "best with Pleach",
        "of the headers'",
    ];
    with_header(header, table.limits.iter().map(limit_cells))
}

fn limit_cells(row: &LimitRow) -> [String; 8] {
    let headers = row.with_headers.median;
    [
        row.operation.name().to_owned(),
        row.bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        row.bytes_only.to_string(),
        row.with_headers.to_string(),
        format!("{:.1}", row.best_alone_us),
        format!("{:.2}", row.best_alone_us / headers),
        format!("{:.1}", row.best_with_us),
        format!("{:.2}", row.best_with_us / headers),
    ]
}

fn rows(table: &HostsTable) -> TableRows {
    let header = [
        "operation",
        "size",
        "nodes",
        "MPI",
        "without, us",
        "with, us",
        "ratio",
        "target",
        "",
        "CPU without",
        "with",
        "CPU ratio",
        "best MPI alone",
        "us",
        "ratio to best",
        "",
    ];
    with_header(header, table.rows.iter().map(cells))
}

fn cells(row: &HostsRow) -> [String; 16] {
    [
        row.operation.name().to_owned(),
        row.bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        row.nodes.to_string(),
        row.mpi.clone(),
        row.plain.to_string(),
        row.with.to_string(),
        row.ratio.to_string(),
        format!("{:.2}", row.target),
        row.verdict.to_string(),
        cpu_text(row.plain_cpu, row.bytes),
        cpu_text(row.with_cpu, row.bytes),
        row.cpu_ratio.to_string(),
        row.best_mpi.clone(),
        format!("{:.1}", row.best_plain_us),
        format!("{:.2}", row.ratio_to_best.median),
        row.verdict_to_best.to_string(),
    ]
}

/// Processor time for each byte of the vector; for a barrier, of the operation.
fn cpu_text(micros: TrialSummary, bytes: Option<ByteSize>) -> String {
    match bytes {
        None => format!("{:.1} us", micros.median),
        Some(ByteSize(bytes)) => {
            let nanos = micros.median * 1e3 / bytes as f64;
            let digits = if nanos < 100.0 { 2 } else { 0 };
            format!("{nanos:.digits$} ns/B")
        }
    }
}

/// The verdict of every row, to the same MPI alone.
pub(in crate::bench::mpi) fn verdicts(report: &HostsReport) -> impl Iterator<Item = TargetVerdict> {
    report.tables.iter().flat_map(|table| &table.rows).map(|row| row.verdict)
}

/// The number of runs that failed.
pub(in crate::bench::mpi) fn failures(report: &HostsReport) -> usize {
    report.failures.len()
}

/// Lines below the tables.
pub(in crate::bench::mpi) fn closing(report: &HostsReport) -> Vec<String> {
    let rows = || report.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let counts = |verdict: fn(&HostsRow) -> TargetVerdict| {
        let count = |wanted: TargetVerdict| rows().filter(|(_, row)| verdict(row) == wanted).count();
        let [met, near, missed] = [TargetVerdict::Met, TargetVerdict::WithinSpread, TargetVerdict::Missed].map(count);
        format!("{met} met, {near} within the spread, {missed} missed")
    };
    let mut lines: Vec<String> = report.failures.iter().map(|failure| format!("FAILED: {failure}")).collect();
    lines.push(format!("Targets between hosts, to the same MPI alone: {}", counts(|row| row.verdict)));
    lines.push(format!("To the best MPI alone: {}", counts(|row| row.verdict_to_best)));
    let worst = rows().max_by(|(_, one), (_, other)| one.ratio.median.total_cmp(&other.ratio.median));
    lines.extend(worst.map(|(table, row)| {
        format!(
            "Largest ratio: {:.2}, {} hosts, MTU {}, {}, {} under {}",
            row.ratio.median,
            table.hosts,
            table.mtu_bytes,
            pluralize(u64::from(row.nodes), "node"),
            row.measure(),
            row.mpi
        )
    }));
    lines
}
