//! The text before the first phase and after the last.

use std::time::Duration;

use super::operation::DemoOperation;
use super::phase::{DemoRoute, PhaseResult};
use super::rank_report::RankTotals;
use super::{NODES, PER_HOST, PHASES, RANKS};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};
use crate::report::format_table;

pub(super) fn opening() -> Vec<String> {
    vec![
        format!(
            "Pleach: {RANKS} ranks, {PER_HOST} per host; a manager; {NODES} aggregation nodes, one above the others."
        ),
        "All are processes on this machine: shared memory within a host, UDP between hosts and nodes.".to_owned(),
        "Every result of every rank is compared bit by bit with the result of an independent oracle.".to_owned(),
        String::new(),
    ]
}

pub(super) fn closing(results: &[PhaseResult], took: Duration) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(latencies(results).lines().map(str::to_owned));
    lines.push("* while bits flip and packets are lost".to_owned());
    lines.push(String::new());
    lines.push(aggregated(results));
    lines.extend(survived(results));
    for phase in results {
        lines.extend(phase.statistics.described.iter().map(|what| format!("WRONG      {what}")));
        lines.extend(phase.statistics.failure.iter().map(|what| format!("FAILED     {}: {what}", phase.title)));
    }
    let checked: u64 = results.iter().map(|phase| phase.statistics.checked).sum();
    let wrong: u64 = results.iter().map(|phase| phase.statistics.wrong).sum();
    let failed_phases = PHASES.len() - results.iter().filter(|phase| phase.statistics.failure.is_none()).count();
    let failed = if failed_phases > 0 {
        format!(", {failed_phases} of {} phases failed", PHASES.len())
    } else {
        String::new()
    };
    lines.push(format!(
        "{} wrong results, {} checked bit by bit{failed}; {:.1} s.",
        group_digits(wrong),
        group_digits(checked),
        took.as_secs_f64(),
    ));
    lines
}

/// One row for each operation, one column for each phase.
fn latencies(results: &[PhaseResult]) -> String {
    let head = std::iter::once("us, median / 99 %").chain(results.iter().map(|phase| phase.short));
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for operation in DemoOperation::ALL {
        let cell = |phase: &PhaseResult| {
            let spans = phase.statistics.latencies.get(&operation).into_iter().flatten().copied();
            LatencyDistribution::of(spans)
                .map_or_else(|| "-".to_owned(), |d| format!("{:.0} / {:.0}", d.median_ns / 1e3, d.p99_ns / 1e3))
        };
        rows.push(std::iter::once(operation.name().to_owned()).chain(results.iter().map(cell)).collect());
    }
    format_table(&rows)
}

/// The errors that did not affect a result.
fn survived(results: &[PhaseResult]) -> Vec<String> {
    let ranks = results.iter().map(|phase| phase.statistics.totals).fold(RankTotals::default(), RankTotals::plus);
    let reports = || results.iter().flat_map(|phase| &phase.nodes).map(|node| &node.report);
    let of_nodes = |cause: &str| -> u64 { reports().filter_map(|report| report.dropped.get(cause)).sum() };
    let retransmitted: u64 = reports().map(|report| report.repeated).sum();
    let mut lines = vec![
        format!(
            "survived   the fault plan damaged {} and dropped {} that ranks sent; nodes have the same fault plan",
            pluralize(ranks.damaged_by_plan, "packet"),
            group_digits(ranks.lost_by_plan)
        ),
        format!(
            "           ranks received {} damaged packets and nodes {}; ranks retransmitted {} packets and nodes {}",
            group_digits(ranks.damaged),
            group_digits(of_nodes("damaged")),
            group_digits(ranks.retransmitted),
            group_digits(retransmitted),
        ),
    ];
    if let Some(phase) = results.iter().find(|phase| phase.route == DemoRoute::AggregationNodesThenKill) {
        lines.push(format!(
            "           a node was killed: {} in flight took up to {:.1} ms, {} started later with the same fold order",
            pluralize(phase.statistics.in_flight, "call"),
            phase.statistics.longest_in_flight.as_nanos_f64() / 1e6,
            group_digits(phase.statistics.afterwards),
        ));
    }
    lines
}

/// The operations route nodes, in the phases in which all nodes lived.
fn aggregated(results: &[PhaseResult]) -> String {
    let phases = || results.iter().filter(|phase| phase.route == DemoRoute::AggregationNodes);
    let ranks = phases().map(|phase| phase.statistics.totals).fold(RankTotals::default(), RankTotals::plus);
    let folds: u64 = phases().flat_map(|phase| &phase.nodes).map(|node| node.report.operations).sum();
    format!(
        "nodes      {} of {} used them, with {}; the others are too long for aggregation to pay",
        group_digits(ranks.aggregated / u64::from(RANKS / PER_HOST)),
        pluralize(ranks.operations / u64::from(RANKS), "operation"),
        pluralize(folds, "fold"),
    )
}
