//! The report of a job: what rank 0 reported, what the nodes did, and both as a table.

use std::collections::BTreeMap;
use std::path::Path;

use manager::status::ManagerStatus;
use serde::{Deserialize, Serialize};

use super::message_events::MessageEvents;
use crate::launch::rank::NO_PROGRAM;
use lab::number_format::{group_digits, pluralize};
use lab::report::{format_table, with_header};

/// Everything known of a job when it has ended. Field names are part of the JSON format.
#[derive(Serialize)]
pub(crate) struct ExecReport {
    pub launcher: String,
    pub seconds: f64,
    /// Exit status of the command.
    pub status: u8,
    /// None if no rank reported.
    pub report: Option<MpiReport>,
    pub nodes: Vec<NodeUsage>,
    /// Services that ended before the job.
    pub lost: Vec<String>,
    /// What happened to the paths of messages; none unless messages were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<MessageEvents>,
}

/// As the library writes it (`call_statistics.rs` there).
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct MpiReport {
    pub ranks: u32,
    pub hosts: u32,
    pub off: Option<String>,
    pub communicators: u64,
    pub failures: u64,
    pub operations: MpiOperationCounts,
    pub packets: BTreeMap<String, u64>,
    pub mpi: MpiDescription,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explanation: Option<MpiExplanation>,
    pub trials: TrialsReport,
    pub taken: Vec<CallRow>,
    pub left: Vec<CallRow>,
}

/// Operations that Pleach did, by where.
#[derive(Clone, Copy, Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct MpiOperationCounts {
    /// In shared memory alone, counted at each rank.
    pub within_hosts: u64,
    /// Between hosts, counted once on each host.
    pub between_hosts: u64,
    /// Of those, through aggregation nodes.
    pub through_nodes: u64,
}

/// What was tried both ways.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct TrialsReport {
    pub choice: String,
    pub calls: u64,
    pub rounds: u64,
    pub lost_microseconds: f64,
    pub ways: Vec<TriedCalls>,
}

