//! Runs a case and judges it.

use anyhow::Result;
use oracle::{Violation, WorkloadVerdict, WorkloadViolation};
use simulator::shared_fabric::SharedFabricEnd;
use units::SimSpan;

use super::canary::Canary;
use super::case::SoakCase;
use super::judge::SoakJudge;
use super::panic_note;
use super::setup::PreparedCase;

/// How long the machines have to acknowledge what is left after the last operation.
const SETTLE_TIME: SimSpan = SimSpan::from_micros(500_000);

/// The most packet hops of a case. Of the first 3,000 seeds, 2285 needs the most, 7.6 million.
const MAX_HOPS: u64 = 50_000_000;

/// The outcome of a case.
#[derive(Clone, Debug)]
pub struct SoakOutcome {
    /// What the oracle says.
    pub verdict: WorkloadVerdict,
    /// The panic that ended the run, if one did.
    pub panic: Option<String>,
    /// The digest of all events.
    pub trace: u64,
    /// Packets that faults damaged, lost or duplicated.
    pub faulty_packets: u64,
    /// How many times a packet crossed a link.
    pub hops: u64,
    /// Trees that failed.
    pub failed_trees: u32,
    /// Operations that wanted a tree while none could be placed around what was down.
    pub operations_without_tree: u32,
}

impl SoakOutcome {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.panic.is_none() && self.verdict.is_clean()
    }

    /// What is wrong, one line each.
    pub fn problems(&self) -> Vec<String> {
        let panic = self.panic.iter().map(|text| format!("panic: {text}"));
        let violations = self.verdict.violations.iter().map(ToString::to_string);
        let unlisted = self.verdict.unlisted_violations;
        let more = (unlisted > 0).then(|| format!("and {unlisted} more"));
        panic.chain(violations).chain(more).collect()
    }

    /// The kind of the first problem: a smaller case shows the same defect only if it has the same kind of problem.
    pub(super) fn kind(&self) -> Option<&str> {
        if let Some(text) = &self.panic {
            // Its place in the source, where a hook has noted it.
            return Some(text.rsplit_once(" at ").map_or(text, |(_, place)| place));
        }
        self.verdict.violations.first().map(|violation| match violation {
            WorkloadViolation::Operation { violation, .. } => match violation {
                Violation::WrongBits { .. } | Violation::Disagreement { .. } | Violation::WrongLength { .. } => {
                    "wrong result"
                }
                Violation::DeliveredTwice { .. } | Violation::UnknownRankOrOp { .. } => "delivered twice",
                Violation::DeliveredAndFailed { .. } => "delivered and failed",
                Violation::NeverDelivered { .. } => "hang",
                Violation::LeftBarrierEarly { .. } => "left early",
                Violation::UnexpectedFailure { .. } => "unexpected failure",
            },
            WorkloadViolation::CausesDiffer { .. } => "causes differ",
            WorkloadViolation::Hung { .. } | WorkloadViolation::NeverStarted { .. } => "hang",
            WorkloadViolation::PacketStorm { .. } => "packet storm",
            WorkloadViolation::Leak { .. } => "leak",
        })
    }
}

impl SoakCase {
    /// Runs the case, with the product as it is or with a defect.
    ///
    /// # Errors
    /// If the case is not valid.
    pub fn run(&self, canary: Option<Canary>) -> Result<SoakOutcome> {
        let prepared = PreparedCase::new(self)?;
        // Machines have no unwinding state outside of the run, which ends here.
        panic_note::catch(|| self.run_prepared(&prepared, canary)).unwrap_or_else(|text| {
            Ok(SoakOutcome {
                verdict: WorkloadVerdict::default(),
                panic: Some(text),
                trace: 0,
                faulty_packets: 0,
                hops: 0,
                failed_trees: 0,
                operations_without_tree: 0,
            })
        })
    }

    fn run_prepared(&self, prepared: &PreparedCase, canary: Option<Canary>) -> Result<SoakOutcome> {
        let mut run = prepared.set_up()?;
        run.limit_hops(MAX_HOPS);
        if let Some(canary) = canary {
            canary.apply(&mut run);
        }
        let mut judge = SoakJudge::new(self, &prepared.groups);
        let end = run.run(&mut judge);
        judge.record_end(end, run.counters().hops);
        if end == SharedFabricEnd::Finished {
            let residue = run.settle(SETTLE_TIME);
            match run.counters().hops {
                hops if hops > MAX_HOPS => judge.record_end(SharedFabricEnd::PacketStorm, hops),
                _ => judge.record_residue(&residue),
            }
        }
        let counters = run.counters();
        let faulty_packets = counters.physical
            + counters.malformed
            + counters.routing
            + counters.overrun
            + counters.end_to_end
            + counters.lost_by_plan
            + counters.doubled_by_plan
            + counters.lost_on_down_links;
        Ok(SoakOutcome {
            verdict: judge.judge(),
            panic: None,
            trace: run.trace(),
            faulty_packets,
            hops: counters.hops,
            failed_trees: run.failed_trees(),
            operations_without_tree: run.operations_without_tree(),
        })
    }
}
