//! A run of a scenario: with the aggregation tree, among hosts, or of flows alone; traffic may share the fabric with all of them.

use topology::AggregationTree;
use units::{SimSpan, SimTime};

use super::{Scenario, ScenarioFlows};
use crate::collective::{CollectiveObserver, CollectiveTiming, LinkReport, SimulatedCollective};
use crate::counters::FabricCounters;
use crate::fault::FaultPlanError;
use crate::flows::{ClassRecord, FlowEngine, FlowFailure};
use crate::network::{DeliveredPacket, NetworkHandler, SimulatedNetwork, Telemetry};
use crate::packet::ChannelId;
use crate::segmented::SegmentedCollective;
use crate::shared_fabric::{SharedFabric, SharedFabricEnd, SharedFabricObserver};
use crate::workload::{WorkloadExecutor, WorkloadSummary};

/// A scenario, set up to run.
pub enum ScenarioRun {
    /// Operations through the aggregation tree.
    Tree(Box<SimulatedCollective>),
    /// Operations among hosts.
    Hosts(Box<SegmentedCollective>),
    /// Several jobs at the same time.
    Jobs(Box<SharedFabric>),
    /// Traffic and workloads without operations.
    Flows(Box<FlowRun>),
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum RunProgress {
    /// So many operations have ended.
    Operations(u32),
    /// Of traffic and workloads alone, which count as one operation: the share that is over, from 0 to 1.
    Share(f64),
}

/// Events of the network between two looks at how far flows are.
const EVENTS_OF_A_LOOK: u32 = 1 << 16;

impl ScenarioRun {
    /// Runs operations one after another; stops early if one hangs. Flows alone count as one operation.
    ///
    /// # Panics
    /// If the scenario has jobs, which [`Self::run_jobs`] runs.
    pub fn run(
        &mut self,
        operations: u32,
        observer: &mut dyn CollectiveObserver,
        mut progress: impl FnMut(RunProgress),
    ) -> Vec<CollectiveTiming> {
        match self {
            Self::Tree(run) => run.run(operations, observer, |ended| progress(RunProgress::Operations(ended))),
            Self::Hosts(run) => run.run(operations, observer, |ended| progress(RunProgress::Operations(ended))),
            Self::Jobs(_) => panic!("jobs have an observer of their own"),
            Self::Flows(run) => {
                let complete = run.run(|share| progress(RunProgress::Share(share)));
                progress(RunProgress::Operations(1));
                vec![CollectiveTiming { reduce: None, complete }]
            }
        }
    }

    /// Runs all operations of all jobs, and says how that ended; none if the scenario has no jobs.
    pub fn run_jobs(&mut self, observer: &mut dyn SharedFabricObserver) -> Option<SharedFabricEnd> {
        match self {
            Self::Jobs(run) => Some(run.run(observer)),
            Self::Tree(_) | Self::Hosts(_) | Self::Flows(_) => None,
        }
    }

    /// Gives the network what the scenario says beyond credits, records over time, and the flows.
    pub(super) fn extend(&mut self, scenario: &Scenario, seed: u64) {
        let network = match self {
            Self::Tree(run) => run.network_mut(),
            Self::Hosts(run) => run.network_mut(),
            Self::Jobs(run) => run.network_mut(),
            Self::Flows(run) => &mut run.network,
        };
        let telemetry = Telemetry::new(network.channel_count());
        network.extend(scenario.ethernet, scenario.routing, Some(telemetry), seed);
        if let Some(flows) = &scenario.flows {
            network.attach_flows(Box::new(engine(flows, seed)));
        }
    }

    fn network(&self) -> &SimulatedNetwork {
        match self {
            Self::Tree(run) => run.network(),
            Self::Hosts(run) => run.network(),
            Self::Jobs(run) => run.network(),
            Self::Flows(run) => &run.network,
        }
    }

    fn flows(&self) -> Option<&FlowEngine> {
        self.network().flows()
    }

    /// The aggregation tree, if there is one.
    pub fn tree(&self) -> Option<&AggregationTree> {
        match self {
            Self::Tree(run) => Some(run.tree()),
            Self::Hosts(_) | Self::Jobs(_) | Self::Flows(_) => None,
        }
    }

    /// How often the aggregation tree was rebuilt.
    pub fn rebuilds(&self) -> u32 {
        match self {
            Self::Tree(run) => run.rebuilds(),
            Self::Jobs(run) => run.failed_trees(),
            Self::Hosts(_) | Self::Flows(_) => 0,
        }
    }