/// The faster way for calls of one kind, with both medians.
#[derive(Serialize, Deserialize)]
pub(crate) struct TriedCalls {
    pub operation: String,
    pub most_bytes: Option<u64>,
    pub faster: String,
    pub communicators: u64,
    pub pleach_microseconds: f64,
    pub mpi_microseconds: f64,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct MpiDescription {
    pub version: String,
    pub abi: String,
    pub library: String,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct MpiExplanation {
    pub trial: String,
    pub non_blocking: String,
    pub ways: Vec<AllreduceChoice>,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct AllreduceChoice {
    pub bytes: u64,
    pub way: String,
}

/// Calls of one kind, summed over all ranks.
#[derive(Serialize, Deserialize)]
pub(crate) struct CallRow {
    pub operation: String,
    pub non_blocking: bool,
    /// Upper bound of the size class of offloaded calls; none for the largest.
    #[serde(default)]
    pub most_bytes: Option<u64>,
    /// Why the native MPI did the calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub calls: u64,
    pub microseconds: f64,
}

/// What a node last reported.
#[derive(Serialize)]
pub(crate) struct NodeUsage {
    name: String,
    alive: bool,
    operations: u64,
    sent: u64,
    repeated: u64,
    dropped: BTreeMap<String, u64>,
}

impl NodeUsage {
    pub(crate) fn all(status: ManagerStatus) -> Vec<Self> {
        let line = |node: manager::status::NodeStatus| {
            let report = node.report;
            Self {
                name: node.name,
                alive: node.alive,
                operations: report.operations,
                sent: report.sent,
                repeated: report.repeated,
                dropped: report.dropped.into_iter().filter(|(_, count)| *count > 0).collect(),
            }
        };
        status.nodes.into_iter().map(line).collect()
    }
}

impl MpiReport {
    /// None if no rank wrote one.
    pub(crate) fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }
}

impl ExecReport {
    /// True if the command or the program that it starts does not exist or cannot be run, as shells say it.
    pub(crate) fn has_no_job(&self) -> bool {
        self.report.is_none() && matches!(self.status, NOT_EXECUTABLE | NO_PROGRAM)
    }

    pub(crate) fn table(&self) -> String {
        let mut text = "\n".to_owned();
        let mut line = |name: &str, value: &str| text.push_str(&format!("{name:<14}{value}\n"));
        line("launcher", &self.launcher);
        for (name, value) in self.messages.iter().flat_map(MessageEvents::lines) {
            line(name, &value);
        }
        let Some(report) = &self.report else {
            line("Pleach", if self.status == 0 { NO_REPORT } else { ENDED_EARLY });
            return text;
        };
        if !report.mpi.version.is_empty() {
            line("MPI", &format!("{} (ABI of {})", report.mpi.version, report.mpi.abi));
        }
        if let Some(why) = &report.off {
            line("Pleach", &format!("off: {why}"));
            return text;
        }
        let ranks = pluralize(report.ranks.into(), "rank");
        line("job", &format!("{ranks} on {}, {:.2} s", pluralize(report.hosts.into(), "host"), self.seconds));
        line("Pleach", &self.summary(report));
        for (name, value) in self.network(report) {
            line(name, &value);
        }
        if report.trials.calls > 0 {
            line("trials", &self.trials(report));
        }
        if !report.taken.is_empty() {
            let head = ["offloaded", "size", "calls", "us each", "s in all"];
            let rows = report.taken.iter().map(|row| row.cells(size(row.most_bytes)));
            text += &format!("\n{}", format_table(&with_header(head, rows)));
        }
        if !report.left.is_empty() {
            let head = ["native MPI", "reason", "calls", "us each", "s in all"];
            let rows = report.left.iter().map(|row| row.cells(row.why.clone().unwrap_or_default()));
            text += &format!("\n{}", format_table(&with_header(head, rows)));
        }
        let slower: Vec<[String; 5]> =
            report.trials.ways.iter().filter(|row| row.faster == "mpi").map(TriedCalls::cells).collect();
        if !slower.is_empty() {
            let head = ["faster with the MPI", "size", "Pleach us", "MPI us", "communicators"];
            text += &format!("\n{}", format_table(&with_header(head, slower.into_iter())));
        }
        text
    }

    /// What the trials of both ways cost.
    fn trials(&self, report: &MpiReport) -> String {
        let TrialsReport { calls, rounds, lost_microseconds, .. } = report.trials;
        let all_ranks_us = self.seconds * 1e6 * f64::from(report.ranks.max(1));
        let percent = lost_microseconds * 100.0 / all_ranks_us.max(1.0);
        let calls = pluralize(calls, "call");
        format!("{calls} in {} of all ranks, which cost {percent:.2} % of the time", pluralize(rounds, "round"))
    }

    fn summary(&self, report: &MpiReport) -> String {
        let number = |rows: &[CallRow]| rows.iter().map(|row| row.calls).sum::<u64>();
        let (taken, left) = (number(&report.taken), number(&report.left));
        let share = taken as f64 * 100.0 / (taken + left).max(1) as f64;
        let calls = pluralize(taken + left, "call");
        let mut text = format!("{} of {calls} of all ranks offloaded ({share:.0} %)", group_digits(taken));
        if report.failures > 0 {
            let failed = pluralize(report.failures, "communicator");
            text += &format!("; {failed} (summed over ranks) failed, and the native MPI continued");
        }
        text
    }

    /// What the network and the nodes did.
    fn network(&self, report: &MpiReport) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let count = |name: &str| report.packets.get(name).copied().unwrap_or(0);
        let MpiOperationCounts { within_hosts, between_hosts, through_nodes } = report.operations;
        if within_hosts > 0 {
            let operations = pluralize(within_hosts, "operation");
            lines.push(("within hosts", format!("{operations} in shared memory alone, counted at each rank")));
        }
        if report.hosts > 1 {
            let (through, all) = (group_digits(through_nodes), pluralize(between_hosts, "operation"));
            let share = through_nodes as f64 * 100.0 / between_hosts.max(1) as f64;
            let words = format!("{through} of {all} through nodes ({share:.0} %), counted once on each host");
            lines.push(("between hosts", words));
            let sent = pluralize(count("sent"), "packet");
            lines.push((
                "packets",
                format!("{sent} sent by ranks, {} of them retransmitted", group_digits(count("repeated"))),
            ));
            let names = [
                ("damaged", "received corrupted"),
                ("malformed", "received malformed"),
                ("forged", "received without valid authentication"),
                ("hurt_by_plan", "corrupted by the fault plan"),
                ("lost_by_plan", "dropped by the fault plan"),
            ];
            let seen = names.iter().filter(|(name, _)| count(name) > 0);
            let seen: Vec<String> =
                seen.map(|(name, words)| format!("{} {words}", group_digits(count(name)))).collect();
            let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
            lines.push(("survived", seen));
        }
        for node in &self.nodes {
            let dropped: Vec<String> =
                node.dropped.iter().map(|(cause, count)| format!("{} {cause}", group_digits(*count))).collect();
            let dropped =
                if dropped.is_empty() { String::new() } else { format!("; dropped: {}", dropped.join(", ")) };
            let state = if node.alive { "" } else { ", lost" };
            let (operations, sent) = (pluralize(node.operations, "operation"), pluralize(node.sent, "packet"));
            // Nodes report periodically, so the end of a short job is missing.
            let words = format!("{}{state}: {operations}, {sent} sent at its last report{dropped}", node.name);
            lines.push(("node", words));
        }
        lines.extend(self.lost.iter().map(|lost| ("lost", format!("{lost}; the job continued without it"))));
        lines
    }
}

/// Exit status of a shell for a file that it cannot execute.
const NOT_EXECUTABLE: u8 = 126;
const ENDED_EARLY: &str = "no report: the job ended before it came to MPI_Finalize";
const NO_REPORT: &str = "no rank reported: the program did not call MPI_Finalize, is linked statically, is not an MPI program, or \
     rank 0 ran on a host without access to this host's temporary folder";

impl CallRow {
    fn cells(&self, second: String) -> [String; 5] {
        let mode = if self.non_blocking { "non-blocking " } else { "" };
        let each = self.microseconds / self.calls.max(1) as f64;
        let seconds = self.microseconds / 1e6;
        let name = format!("{mode}{}", self.operation);
        [name, second, group_digits(self.calls), format!("{each:.2}"), format!("{seconds:.3}")]
    }
}

impl TriedCalls {
    fn cells(&self) -> [String; 5] {
        let (pleach, mpi) = (self.pleach_microseconds, self.mpi_microseconds);
        let communicators = group_digits(self.communicators);
        [self.operation.clone(), size(self.most_bytes), format!("{pleach:.2}"), format!("{mpi:.2}"), communicators]
    }
}

/// The upper bound of a size class.
fn size(most_bytes: Option<u64>) -> String {
    most_bytes.map_or("more".to_owned(), |most| format!("up to {}", binary(most)))
}

/// `8` as `8 B`, `4096` as `4 KiB`.
pub(crate) fn binary(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_offloaded_calls_fallbacks_and_faults() {
        let text = r#"{"ranks": 4, "hosts": 2, "communicators": 8, "failures": 0,
            "operations": {"within_hosts": 6, "between_hosts": 25, "through_nodes": 20},
            "packets": {"sent": 1000, "repeated": 7, "damaged": 3}, "mpi": {"version": "X 1", "abi": "X", "library": "x"},
            "trials": {"choice": "measure", "calls": 24, "rounds": 4, "lost_microseconds": 20000.0, "ways": [
                {"operation": "broadcast", "most_bytes": 2097152, "faster": "mpi", "communicators": 1,
                 "pleach_microseconds": 900.5, "mpi_microseconds": 400.25},
                {"operation": "barrier", "most_bytes": 8, "faster": "pleach", "communicators": 1,
                 "pleach_microseconds": 1.0, "mpi_microseconds": 2.0}]},
            "taken": [{"operation": "allreduce", "non_blocking": false, "most_bytes": 4096, "calls": 30, "microseconds": 60.0}],
            "left": [{"operation": "scan", "non_blocking": true, "why": "one rank", "calls": 10, "microseconds": 5.0}]}"#;
        let report: MpiReport = serde_json::from_str(text).expect("as the library writes it");
        let (name, dropped) = ("root".to_owned(), BTreeMap::from([("seal".to_owned(), 2)]));
        let nodes = vec![NodeUsage { name, alive: true, operations: 738, sent: 1789, repeated: 0, dropped }];
        let lost = vec!["root was killed by SIGKILL".to_owned()];
        let table = ExecReport {
            launcher: "l".into(),
            seconds: 1.0,
            status: 0,
            report: Some(report),
            nodes,
            lost,
            messages: None,
        }
        .table();
        for words in [
            "30 of 40 calls of all ranks offloaded (75 %)",
            "within hosts  6 operations in shared memory alone, counted at each rank",
            "between hosts 20 of 25 operations through nodes (80 %), counted once on each host",
            "1,000 packets sent by ranks, 7 of them retransmitted",
            "root: 738 operations, 1,789 packets sent at its last report; dropped: 2 seal",
            "3 received corrupted",
            "root was killed by SIGKILL; the job continued without it",
            "allreduce  up to 4 KiB     30     2.00     0.000",
            "non-blocking scan  one rank     10     0.50     0.000",
            "24 calls in 4 rounds of all ranks, which cost 0.50 % of the time",
            "900.50  400.25",
        ] {
            assert!(table.contains(words), "{words}: {table}");
        }
    }

    #[test]
    fn the_table_says_why_there_is_no_report() {
        let (nodes, lost) = (Vec::new(), Vec::new());
        let table =
            ExecReport { launcher: "l".into(), seconds: 1.0, status: 0, report: None, nodes, lost, messages: None }
                .table();
        assert!(table.contains("no rank reported"), "{table}");
        let (nodes, lost) = (Vec::new(), Vec::new());
        let table =
            ExecReport { launcher: "l".into(), seconds: 1.0, status: 7, report: None, nodes, lost, messages: None }
                .table();
        assert!(table.contains("no report: the job ended before") && !table.contains("statically"), "{table}");
    }
}
