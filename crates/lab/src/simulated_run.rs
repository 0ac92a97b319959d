//! A run of a scenario, whichever network it is on: InfiniBand and Ethernet packet by packet, or the circuits of QsNet.
//!
//! In: a [`Scenario`]. Out: a run with its oracle, and what a report shows of it. QsNet has no aggregation tree, no flows and no records over
//! time. Its adapters and hosts are those of `experiments/quadrics/parameters.toml`, as far as the scenario does not say otherwise.

use anyhow::{Context, Result};
use protocol::collective::quadrics::{BroadcastSynchronization, QuadricsMembers};
use quadrics::{
    BroadcastBuffers, BroadcastContents, CircuitPriority, ElanBackground, ElanCollective, HostWakeup, MemoryLocation,
    QsnetCollective, QsnetRun, RetryPolicy, SaturationPattern,
};
use simulator::collective::{CollectiveTiming, LinkReport};
use simulator::flows::{ClassRecord, FlowFailure};
use simulator::scenario::{
    QsnetAlgorithm, QsnetBackground, QsnetHostNoise, QsnetMemory, QsnetPollPriority, QsnetScenario, QsnetWakeUp,
    RunProgress, Scenario, ScenarioRun,
};
use simulator::workload::WorkloadSummary;
use simulator::{FabricCounters, Telemetry};
use topology::AggregationTree;
use units::{Rank, SimSpan};

use crate::job_checker::{JobJudgement, JobsChecker, ObservedJobs};
use crate::oracle_checker::{OracleChecker, OracleJudgement};
use crate::reproduce::{QuadricsHostNoise, QuadricsParameters};

/// A scenario, set up to run.
pub enum SimulatedRun {
    /// InfiniBand or Ethernet.
    Packets(Box<ScenarioRun>),
    /// Quadrics.
    Qsnet(Box<QsnetRun>),
}

/// The judge of a run.
pub enum RunChecker {
    /// Of one collective, or of flows.
    Operations(Box<OracleChecker>),
    /// Of several jobs.
    Jobs(JobsChecker),
}

/// The verdict on a run.
pub enum RunJudgement {
    /// On one collective, or on flows.
    Operations(OracleJudgement),
    /// On each of several jobs.
    Jobs(Vec<JobJudgement>),
}

impl RunChecker {
    /// The verdict on the whole run.
    pub fn judge(self) -> RunJudgement {
        match self {
            Self::Operations(checker) => RunJudgement::Operations(checker.judge()),
            Self::Jobs(checker) => RunJudgement::Jobs(checker.judge()),
        }
    }
}

impl SimulatedRun {
    /// Sets up a scenario with its seed.
    ///
    /// # Errors
    /// If its parts contradict each other.
    pub fn set_up(scenario: &Scenario) -> Result<Self> {
        match &scenario.qsnet {
            Some(qsnet) => Ok(Self::Qsnet(Box::new(qsnet_run(scenario, qsnet)?))),
            None => Ok(Self::Packets(Box::new(scenario.set_up(scenario.seed)?))),
        }
    }

    /// The judge of the run.
    pub fn checker(&self, scenario: &Scenario) -> RunChecker {
        match (self, &scenario.qsnet) {
            (Self::Packets(_), _) if !scenario.jobs.is_empty() => RunChecker::Jobs(JobsChecker::new(scenario)),
            (Self::Packets(run), _) => RunChecker::Operations(Box::new(OracleChecker::of_scenario(scenario, run))),
            (Self::Qsnet(_), Some(qsnet)) => {
                RunChecker::Operations(Box::new(OracleChecker::of_qsnet(scenario, qsnet)))
            }
            (Self::Qsnet(_), None) => unreachable!("a run on QsNet has its parameters"),
        }
    }

    /// Runs the operations of the scenario; stops early if one hangs.
    pub fn run(
        &mut self,
        scenario: &Scenario,
        checker: &mut RunChecker,
        mut progress: impl FnMut(RunProgress),
    ) -> Vec<CollectiveTiming> {
        match (self, checker) {
            (Self::Packets(run), RunChecker::Operations(checker)) => {
                run.run(scenario.operations, &mut **checker, progress)
            }
            (Self::Packets(run), RunChecker::Jobs(checker)) => {
                let progress = |ended| progress(RunProgress::Operations(ended));
                let end = run.run_jobs(&mut ObservedJobs { checker, progress, ended: 0 });
                checker.end(end.expect("the checker of jobs is made for a run of jobs"));
                checker.timings()
            }
            (Self::Qsnet(run), RunChecker::Operations(checker)) => {
                let progress = |ended| progress(RunProgress::Operations(ended));
                run.run(scenario.operations, &mut **checker, progress)
            }
            (Self::Qsnet(_), RunChecker::Jobs(_)) => unreachable!("QsNet has no jobs"),
        }
    }

    pub(crate) fn tree(&self) -> Option<&AggregationTree> {
        self.packets()?.tree()
    }

