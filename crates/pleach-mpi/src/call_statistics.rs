//! Statistics of calls: which were offloaded, which fell back to the native MPI and why, and how long they took.
//!
//! Collected only if a report is wanted (`PLEACH_MPI_REPORT`): two clock reads per call are much where a barrier takes half a microsecond.
//! At the end the ranks sum their numbers, and rank 0 writes the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pleach::PacketCounters;
use serde::Serialize;

use crate::collective_call::{FallbackReason, MpiCollective};
use crate::explanation::{MpiVersionInfo, OffloadExplanation};
use crate::log::log;
use crate::trial_report::TrialReport;

/// Whether a call blocks until it is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallMode {
    Blocking,
    NonBlocking,
}

pub(crate) const COLLECTIVES: [(MpiCollective, &str); MpiCollective::NUMBER] = [
    (MpiCollective::Barrier, "barrier"),
    (MpiCollective::Broadcast, "broadcast"),
    (MpiCollective::Reduce, "reduce"),
    (MpiCollective::AllReduce, "allreduce"),
    (MpiCollective::ReduceScatter, "reduce-scatter-block"),
    (MpiCollective::Scan, "scan"),
    (MpiCollective::ExclusiveScan, "exscan"),
    (MpiCollective::ReduceScatterV, "reduce-scatter"),
    (MpiCollective::AllGather, "allgather"),
    (MpiCollective::AllGatherV, "allgatherv"),
    (MpiCollective::Gather, "gather"),
    (MpiCollective::Scatter, "scatter"),
    (MpiCollective::AllToAll, "alltoall"),
];

/// Upper bounds of the size classes, in bytes of one rank's vector or block.
const SIZE_CLASSES: [u64; 8] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, u64::MAX];
const MODES: usize = 2;
const OFFLOADED_CELLS: usize = COLLECTIVES.len() * MODES * SIZE_CLASSES.len();
const FALLBACK_CELLS: usize = COLLECTIVES.len() * MODES * FallbackReason::ALL.len();
/// Each cell is a number of calls and their nanoseconds.
const NUMBERS: usize = 2 * (OFFLOADED_CELLS + FALLBACK_CELLS);

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static CELLS: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// Counts calls from now on.
pub(crate) fn enable() {
    IS_ENABLED.store(true, Relaxed);
}

/// The start time of a call, if calls are counted.
#[inline]
pub(crate) fn begin() -> Option<Instant> {
    IS_ENABLED.load(Relaxed).then(Instant::now)
}

/// Counts a call that was offloaded.
#[inline]
pub(crate) fn count_offloaded(collective: MpiCollective, mode: CallMode, bytes: usize, began: Option<Instant>) {
    if let Some(began) = began {
        let size = SIZE_CLASSES.iter().position(|most| bytes as u64 <= *most).unwrap_or(SIZE_CLASSES.len() - 1);
        add((collective as usize * MODES + mode as usize) * SIZE_CLASSES.len() + size, began.elapsed());
    }
}

/// Counts a call that the native MPI did.
#[inline]
pub(crate) fn count_fallback(
    collective: MpiCollective,
    mode: CallMode,
    reason: FallbackReason,
    began: Option<Instant>,
) {
    if let Some(began) = began {
        add(
            OFFLOADED_CELLS
                + (collective as usize * MODES + mode as usize) * FallbackReason::ALL.len()
                + reason as usize,
            began.elapsed(),
        );
    }
}

fn add(cell: usize, time: Duration) {
    CELLS[2 * cell].fetch_add(1, Relaxed);
    CELLS[2 * cell + 1].fetch_add(time.as_nanos() as u64, Relaxed);
}

/// This rank's numbers, to be summed over all ranks.
pub(crate) fn numbers() -> Vec<i64> {
    CELLS.iter().map(|number| number.load(Relaxed) as i64).collect()
}

