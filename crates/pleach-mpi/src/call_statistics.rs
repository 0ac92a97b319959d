//! What was taken over, what was left to the MPI and why, and how long it took.
//!
//! Kept only if somebody asks for a report (`PLEACH_MPI_REPORT`): two clocks a call are much where a barrier takes half a
//! microsecond. At the end the ranks add up what they have, and rank 0 writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pleach::PacketCounters;
use serde::Serialize;

use crate::collective_call::MpiCollective;
use crate::explanation::{MpiVersionInfo, OffloadExplanation};

/// Why a call is left to the MPI. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FallbackReason {
    Off,
    Argument,
    Type,
    Operator,
    Large,
    BetweenGroups,
    Alone,
    Foreign,
    NotFormed,
    Failed,
    NotYetFormed,
    NoProgress,
    Unwanted,
}

impl FallbackReason {
    const ALL: [Self; 13] = [
        Self::Off,
        Self::Argument,
        Self::Type,
        Self::Operator,
        Self::Large,
        Self::BetweenGroups,
        Self::Alone,
        Self::Foreign,
        Self::NotFormed,
        Self::Failed,
        Self::NotYetFormed,
        Self::NoProgress,
        Self::Unwanted,
    ];

    fn words(self) -> &'static str {
        match self {
            Self::Off => "Pleach is off",
            Self::Argument => "an argument for the MPI to complain about",
            Self::Type => "a datatype that cannot be folded so",
            Self::Operator => "an operator of the user",
            Self::Large => "too many bytes",
            Self::BetweenGroups => "an intercommunicator",
            Self::Alone => "one rank",
            Self::Foreign => "ranks of another job",
            Self::NotFormed => "the ranks did not come together",
            Self::Failed => "Pleach failed here before",
            Self::NotYetFormed => "no blocking call has come before",
            Self::NoProgress => "this MPI cannot complete a request of ours",
            Self::Unwanted => "only blocking calls are wanted",
        }
    }
}

/// Whether a call waits for its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallMode {
    Blocking,
    NonBlocking,
}

const VERBS: [(MpiCollective, &str); 7] = [
    (MpiCollective::Barrier, "barrier"),
    (MpiCollective::Broadcast, "broadcast"),
    (MpiCollective::Reduce, "reduce"),
    (MpiCollective::AllReduce, "allreduce"),
    (MpiCollective::ReduceScatter, "reduce-scatter-block"),
    (MpiCollective::Scan, "scan"),
    (MpiCollective::ExclusiveScan, "exscan"),
];

/// Bytes of one rank's vector, at most.
const SIZES: [u64; 8] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, u64::MAX];
const MANNERS: usize = 2;
const TAKEN: usize = VERBS.len() * MANNERS * SIZES.len();
const LEFT: usize = VERBS.len() * MANNERS * FallbackReason::ALL.len();
/// A number of calls and their nanoseconds for each.
const NUMBERS: usize = 2 * (TAKEN + LEFT);

static KEPT: AtomicBool = AtomicBool::new(false);
static TALLY: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];

/// From now on calls are counted.
pub(crate) fn keep() {
    KEPT.store(true, Relaxed);
}

/// When a call began, if that is of interest.
#[inline]
pub(crate) fn begin() -> Option<Instant> {
    KEPT.load(Relaxed).then(Instant::now)
}

/// A call was done by Pleach.
#[inline]
pub(crate) fn taken(verb: MpiCollective, manner: CallMode, bytes: usize, began: Option<Instant>) {
    if let Some(began) = began {
        let size = SIZES.iter().position(|most| bytes as u64 <= *most).unwrap_or(SIZES.len() - 1);
        note((verb as usize * MANNERS + manner as usize) * SIZES.len() + size, began.elapsed());
    }
}

/// A call was done by the MPI.
#[inline]
pub(crate) fn left(verb: MpiCollective, manner: CallMode, why: FallbackReason, began: Option<Instant>) {
    if let Some(began) = began {
        note(
            TAKEN + (verb as usize * MANNERS + manner as usize) * FallbackReason::ALL.len() + why as usize,
            began.elapsed(),
        );
    }
}

fn note(place: usize, time: Duration) {
    TALLY[2 * place].fetch_add(1, Relaxed);
    TALLY[2 * place + 1].fetch_add(time.as_nanos() as u64, Relaxed);
}

/// This rank's numbers, to be added up.
pub(crate) fn numbers() -> Vec<i64> {
    TALLY.iter().map(|number| number.load(Relaxed) as i64).collect()
}

