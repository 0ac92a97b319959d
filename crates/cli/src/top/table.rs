//! The view as tables.

use dashboard::{ClusterView, GroupRow, JobRow, LateRow, NodeRow};
use lab::number_format::{group_digits, pluralize, si_number};
use lab::report::format_table;
use manager::status::GroupPhase;

/// Characters of a rejection reason that are shown beside a job.
const MAX_REASON_CHARS: usize = 60;

pub(super) fn write(view: &ClusterView) -> String {
    let alive = view.nodes.iter().filter(|node| node.alive).count();
    let mut text = format!(
        "pleach manager {} ({}): {alive} of {}, {}, {}, {} operations/s, {} in all\n",
        view.manager,
        view.version,
        pluralize(view.nodes.len() as u64, "node"),
        pluralize(view.jobs.len() as u64, "job"),
        pluralize(view.groups.len() as u64, "group"),
        rate(view.operations_per_second),
        group_digits(view.operations),
    );
    section(
        &mut text,
        &["JOB", "NAME", "STATE", "GROUPS", "OP/S", "OPERATIONS", "REFUSED", "REVOKED", "WHY"],
        || view.jobs.iter().map(job).collect(),
    );
    // The busiest first, since there may be too many to read.
    let mut groups: Vec<&GroupRow> = view.groups.iter().collect();
    groups.sort_by(|a, b| b.operations_per_second.unwrap_or(0.0).total_cmp(&a.operations_per_second.unwrap_or(0.0)));
    section(&mut text, &["GROUP", "JOB", "PHASE", "LEADERS", "WINDOW", "OP/S", "OPERATIONS", "NODES"], || {
        groups.into_iter().map(group).collect()
    });
    section(&mut text, &["TREE", "NODES", "GROUPS"], || {
        let row = |tree: &manager::status::TreeStatus| {
            vec![format!("below {}", tree.root), tree.nodes.to_string(), tree.groups.to_string()]
        };
        view.trees.iter().map(row).collect()
    });
    let head = [
        "NODE",
        "STATE",
        "SEATS",
        "IN FLIGHT",
        "PAYLOAD",
        "OP/S",
        "PACKET/S",
        "RETRANSMITTED",
        "DROPPED",
        "MIGRATIONS",
    ];
    section(&mut text, &head, || view.nodes.iter().map(node).collect());
    section(&mut text, &["LATE", "AT NODE", "LAST IN", "MEAN WAIT", "LONGEST", "WAITING"], || {
        view.late.iter().map(late).collect()
    });
    section(&mut text, &["ERRORS BY CAUSE", "COUNT"], || {
        view.errors.iter().map(|(cause, count)| vec![cause.clone(), group_digits(*count)]).collect()
    });
    if view.left_out > 0 {
        text.push_str(&format!("\n{} omitted by the manager\n", pluralize(view.left_out, "entry")));
    }
    text
}

fn section(text: &mut String, head: &[&str], rows: impl FnOnce() -> Vec<Vec<String>>) {
    let rows = rows();
    if !rows.is_empty() {
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        text.push('\n');
        text.push_str(&format_table(&[vec![head], rows].concat()));
    }
}

/// A rate, or `0?` if it is unknown: with a digit first, so that columns align.
pub(super) fn rate(per_second: Option<f64>) -> String {
    per_second.map_or_else(|| "0?".to_owned(), si_number)
}

pub(super) fn job(job: &JobRow) -> Vec<String> {
    let state = if job.attached { "attached" } else { "detached" };
    let why = job.last_refusal.as_deref().unwrap_or_default();
    vec![
        job.job.clone(),
        job.name.clone(),
        state.to_owned(),
        job.groups.to_string(),
        rate(job.operations_per_second),
        group_digits(job.operations),
        group_digits(job.refused),
        group_digits(job.revoked),
        why.chars().take(MAX_REASON_CHARS).collect(),
    ]
}

pub(super) fn late(late: &LateRow) -> Vec<String> {
    vec![
        late.name.clone(),
        late.at.clone(),
        format!("{:.1} %", late.share * 100.0),
        duration(late.mean_us),
        duration(late.longest_us as f64),
        late.waiting.map_or_else(|| "0?".to_owned(), |part| format!("{:.1} %", part * 100.0)),
    ]
}

/// A time, from microseconds.
pub(super) fn duration(micros: f64) -> String {
    match micros {
        micros if micros < 1e3 => format!("{micros:.0} us"),
        micros if micros < 1e6 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{:.2} s", micros / 1e6),
    }
}

pub(super) fn group(group: &GroupRow) -> Vec<String> {
    let phase = match group.phase {
        GroupPhase::Opening => "opening",
        GroupPhase::Open => "open",
        GroupPhase::Closing => "closing",
    };
    let nodes = match group.nodes.as_slice() {
        [root] => root.clone(),
        [root, others @ ..] => format!("{root} and {}", pluralize(others.len() as u64, "other")),
        [] => String::new(),
    };
    vec![
        format!("{} ({})", group.group, group.epoch),
        group.job.clone(),
        phase.to_owned(),
        group.leaders.to_string(),
        group.window.to_string(),
        rate(group.operations_per_second),
        group_digits(group.operations),
        nodes,
    ]
}

pub(super) fn node(node: &NodeRow) -> Vec<String> {
    let state = if node.alive { "alive" } else { "lost" };
    vec![
        node.name.clone(),
        state.to_owned(),
        format!("{}/{}", node.seats, node.most_seats),
        group_digits(node.in_flight.into()),
        format!("{}B", si_number(node.payload_bytes as f64)),
        rate(node.operations_per_second),
        rate(node.packets_per_second),
        group_digits(node.repeated),
        group_digits(node.dropped.values().sum()),
        group_digits(node.migrations),
    ]
}
