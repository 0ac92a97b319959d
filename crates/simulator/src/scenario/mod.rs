//! Scenarios: a fabric, an operation and its faults, in TOML.
//!
//! In: a text. Out: a [`Scenario`] that can be run, or a [`ScenarioError`] that names file, line, column, field and the allowed values.
//! Any text gives one or the other: never a panic, never memory out of proportion to the text.
//!
//! ```toml
//! [fabric]
//! kind = "xgft"                 # the 1,728 hosts of SE-11
//! children = [24, 12, 6]
//! parents = [1, 12, 6]
//!
//! [collective]
//! replication = "temporal"      # each packet twice in a row
//! copies = 2
//!
//! [[fault]]
//! kind = "flip"                 # a bit error on every channel, 100 us apart on average
//! mean-us = 100
//! ```
//!
//! All fields, their values and defaults: [`FIELDS`].

mod error;
mod ethernet;
mod fabric;
mod fault_rules;
mod field_values;
mod fields;
mod flow_tables;
mod host_vector;
mod job_placement;
#[cfg(test)]
mod job_tests;
mod jobs;
mod method;
pub mod names;
mod qsnet;
mod run;
mod sweep;
mod tables;
#[cfg(test)]
mod tests;
mod values;
mod vector;

use std::path::Path;
use std::sync::Arc;

use faults::RandomStream;
use topology::{Fabric, NodeId, PlacementError, TreeRequest};

pub use error::ScenarioError;
pub use ethernet::ROUTE_CHOICES;
pub use fabric::MAX_HOSTS;
pub use fields::{FIELDS, FieldHelp};
pub use flow_tables::ScenarioFlows;
pub use jobs::{JobPlacement, ScenarioJob};
pub use qsnet::{
    QsnetAlgorithm, QsnetBackground, QsnetHostNoise, QsnetMemory, QsnetPollPriority, QsnetScenario, QsnetWakeUp,
};
pub use run::{FlowRun, RunProgress, ScenarioRun};
pub use sweep::{ScenarioVariant, SweptField};

use crate::collective::{CollectiveParameters, CollectiveSetupError, SimulatedCollective};
use crate::fault::{FaultPlan, FaultPlanError};
use crate::link_rate::{LinkRate, LinkWidth};
use crate::network::{EthernetParameters, LinkParameters, RouteChoice};
use crate::segmented::{SegmentedCollective, SegmentedParameters, SegmentedSetupError};
use crate::shared_fabric::SharedFabric;
use error::SpannedError;
use flow_tables::FlowTables;
use jobs::JobSurroundings;
use method::ScenarioMethod;
use tables::{CollectiveTable, ScenarioFabricTable, ScenarioTable};

/// The most operations of a run.
pub const MAX_OPERATIONS: u32 = 1_000_000;
/// The most deliveries of a run: the oracle remembers two bits of each.
const MAX_DELIVERIES: u64 = 1 << 33;
/// The most bytes of a text.
const MAX_TEXT: usize = 1 << 20;

/// What the oracle checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResultCheck {
    /// Every bit of every result.
    Bits,
    /// That every member gets each result once, without its bits.
    Delivery,
    /// Nothing.
    Nothing,
}

/// The network that `link.technology` names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LinkTechnology {
    InfiniBand,
    Ethernet,
    Qsnet,
    /// InfiniBand or Ethernet, as the rate says.
    OfRate,
}