/// The name of a counter in the report, and the counter.
type PacketCounter = (&'static str, fn(&PacketCounters) -> u64);

/// Packet counters in the report.
pub(crate) const PACKETS: [PacketCounter; 8] = [
    ("sent", |packets| packets.sent),
    ("repeated", |packets| packets.repeated),
    ("received", |packets| packets.received),
    ("damaged", |packets| packets.damaged),
    ("malformed", |packets| packets.malformed),
    ("forged", |packets| packets.forged),
    ("hurt_by_plan", |packets| packets.hurt_by_plan),
    ("lost_by_plan", |packets| packets.lost_by_plan),
];

/// The report, summed over all ranks. Field names are part of its format.
#[derive(Serialize)]
pub(crate) struct OffloadReport {
    /// The number of ranks, and of hosts.
    pub(crate) ranks: u32,
    pub(crate) hosts: u32,
    /// Why Pleach was off, if it was.
    pub(crate) off: Option<String>,
    pub(crate) communicators: i64,
    pub(crate) failures: i64,
    pub(crate) operations: OffloadedOperations,
    /// Packets of all ranks, by counter.
    pub(crate) packets: BTreeMap<&'static str, i64>,
    pub(crate) mpi: MpiVersionInfo,
    /// Only with `PLEACH_MPI=explain`.
    pub(crate) explanation: Option<OffloadExplanation>,
    /// What was tried both ways, and which way was faster.
    pub(crate) trials: TrialReport,
    taken: Vec<OffloadedRow>,
    left: Vec<FallbackRow>,
}

/// Operations that Pleach did, by where.
#[derive(Serialize, Default)]
pub(crate) struct OffloadedOperations {
    /// In shared memory alone, counted at each rank.
    within_hosts: i64,
    /// Between hosts, counted once on each host.
    between_hosts: i64,
    /// Of those, through aggregation nodes.
    through_nodes: i64,
}

impl OffloadedOperations {
    /// From the sums of [`crate::communicator_table::operations`].
    pub(crate) fn new(sums: &[i64]) -> Self {
        let [within_hosts, between_hosts, through_nodes] = *sums else { return Self::default() };
        Self { within_hosts, between_hosts, through_nodes }
    }
}

#[derive(Serialize)]
struct OffloadedRow {
    operation: &'static str,
    non_blocking: bool,
    most_bytes: Option<u64>,
    calls: i64,
    microseconds: f64,
}

#[derive(Serialize)]
struct FallbackRow {
    operation: &'static str,
    non_blocking: bool,
    why: &'static str,
    calls: i64,
    microseconds: f64,
}

impl OffloadReport {
    /// From summed numbers.
    pub(crate) fn new(numbers: &[i64]) -> Self {
        let at = |cell: usize| (numbers[2 * cell], numbers[2 * cell + 1] as f64 / 1e3);
        let mut report = Self {
            ranks: 0,
            hosts: 0,
            off: None,
            communicators: 0,
            failures: 0,
            operations: OffloadedOperations::default(),
            packets: BTreeMap::new(),
            mpi: MpiVersionInfo::default(),
            explanation: None,
            trials: TrialReport::default(),
            taken: Vec::new(),
            left: Vec::new(),
        };
        for (collective, operation) in COLLECTIVES {
            for non_blocking in [false, true] {
                let row = collective as usize * MODES + usize::from(non_blocking);
                for (size, most) in SIZE_CLASSES.into_iter().enumerate() {
                    let (calls, microseconds) = at(row * SIZE_CLASSES.len() + size);
                    let most_bytes = (most != u64::MAX).then_some(most);
                    if calls > 0 {
                        report.taken.push(OffloadedRow { operation, non_blocking, most_bytes, calls, microseconds });
                    }
                }
                for reason in FallbackReason::ALL {
                    let (calls, microseconds) =
                        at(OFFLOADED_CELLS + row * FallbackReason::ALL.len() + reason as usize);
                    if calls > 0 {
                        report.left.push(FallbackRow {
                            operation,
                            non_blocking,
                            why: reason.description(),
                            calls,
                            microseconds,
                        });
                    }
                }
            }
        }
        report
    }

    /// Writes it as text to `stderr`, or as JSON to a file.
    pub(crate) fn write(&self, target: &str) {
        let written = match target {
            "stderr" => std::io::stderr().write_all(self.text().as_bytes()),
            file => serde_json::to_vec_pretty(self).map_err(Into::into).and_then(|json| std::fs::write(file, json)),
        };
        if let Err(error) = written {
            log(&format!("cannot write the report to {target}: {error}"));
        }
    }

    fn text(&self) -> String {
        let mut text = format!("pleach: {} ranks on {} hosts", self.ranks, self.hosts);
        match &self.off {
            Some(why) => drop(writeln!(text, "; Pleach is off: {why}")),
            None => {
                let (formed, failed) = (self.communicators, self.failures);
                let OffloadedOperations { within_hosts, between_hosts, through_nodes } = self.operations;
                let _ = writeln!(
                    text,
                    ", {formed} communicators, {failed} failed; operations: {within_hosts} within hosts, {between_hosts} between hosts, \
                     {through_nodes} of them through aggregation nodes"
                );
            }
        }
        let mode = |non_blocking: bool| if non_blocking { "non-blocking " } else { "" };
        for row in &self.taken {
            let size = row.most_bytes.map_or("longer".to_owned(), |most| format!("at most {most} B"));
            let (name, calls) = (row.operation, row.calls);
            let each = row.microseconds / calls as f64;
            let _ = writeln!(
                text,
                "  offloaded: {}{name}, {size}: {calls} calls, {each:.2} us each",
                mode(row.non_blocking)
            );
        }
        for row in &self.left {
            let (name, why, calls) = (row.operation, row.why, row.calls);
            let each = row.microseconds / calls as f64;
            let _ =
                writeln!(text, "  native: {}{name}, {why}: {calls} calls, {each:.2} us each", mode(row.non_blocking));
        }
        text += &self.trials.text();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_contains_what_was_counted() {
        let mut numbers = vec![0; NUMBERS];
        let cell = (MpiCollective::AllReduce as usize * MODES) * SIZE_CLASSES.len();
        (numbers[2 * cell], numbers[2 * cell + 1]) = (4, 2_000);
        let cell = OFFLOADED_CELLS
            + (MpiCollective::Scan as usize * MODES + 1) * FallbackReason::ALL.len()
            + FallbackReason::Operator as usize;
        numbers[2 * cell] = 1;
        let text = OffloadReport::new(&numbers).text();
        assert!(text.contains("offloaded: allreduce, at most 8 B: 4 calls, 0.50 us each"), "{text}");
        assert!(text.contains("native: non-blocking scan, user-defined operator: 1 calls"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn each_collective_and_reason_has_its_own_cell() {
        assert!(COLLECTIVES.iter().enumerate().all(|(index, (collective, _))| *collective as usize == index));
        assert!(FallbackReason::ALL.iter().enumerate().all(|(index, reason)| *reason as usize == index));
    }
}