    pub(crate) fn rebuilds(&self) -> u32 {
        self.packets().map_or(0, ScenarioRun::rebuilds)
    }

    pub(crate) fn ranks(&self) -> u32 {
        match self {
            Self::Packets(run) => run.ranks(),
            Self::Qsnet(run) => run.ranks(),
        }
    }

    pub(crate) fn elapsed(&self) -> SimSpan {
        match self {
            Self::Packets(run) => run.elapsed(),
            Self::Qsnet(run) => run.elapsed(),
        }
    }

    pub(crate) fn counters(&self) -> FabricCounters {
        match self {
            Self::Packets(run) => run.counters().clone(),
            Self::Qsnet(run) => run.counters(),
        }
    }

    pub(crate) fn telemetry(&self) -> Option<&Telemetry> {
        self.packets()?.telemetry()
    }

    pub(crate) fn traffic(&self) -> Vec<ClassRecord> {
        self.packets().map(ScenarioRun::traffic).unwrap_or_default()
    }

    pub(crate) fn workload(&self) -> Option<WorkloadSummary> {
        self.packets()?.workload()
    }

    pub(crate) fn flow_failures(&self) -> (Vec<FlowFailure>, u64) {
        self.packets().map(ScenarioRun::flow_failures).unwrap_or_default()
    }

    pub(crate) fn trace(&self) -> u64 {
        match self {
            Self::Packets(run) => run.trace(),
            Self::Qsnet(run) => run.trace(),
        }
    }

    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Packets(run) => run.memory(),
            Self::Qsnet(run) => run.memory(),
        }
    }

    pub(crate) fn links(&self) -> Box<dyn Iterator<Item = LinkReport> + '_> {
        match self {
            Self::Packets(run) => run.links(),
            Self::Qsnet(run) => Box::new(run.links()),
        }
    }

    fn packets(&self) -> Option<&ScenarioRun> {
        match self {
            Self::Packets(run) => Some(run),
            Self::Qsnet(_) => None,
        }
    }
}

fn qsnet_run(scenario: &Scenario, qsnet: &QsnetScenario) -> Result<QsnetRun> {
    let (_, parameters) = QuadricsParameters::read(None)?;
    let mut network = parameters.fabric(Some(qsnet.dimension));
    network.wire = qsnet.wire.unwrap_or(network.wire);
    network.switch_delay = qsnet.switch_delay.unwrap_or(network.switch_delay);
    let mut costs = parameters.costs(match qsnet.host_noise {
        QsnetHostNoise::None => QuadricsHostNoise::Quiet,
        QsnetHostNoise::Testbed => QuadricsHostNoise::Noisy,
    });
    costs.poll_priority = match qsnet.poll_priority {
        QsnetPollPriority::Low => CircuitPriority::Low,
        QsnetPollPriority::High => CircuitPriority::High,
    };
    let pattern = match qsnet.background {
        QsnetBackground::None => None,
        QsnetBackground::Complement => Some(SaturationPattern::Complement),
        QsnetBackground::Uniform => Some(SaturationPattern::Uniform),
    };
    let background = pattern.map(|pattern| ElanBackground { pattern, message_bytes: qsnet.background_bytes });
    let collective = QsnetCollective {
        operation: operation(qsnet, &parameters),
        members: QuadricsMembers::range(0, scenario.members(), Rank(0), qsnet.radix)?,
        late: qsnet.late,
        contents: if qsnet.kind.is_some() { BroadcastContents::Real } else { BroadcastContents::SizeOnly },
    };
    let (retry_limit, refusal_limit) = (qsnet.retry_limit, qsnet.refusal_limit);
    let retry = RetryPolicy { timeout: qsnet.timeout.into(), retry_limit, refusal_limit };
    let run = QsnetRun::new((network, costs), background, collective, (&scenario.plan, retry), scenario.seed)
        .map_err(|error| scenario.fabric_error(error.to_string()))?;
    run.context("the parameters of the network are out of range")
}

fn operation(qsnet: &QsnetScenario, parameters: &QuadricsParameters) -> ElanCollective {
    let back_off = parameters.back_off();
    let broadcast = |synchronisation| ElanCollective::Broadcast {
        synchronisation,
        bytes: qsnet.bytes,
        memory: match qsnet.memory {
            QsnetMemory::Elan => MemoryLocation::Elan,
            QsnetMemory::Main => MemoryLocation::Main,
        },
        buffers: BroadcastBuffers::Global,
    };
    let wake = match qsnet.wake_up {
        QsnetWakeUp::Polling => HostWakeup::Polling,
        QsnetWakeUp::Event => HostWakeup::Event,
    };
    match qsnet.algorithm {
        QsnetAlgorithm::Gsync => ElanCollective::TreeBarrier,
        QsnetAlgorithm::Hgsync => ElanCollective::PolledBarrier { wake, back_off },
        QsnetAlgorithm::Bcast => broadcast(BroadcastSynchronization::Tree),
        QsnetAlgorithm::Hbcast => broadcast(BroadcastSynchronization::Poll(back_off)),
    }
}