impl LinkTechnology {
    const NAMES: [(&'static str, Self); 3] =
        [("infiniband", Self::InfiniBand), ("ethernet", Self::Ethernet), ("qsnet", Self::Qsnet)];
}

/// The description of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The name in reports.
    pub name: String,
    /// What the scenario shows.
    pub about: String,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The number of operations, one after another.
    pub operations: u32,
    /// The fabric.
    pub fabric: Arc<Fabric>,
    /// Lanes of a port.
    pub width: LinkWidth,
    /// Speed of a lane.
    pub rate: LinkRate,
    /// Cables, switches and adapters.
    pub link: LinkParameters,
    /// The operation and its parameters; for operations among hosts, only the fields that all operations share.
    pub collective: CollectiveParameters,
    /// The operation among hosts, if it does not use the aggregation tree.
    pub hosts: Option<SegmentedParameters>,
    /// Why the selector chose the algorithm, if it was asked.
    pub choice: Option<String>,
    /// The faults.
    pub plan: FaultPlan,
    /// What the oracle checks.
    pub check: ResultCheck,
    /// Ethernet's queues and pauses, if links are Ethernet.
    pub ethernet: Option<EthernetParameters>,
    /// How packets between hosts are distributed over equal routes.
    pub routing: RouteChoice,
    /// Traffic and workloads, if there are any.
    pub flows: Option<ScenarioFlows>,
    /// Whether collectives run at all.
    pub has_collective: bool,
    /// Groups of hosts that work at the same time; then there is no collective.
    pub jobs: Vec<ScenarioJob>,
    /// What the Quadrics network needs, if links are QsNet's. Then `link`, `width` and `rate` mean nothing.
    pub qsnet: Option<QsnetScenario>,
    /// The host of each rank.
    pub placement: Vec<u32>,
    source: Source,
}

/// The source text, for errors that are found only at set-up.
#[derive(Clone, Debug)]
struct Source {
    file: String,
    text: String,
    fabric: std::ops::Range<usize>,
    copies: std::ops::Range<usize>,
    algorithm: std::ops::Range<usize>,
}

impl Scenario {
    /// Parses a scenario. Files that it names are relative to `file_name`.
    ///
    /// # Errors
    /// If the text is not a scenario; the error says where and why.
    pub fn parse(text: &str, file_name: &str) -> Result<Self, ScenarioError> {
        read(text, file_name).map_err(|error| ScenarioError::new(text, file_name, error))
    }

    /// Sets up the aggregation tree alone: nothing beside it, and no rebuilding.
    ///
    /// # Errors
    /// If the parts contradict each other, for example too few switches for the replicas.
    pub fn collective(&self, seed: u64) -> Result<SimulatedCollective, ScenarioError> {
        self.collective_of(CollectiveParameters { rebuild_after: None, ..self.collective.clone() }, seed)
    }

    fn collective_of(
        &self,
        parameters: CollectiveParameters,
        seed: u64,
    ) -> Result<SimulatedCollective, ScenarioError> {
        let (fabric, link) = (self.fabric.clone(), self.link.clone());
        SimulatedCollective::new(fabric, link, parameters, &self.plan, seed, self.width)
            .map_err(|error| self.locate_error(error))
    }

    /// Sets up the run, with the aggregation tree or among hosts.
    ///
    /// # Errors
    /// As [`Self::collective`], or if the links are those of another crate's network ([`Self::qsnet`]).
    pub fn set_up(&self, seed: u64) -> Result<ScenarioRun, ScenarioError> {
        if self.qsnet.is_some() {
            return Err(self.fabric_error("QsNet is not simulated here".to_owned()));
        }
        if !self.jobs.is_empty() {
            let groups = self.jobs.iter().map(ScenarioJob::group).collect();
            let run = SharedFabric::new(self.fabric.clone(), self.link.clone(), groups, &self.plan, seed);
            let mut run = ScenarioRun::Jobs(Box::new(run.map_err(|error| self.plan_error(error))?));
            run.extend(self, seed);
            return Ok(run);
        }
        if !self.has_collective {
            let run = FlowRun::new(self, seed).map_err(|error| self.plan_error(error))?;
            return Ok(ScenarioRun::Flows(Box::new(run)));
        }
        let mut run = self.set_up_collective(seed)?;
        run.extend(self, seed);
        Ok(run)
    }

    fn plan_error(&self, error: FaultPlanError) -> ScenarioError {
        let source = &self.source;
        ScenarioError::new(&source.text, &source.file, SpannedError::new(error.span.clone(), error.message))
    }

    fn set_up_collective(&self, seed: u64) -> Result<ScenarioRun, ScenarioError> {
        let Some(parameters) = &self.hosts else {
            let run = self.collective_of(self.collective.clone(), seed)?;
            return Ok(ScenarioRun::Tree(Box::new(run)));
        };
        let (fabric, link) = (self.fabric.clone(), self.link.clone());
        SegmentedCollective::new(fabric, link, parameters.clone(), &self.plan, seed)
            .map(|mut run| {
                run.place(&self.placement);
                ScenarioRun::Hosts(Box::new(run))
            })
            .map_err(|error| {
                let source = &self.source;
                let span = match &error {
                    SegmentedSetupError::Plan(error) => error.span.clone(),
                    SegmentedSetupError::Schedule(_) => source.algorithm.clone(),
                };
                ScenarioError::new(&source.text, &source.file, SpannedError::new(span, error.to_string()))
            })
    }

    /// An error that only shows when the fabric is set up.
    pub fn fabric_error(&self, message: String) -> ScenarioError {
        let source = &self.source;
        ScenarioError::new(&source.text, &source.file, SpannedError::new(source.fabric.clone(), message))
    }