    /// Members of the group.
    pub fn ranks(&self) -> u32 {
        match self {
            Self::Tree(run) => run.ranks(),
            Self::Hosts(run) => run.ranks(),
            Self::Jobs(run) => run.members(),
            Self::Flows(run) => run.network.topology().hosts(),
        }
    }

    /// The simulated time so far.
    pub fn elapsed(&self) -> SimSpan {
        self.network().now().since(SimTime::ZERO)
    }

    /// The counters of the network.
    pub fn counters(&self) -> &FabricCounters {
        &self.network().counters
    }

    /// What was recorded over time.
    pub fn telemetry(&self) -> Option<&Telemetry> {
        self.network().telemetry()
    }

    /// What became of each class of traffic.
    pub fn traffic(&self) -> Vec<ClassRecord> {
        self.flows().map(FlowEngine::finished_records).unwrap_or_default()
    }

    /// What became of the workload, if there is one.
    pub fn workload(&self) -> Option<WorkloadSummary> {
        self.flows()?.workload.as_ref().map(WorkloadExecutor::summary)
    }

    /// Flows that gave up: the first of them, and how many.
    pub fn flow_failures(&self) -> (Vec<FlowFailure>, u64) {
        self.flows().map_or((Vec::new(), 0), |flows| {
            let (listed, all) = flows.failures();
            (listed.to_vec(), all)
        })
    }

    /// Links that a pause stops at the end of the run.
    pub fn paused_links(&self) -> usize {
        self.network().paused_channels()
    }

    /// The digest of all events so far.
    pub fn trace(&self) -> u64 {
        self.network().trace()
    }

    /// Bytes of the network and of the machines, as far as they are counted.
    pub fn memory(&self) -> usize {
        match self {
            Self::Tree(run) => run.memory(),
            Self::Hosts(run) => run.memory(),
            Self::Jobs(run) => run.network().memory(),
            Self::Flows(run) => run.network.memory(),
        }
    }

    /// Every direction of every cable with a packet, an error or a loss.
    pub fn links(&self) -> Box<dyn Iterator<Item = LinkReport> + '_> {
        Box::new(self.network().link_reports())
    }
}

fn engine(flows: &ScenarioFlows, seed: u64) -> FlowEngine {
    let workload = flows.workload.as_ref().map(|workload| WorkloadExecutor::new(workload.as_ref().clone()));
    FlowEngine::new(flows.parameters.clone(), flows.classes.clone(), workload, seed)
}

/// Traffic and workloads without operations.
pub struct FlowRun {
    network: SimulatedNetwork,
    limit: SimSpan,
}

/// Flows are part of the network: no driver is beside them.
struct NoDriver;

impl NetworkHandler for NoDriver {
    fn handle_packet(&mut self, _: &mut SimulatedNetwork, _: DeliveredPacket) {}
    fn handle_idle_source(&mut self, _: &mut SimulatedNetwork, _: ChannelId) {}
    fn handle_timer(&mut self, _: &mut SimulatedNetwork, _: u32) {}
}

impl FlowRun {
    pub(super) fn new(scenario: &Scenario, seed: u64) -> Result<Self, FaultPlanError> {
        let mut network = SimulatedNetwork::new(scenario.fabric.clone(), scenario.link.clone());
        network.set_faults(&scenario.plan, seed)?;
        let telemetry = Telemetry::new(network.channel_count());
        network.extend(scenario.ethernet, scenario.routing, Some(telemetry), seed);
        let limit = scenario.flows.as_ref().map_or(SimSpan::ZERO, |flows| flows.limit);
        if let Some(flows) = &scenario.flows {
            network.attach_flows(Box::new(engine(flows, seed)));
        }
        Ok(Self { network, limit })
    }

    /// Runs until all flows have ended; none if some have not within the limit, or have failed.
    fn run(&mut self, mut progress: impl FnMut(f64)) -> Option<SimSpan> {
        let end = SimTime::ZERO + self.limit;
        let is_done = |network: &SimulatedNetwork| network.flows::<FlowEngine>().is_none_or(FlowEngine::is_done);
        let mut events = 0;
        self.network.run(&mut NoDriver, |_, network| {
            events += 1;
            if events == EVENTS_OF_A_LOOK {
                events = 0;
                progress(network.flows::<FlowEngine>().map_or(1.0, |flows| flows.share_over(network.now())));
            }
            network.now() > end || is_done(network)
        });
        let flows: &FlowEngine = self.network.flows()?;
        let is_workload_complete =
            flows.workload.as_ref().map(WorkloadExecutor::summary).is_none_or(|all| all.completed == all.operations);
        let is_good = flows.is_done() && flows.failures().1 == 0 && is_workload_complete;
        is_good.then(|| flows.end_time().since(SimTime::ZERO))
    }
}
