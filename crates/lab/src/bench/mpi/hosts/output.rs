//! The tables as text and as sections of an HTML page.

use super::limit_row::LimitRow;
use super::row::HostsRow;
use super::{HostsReport, HostsTable};
use crate::bench::TrialSummary;
use crate::bench::byte_size::ByteSize;
use crate::bench::mpi_installation::PreloadChoice;
use crate::bench::target_verdict::TargetVerdict;
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
        "calls by",
        "MPI",
        "without, us",
        "with, us",
        "ratio",
        "target",
        "",
        "CPU without",
        "with",
        "CPU ratio",
        "",
        "best MPI alone",
        "us",
        "ratio to best",
        "",
    ];
    with_header(header, table.rows.iter().map(cells))
}

fn cells(row: &HostsRow) -> [String; 18] {
    let judged = |verdict: Option<TargetVerdict>| verdict.map_or_else(String::new, |verdict| verdict.to_string());
    [
        row.operation.name().to_owned(),
        row.bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        row.nodes.to_string(),
        done_by(row.choice).to_owned(),
        row.mpi.clone(),
        row.plain.to_string(),
        row.with.to_string(),
        row.ratio.to_string(),
        format!("{:.2}", row.target),
        row.verdict.to_string(),
        cpu_text(row.plain_cpu, row.bytes),
        cpu_text(row.with_cpu, row.bytes),
        row.cpu_ratio.to_string(),
        judged(row.cpu_verdict),
        row.best_mpi.clone(),
        format!("{:.1}", row.best_plain_us),
        format!("{:.2}", row.ratio_to_best.median),
        judged(row.verdict_to_best),
    ]
}

/// What does the calls.
fn done_by(choice: PreloadChoice) -> &'static str {
    match choice {
        PreloadChoice::Pleach => "Pleach",
        PreloadChoice::Measure => "the faster",
    }
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

/// Lines below the tables.
pub(in crate::bench::mpi) fn closing(report: &HostsReport) -> Vec<String> {
    let mut lines: Vec<String> = report.failures.iter().map(|failure| format!("FAILED: {failure}")).collect();
    for choice in [PreloadChoice::Pleach, PreloadChoice::Measure] {
        let rows = || placed_rows(report).filter(move |(_, row)| row.choice == choice);
        let mut add = |title: &str, of: fn(&HostsRow) -> Option<TargetVerdict>| {
            let verdicts = Vec::from_iter(rows().filter_map(|(_, row)| of(row)));
            if !verdicts.is_empty() {
                lines.push(format!("{title}: {}", TargetVerdict::count(verdicts)));
            }
        };
        match choice {
            PreloadChoice::Pleach => {
                add("Targets between hosts, all calls by Pleach, to the same MPI alone", |row| Some(row.verdict));
                add("To the best MPI alone", |row| row.verdict_to_best);
                add("Processor time of allreduces of 64 KiB and more, to the same MPI alone", |row| row.cpu_verdict);
            }
            PreloadChoice::Measure => {
                let title = "Calls by the faster one, as `pleach exec` decides by default, to the same MPI alone";
                add(title, |row| Some(row.verdict));
            }
        }
        let largest = rows().max_by(|(_, one), (_, other)| one.ratio.median.total_cmp(&other.ratio.median));
        lines.extend(largest.map(|(table, row)| largest_ratio(table, row)));
    }
    lines
}

/// All rows with their tables.
fn placed_rows(report: &HostsReport) -> impl Iterator<Item = (&HostsTable, &HostsRow)> {
    report.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)))
}

fn largest_ratio(table: &HostsTable, row: &HostsRow) -> String {
    format!(
        "Largest ratio: {:.2}, calls by {}, {} hosts, MTU {}, {}, {} under {}",
        row.ratio.median,
        done_by(row.choice),
        table.hosts,
        table.mtu_bytes,
        pluralize(u64::from(row.nodes), "node"),
        row.measure(),
        row.mpi
    )
}
