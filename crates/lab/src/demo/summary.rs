//! What is said before the first act and after the last.

use std::time::Duration;

use super::operation::DemoOperation;
use super::phase::{DemoRoute, PhaseResult};
use super::rank_report::RankTotals;
use super::{ACTS, NODES, PER_HOST, RANKS};
use crate::latency_distribution::LatencyDistribution;
use crate::number_format::{group_digits, pluralize};
use crate::report::format_table;

pub(super) fn opening() -> Vec<String> {
    vec![
        format!(
            "Pleach: {RANKS} ranks, {PER_HOST} to a host; a manager; {NODES} aggregation nodes, one above the others."
        ),
        "All are processes on this machine: shared memory within a host, UDP between hosts and nodes.".to_owned(),
        "Every result of every rank is compared, bit by bit, with what an independent oracle computed.".to_owned(),
        String::new(),
    ]
}

pub(super) fn closing(ended: &[PhaseResult], took: Duration) -> Vec<String> {
    let mut lines = vec![String::new()];
    lines.extend(latencies(ended).lines().map(str::to_owned));
    lines.push("* while bits flip and packets vanish".to_owned());
    lines.push(String::new());
    lines.push(aggregated(ended));
    lines.extend(survived(ended));
    for act in ended {
        lines.extend(act.tally.described.iter().map(|what| format!("OBJECTION  {what}")));
        lines.extend(act.tally.failure.iter().map(|what| format!("FAILED     {}: {what}", act.title)));
    }
    let checked: u64 = ended.iter().map(|act| act.tally.checked).sum();
    let wrong: u64 = ended.iter().map(|act| act.tally.wrong).sum();
    let unplayed = ACTS.len() - ended.iter().filter(|act| act.tally.failure.is_none()).count();
    let failed = if unplayed > 0 { format!(", {unplayed} of {} acts failed", ACTS.len()) } else { String::new() };
    lines.push(format!(
        "{} wrong results, {} checked bit by bit{failed}; {:.1} s.",
        group_digits(wrong),
        group_digits(checked),
        took.as_secs_f64(),
    ));
    lines
}

/// Operations down, acts across.
fn latencies(ended: &[PhaseResult]) -> String {
    let head = std::iter::once("us, median / 99 %").chain(ended.iter().map(|act| act.short));
    let mut rows: Vec<Vec<String>> = vec![head.map(str::to_owned).collect()];
    for piece in DemoOperation::ALL {
        let cell = |act: &PhaseResult| {
            let spans = act.tally.latencies.get(&piece).into_iter().flatten().copied();
            LatencyDistribution::of(spans)
                .map_or_else(|| "-".to_owned(), |d| format!("{:.0} / {:.0}", d.median_ns / 1e3, d.p99_ns / 1e3))
        };
        rows.push(std::iter::once(piece.name().to_owned()).chain(ended.iter().map(cell)).collect());
    }
    format_table(&rows)
}

/// The errors that nobody noticed in a result.
fn survived(ended: &[PhaseResult]) -> Vec<String> {
    let ranks = ended.iter().map(|act| act.tally.account).fold(RankTotals::default(), RankTotals::plus);
    let reports = || ended.iter().flat_map(|act| &act.nodes).map(|node| &node.report);
    let of_nodes = |cause: &str| -> u64 { reports().filter_map(|report| report.dropped.get(cause)).sum() };
    let again: u64 = reports().map(|report| report.repeated).sum();
    let mut lines = vec![
        format!(
            "survived   ranks hurt {} and lost {} on purpose, and so did the nodes",
            pluralize(ranks.hurt, "packet"),
            group_digits(ranks.lost)
        ),
        format!(
            "           {} came damaged to ranks and {} to nodes; ranks sent {} again and nodes {}",
            group_digits(ranks.damaged),
            group_digits(of_nodes("damaged")),
            group_digits(ranks.repeated),
            group_digits(again),
        ),
    ];
    if let Some(act) = ended.iter().find(|act| act.through == DemoRoute::NodesUntilOneIsKilled) {
        lines.push(format!(
            "           a node was killed: {} under way took up to {:.1} ms, {} came after and added floats in its order",
            pluralize(act.tally.in_flight, "call"),
            act.tally.longest_in_flight.as_nanos_f64() / 1e6,
            group_digits(act.tally.afterwards),
        ));
    }
    lines
}

/// How much went through nodes in the acts in which they lived.
fn aggregated(ended: &[PhaseResult]) -> String {
    let acts = || ended.iter().filter(|act| act.through == DemoRoute::Nodes);
    let ranks = acts().map(|act| act.tally.account).fold(RankTotals::default(), RankTotals::plus);
    let folds: u64 = acts().flat_map(|act| &act.nodes).map(|node| node.report.operations).sum();
    format!(
        "nodes      {} of {} went through them, with {}; the others were too long for it to pay",
        group_digits(ranks.aggregated / u64::from(RANKS / PER_HOST)),
        pluralize(ranks.operations / u64::from(RANKS), "operation"),
        pluralize(folds, "fold"),
    )
}