    /// Segments of each vector; the oracle judges each as an operation of its own.
    pub fn segments(&self) -> u32 {
        self.hosts.as_ref().map_or(self.collective.segments(), |hosts| hosts.vector.segments())
    }

    /// Members of the group.
    pub fn members(&self) -> u32 {
        self.collective.members.unwrap_or(self.fabric.hosts())
    }

    /// Whether traffic and workloads are all that runs.
    pub fn runs_flows_alone(&self) -> bool {
        !self.has_collective && self.jobs.is_empty()
    }

    /// Operations of the run, of all jobs together.
    pub fn total_operations(&self) -> u64 {
        if self.jobs.is_empty() {
            return self.operations.into();
        }
        self.jobs.iter().map(|job| u64::from(job.operations)).sum()
    }

    /// Sets the number of operations, of each job if there are jobs. False if so many cannot be run; then nothing changes.
    pub fn set_operations(&mut self, operations: u32) -> bool {
        let can_run = self.can_run(operations);
        if can_run {
            self.operations = operations;
            self.jobs.iter_mut().for_each(|job| job.operations = operations);
        }
        can_run
    }

    /// Whether a number of operations can be run and checked.
    fn can_run(&self, operations: u32) -> bool {
        if !self.jobs.is_empty() {
            return self.jobs.iter().all(|job| job.can_run(operations));
        }
        (1..=MAX_OPERATIONS).contains(&operations)
            && u64::from(operations) * u64::from(self.segments()) <= u64::from(u32::MAX)
            && u64::from(operations) * u64::from(self.segments()) * u64::from(self.members()) <= MAX_DELIVERIES
    }