/// A name, and the number that goes by it.
type PacketCounter = (&'static str, fn(&PacketCounters) -> u64);

/// What is counted of packets.
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

/// What is told at the end, of all ranks together.
#[derive(Serialize)]
pub(crate) struct OffloadReport {
    /// How many ranks there are, and on how many hosts.
    pub(crate) ranks: u32,
    pub(crate) hosts: u32,
    /// Why Pleach was not used at all, if so.
    pub(crate) off: Option<String>,
    pub(crate) communicators: i64,
    pub(crate) failures: i64,
    /// Operations through aggregation nodes, counted once for each host.
    pub(crate) aggregated: i64,
    /// PacketCounters of all ranks, by what became of them.
    pub(crate) packets: BTreeMap<&'static str, i64>,
    pub(crate) mpi: MpiVersionInfo,
    /// Only if the program did not run.
    pub(crate) explanation: Option<OffloadExplanation>,
    taken: Vec<OffloadedRow>,
    left: Vec<FallbackRow>,
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
    /// From numbers that were added up.
    pub(crate) fn new(numbers: &[i64]) -> Self {
        let cell = |place: usize| (numbers[2 * place], numbers[2 * place + 1] as f64 / 1e3);
        let mut report = Self {
            ranks: 0,
            hosts: 0,
            off: None,
            communicators: 0,
            failures: 0,
            aggregated: 0,
            packets: BTreeMap::new(),
            mpi: MpiVersionInfo::default(),
            explanation: None,
            taken: Vec::new(),
            left: Vec::new(),
        };
        for (verb, operation) in VERBS {
            for non_blocking in [false, true] {
                let row = verb as usize * MANNERS + usize::from(non_blocking);
                for (size, most) in SIZES.into_iter().enumerate() {
                    let (calls, microseconds) = cell(row * SIZES.len() + size);
                    let most_bytes = (most != u64::MAX).then_some(most);
                    if calls > 0 {
                        report.taken.push(OffloadedRow { operation, non_blocking, most_bytes, calls, microseconds });
                    }
                }
                for why in FallbackReason::ALL {
                    let (calls, microseconds) = cell(TAKEN + row * FallbackReason::ALL.len() + why as usize);
                    if calls > 0 {
                        report.left.push(FallbackRow {
                            operation,
                            non_blocking,
                            why: why.words(),
                            calls,
                            microseconds,
                        });
                    }
                }
            }
        }
        report
    }

    /// As `PLEACH_MPI_REPORT` wants it: `stderr`, or a file, which gets JSON.
    pub(crate) fn write(&self, place: &str) {
        let written = match place {
            "stderr" => std::io::stderr().write_all(self.text().as_bytes()),
            file => serde_json::to_vec_pretty(self).map_err(Into::into).and_then(|json| std::fs::write(file, json)),
        };
        if let Err(error) = written {
            crate::mpi_job::log(&format!("the report could not be written to {place}: {error}"));
        }
    }

    fn text(&self) -> String {
        let mut text = format!("pleach: {} ranks on {} hosts", self.ranks, self.hosts);
        match &self.off {
            Some(why) => drop(writeln!(text, "; not used: {why}")),
            None => {
                let (formed, failed, aggregated) = (self.communicators, self.failures, self.aggregated);
                let _ = writeln!(
                    text,
                    ", {formed} communicators, {failed} failed, {aggregated} operations through nodes"
                );
            }
        }
        let manner = |non_blocking: bool| if non_blocking { "non-blocking " } else { "" };
        for row in &self.taken {
            let size = row.most_bytes.map_or("more".to_owned(), |most| format!("at most {most} B"));
            let (name, calls) = (row.operation, row.calls);
            let each = row.microseconds / calls as f64;
            let _ = writeln!(
                text,
                "  taken: {}{name}, {size}: {calls} calls, {each:.2} us each",
                manner(row.non_blocking)
            );
        }
        for row in &self.left {
            let (name, why, calls) = (row.operation, row.why, row.calls);
            let each = row.microseconds / calls as f64;
            let _ =
                writeln!(text, "  left: {}{name}, {why}: {calls} calls, {each:.2} us each", manner(row.non_blocking));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_what_was_noted() {
        let mut numbers = vec![0; NUMBERS];
        let place = (MpiCollective::AllReduce as usize * MANNERS) * SIZES.len();
        (numbers[2 * place], numbers[2 * place + 1]) = (4, 2_000);
        let place = TAKEN
            + (MpiCollective::Scan as usize * MANNERS + 1) * FallbackReason::ALL.len()
            + FallbackReason::Operator as usize;
        numbers[2 * place] = 1;
        let text = OffloadReport::new(&numbers).text();
        assert!(text.contains("taken: allreduce, at most 8 B: 4 calls, 0.50 us each"), "{text}");
        assert!(text.contains("left: non-blocking scan, an operator of the user: 1 calls"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }

    #[test]
    fn verbs_and_reasons_are_counted_apart() {
        assert!(VERBS.iter().enumerate().all(|(place, (verb, _))| *verb as usize == place));
        assert!(FallbackReason::ALL.iter().enumerate().all(|(place, why)| *why as usize == place));
    }
}