    fn locate_error(&self, error: CollectiveSetupError) -> ScenarioError {
        let source = &self.source;
        let span = match &error {
            CollectiveSetupError::Plan(error) => error.span.clone(),
            CollectiveSetupError::TooFewLanes { .. }
            | CollectiveSetupError::OrdersDiffer
            | CollectiveSetupError::Place(PlacementError::TooFewParents { .. }) => source.copies.clone(),
            CollectiveSetupError::Place(_) | CollectiveSetupError::OutOfRange(_) => source.fabric.clone(),
        };
        ScenarioError::new(&source.text, &source.file, SpannedError::new(span, error.to_string()))
    }
}

fn read(text: &str, file_name: &str) -> Result<Scenario, SpannedError> {
    if text.len() > MAX_TEXT {
        return Err(SpannedError::new(0..0, format!("the text has {} bytes; the limit is {MAX_TEXT}", text.len())));
    }
    let table: ScenarioTable = toml::from_str(text)?;
    match (qsnet::technology(&table.link)?, &table.qsnet) {
        (LinkTechnology::Qsnet, _) => qsnet::read(table, text, file_name),
        (_, None) => read_packets(table, text, file_name),
        (_, Some(qsnet)) => Err(SpannedError::new(qsnet.span(), "[qsnet] is for the Quadrics network")
            .allowing("with link.technology = \"qsnet\"")),
    }
}

/// A scenario on InfiniBand or Ethernet.
fn read_packets(mut table: ScenarioTable, text: &str, file_name: &str) -> Result<Scenario, SpannedError> {
    let file = Path::new(file_name);
    let folder = file.parent().unwrap_or(Path::new(""));
    let fabric = fabric::fabric(&table.fabric, folder)?;
    let link = values::link(&table.link)?;
    let has_collective = has_collective(&table)?;
    let own = table.collective.take().unwrap_or_default();
    let seed = field_values::whole(&table.seed, 0..=i64::MAX, 1)? as u64;
    let placement = placement(&own, &table.fabric, &fabric, seed)?;
    let flows = scenario_flows(&table, &fabric, &placement, &link, folder)?;
    let runs_alone = !has_collective && table.job.is_empty();
    flow_tables::check_end(&table.traffic, flows.as_ref().filter(|_| runs_alone))?;
    let around =
        JobSurroundings { fabric: &fabric, placement: &placement, link: &link, link_table: &table.link, seed };
    let jobs = jobs::jobs(&table.job, &around)?;
    let operation = method::operation(&own)?;
    let vector = vector::vector(&own, operation)?;
    let members = values::members(&own, fabric.hosts())?.unwrap_or(fabric.hosts());
    let request = tree_request(&fabric, members);
    let (method, choice) = method::method(&own, operation, &vector, (&fabric, &request), members)?;
    let collective = values::collective(&own, &link, fabric.hosts(), method, &vector)?;
    let hosts = match method {
        ScenarioMethod::Tree(_) => None,
        ScenarioMethod::Hosts(algorithm) => {
            Some(host_vector::parameters(&own, operation, algorithm, &vector, &collective, members)?)
        }
    };
    fabric::check_size(&fabric, &table.fabric, link.parameters.virtual_lanes, collective.spatial_copies())?;
    let packet_bytes = hosts.as_ref().map_or(collective.contents.bytes(), |hosts| hosts.mtu.min(vector.bytes));
    values::check_buffer(&table.link, &link, packet_bytes)?;
    let check = values::check(&own, &vector)?;
    let fault_seed = field_values::optional(&table.fault_seed, 0..=i64::MAX)?.map(|seed| seed as u64);
    let usual = if has_collective { 100 } else { 1 };
    let operations = field_values::whole(&own.operations, 1..=i64::from(MAX_OPERATIONS), usual)? as u32;
    let plan = fault_rules::plan(table.fault, fault_seed, &fabric, collective.spatial_copies())?;
    let kind = table.fabric.get_ref().kind.span();
    let algorithm = own.algorithm.as_ref().map_or(kind.clone(), toml::Spanned::span);
    let place = |field: &tables::SpannedField<i64>| field.as_ref().map_or(kind.clone(), toml::Spanned::span);
    let scenario = Scenario {
        name: table.name.unwrap_or_else(|| stem(file)),
        about: table.about.unwrap_or_default(),
        seed,
        operations,
        fabric: Arc::new(fabric),
        width: link.width,
        rate: link.rate,
        link: link.parameters,
        collective,
        hosts,
        choice,
        plan,
        check,
        ethernet: link.ethernet,
        routing: link.routing,
        flows,
        has_collective,
        jobs,
        qsnet: None,
        placement,
        source: Source {
            file: file_name.to_owned(),
            text: text.to_owned(),
            copies: place(&own.copies),
            fabric: kind.clone(),
            algorithm,
        },
    };
    check_operations(&scenario, place(&own.operations))?;
    Ok(scenario)
}

/// Whether a collective runs: if it is described, or nothing else is.
fn has_collective(table: &ScenarioTable) -> Result<bool, SpannedError> {
    match (&table.collective, table.job.first()) {
        (Some(_), Some(job)) => Err(SpannedError::new(job.span(), "[collective] and [[job]] exclude each other")
            .allowing("make the collective a job too")),
        (given, job) => Ok(given.is_some() || job.is_none() && FlowTables::of(table).is_empty()),
    }
}

/// A tree over the first hosts.
fn tree_request(fabric: &Fabric, members: u32) -> TreeRequest {
    if members == fabric.hosts() { TreeRequest::all() } else { TreeRequest::over((0..members).map(NodeId)) }
}

fn check_operations(scenario: &Scenario, span: std::ops::Range<usize>) -> Result<(), SpannedError> {
    let (operations, members) = (scenario.operations, scenario.members());
    if scenario.can_run(operations) {
        return Ok(());
    }
    let message = match scenario.segments() {
        1 => format!("{operations} operations of {members} members are too many"),
        segments => format!("{operations} operations of {members} members in {segments} segments are too many"),
    };
    Err(SpannedError::new(span, message))
}

/// The host of each rank.
fn placement(
    own: &CollectiveTable,
    table: &toml::Spanned<ScenarioFabricTable>,
    fabric: &Fabric,
    seed: u64,
) -> Result<Vec<u32>, SpannedError> {
    let is_random = field_values::choice(&own.placement, &[("packed", false), ("random", true)], false)?;
    if is_random {
        Ok(RandomStream::new(seed, 0x91ace).permutation(fabric.hosts()))
    } else {
        fabric::placement(table, fabric)
    }
}

fn scenario_flows(
    table: &ScenarioTable,
    fabric: &Fabric,
    placement: &[u32],
    link: &values::LinkSettings,
    folder: &Path,
) -> Result<Option<ScenarioFlows>, SpannedError> {
    let is_torus = table.fabric.get_ref().kind.get_ref() == "torus";
    ethernet::check_deadlock(&table.link, link.ethernet.as_ref(), fabric, is_torus)?;
    let dcqcn = flow_tables::congestion_control(&table.link.congestion_control, link.ethernet.is_some())?;
    let tables = FlowTables::of(table);
    flow_tables::flows(&tables, fabric, placement, &link.parameters, link.routing, dcqcn, folder)
}

fn stem(file: &Path) -> String {
    file.file_stem().map_or_else(|| "scenario".to_owned(), |stem| stem.to_string_lossy().into_owned())
}
