//! The `[[job]]` tables: several groups of hosts, each with its own collective, all at work at the same time.
//!
//! In: the tables, the fabric and the seed. Out: a [`ScenarioJob`] each, with its hosts. The fields of the collective are checked by the
//! functions that check `[collective]`.

use faults::RandomStream;
use protocol::connection::ConnectionPolicy;
use toml::Spanned;
use topology::{Fabric, NodeId, TreeRequest};
use units::{SimSpan, SimTime};

use super::error::SpannedError;
use super::field_values::{at, choice, sim_span, whole};
use super::job_placement::HostPool;
use super::method::{self, ScenarioMethod};
use super::tables::{CollectiveTable, JobTable, LinkTable};
use super::values::{self, LinkSettings};
use super::vector::{self, VectorSettings};
use super::{MAX_DELIVERIES, ResultCheck, host_vector, names};
use crate::collective::{CollectiveMethod, CollectiveParameters, SimulatedOperation};
use crate::segmented::{HostOperation, SegmentedParameters, SegmentedVector, VectorContents};
use crate::shared_fabric::{AfterFailure, FabricGroup, GroupMethod, GroupOperation};

/// The most jobs.
const MAX_JOBS: usize = 64;
/// The most operations of a job.
const MAX_JOB_OPERATIONS: u32 = 100_000;

/// How the hosts of a job were chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobPlacement {
    /// The first hosts that no other job has.
    Packed,
    /// Hosts at random that no other job has.
    Random,
    /// Those that the scenario lists.
    Listed,
}

impl JobPlacement {
    /// The name in scenarios and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Packed => "packed",
            Self::Random => "random",
            Self::Listed => "list",
        }
    }
}

/// A group of hosts and its collective.
#[derive(Clone, Debug)]
pub struct ScenarioJob {
    /// The name in the report.
    pub name: String,
    /// How its hosts were chosen.
    pub placement: JobPlacement,
    /// The host of each rank.
    pub hosts: Vec<u32>,
    /// The operation.
    pub operation: HostOperation,
    /// Who carries it out.
    pub method: GroupMethod,
    /// Why the selector chose the algorithm, if it was asked.
    pub choice: Option<String>,
    /// The vector of each host and its segments.
    pub vector: SegmentedVector,
    /// The number of operations, one after another.
    pub operations: u32,
    /// When the first operation starts.
    pub start: SimSpan,
    /// What the oracle checks.
    pub check: ResultCheck,
    /// How trees and connections work.
    tree: CollectiveParameters,
    links: JobLinks,
}

/// How the hosts of a job exchange messages.
#[derive(Clone, Debug)]
struct JobLinks {
    policy: ConnectionPolicy,
    mtu: u32,
    window: u32,
}

impl ScenarioJob {
    /// Members of the job.
    pub fn members(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The names of the operation and of the algorithm.
    pub fn names(&self) -> (&'static str, &'static str) {
        match self.method {
            GroupMethod::Hosts(algorithm) => names::host_operation_names(self.operation, algorithm),
            GroupMethod::Tree(_) => names::operation_names(self.tree.operation),
        }
    }

    /// Bytes of a vector: as in `[collective]`, what a host contributes, or the result of an allgather.
    pub fn bytes(&self) -> u64 {
        self.vector.wire_bytes()
    }

    /// Results of all members in all segments of so many operations.
    fn deliveries(&self, operations: u32) -> u64 {
        u64::from(operations) * u64::from(self.vector.segments()) * u64::from(self.members())
    }

    /// Whether a number of operations can be run and checked.
    pub(super) fn can_run(&self, operations: u32) -> bool {
        (1..=MAX_JOB_OPERATIONS).contains(&operations)
            && u64::from(operations) * u64::from(self.vector.segments()) <= u64::from(u32::MAX)
            && self.deliveries(operations) <= MAX_DELIVERIES / MAX_JOBS as u64
    }

    /// The job as the fabric runs it.
    pub(super) fn group(&self) -> FabricGroup {
        let SegmentedVector { kind, elements, segment_elements, contents } = self.vector;
        let operation = GroupOperation {
            operation: self.operation,
            method: self.method,
            kind,
            elements,
            segment_elements,
            contents,
            not_before: SimTime::ZERO + self.start,
        };
        FabricGroup {
            hosts: self.hosts.iter().copied().map(NodeId).collect(),
            tree: self.tree.clone(),
            policy: self.links.policy,
            mtu: self.links.mtu,
            window: self.links.window,
            operations: vec![operation; self.operations as usize],
            hang_timeout: self.tree.hang_timeout.times(100),
            after_failure: AfterFailure::Stop,
        }
    }
}

/// What the jobs of a scenario share.
pub(super) struct JobSurroundings<'s> {
    pub fabric: &'s Fabric,
    /// The hosts in the order of ranks.
    pub placement: &'s [u32],
    pub link: &'s LinkSettings,
    pub link_table: &'s LinkTable,
    pub seed: u64,
}

/// Reads all jobs and places them: listed hosts first, then job by job in the order of the file.
pub(super) fn jobs(
    tables: &[Spanned<JobTable>],
    around: &JobSurroundings<'_>,
) -> Result<Vec<ScenarioJob>, SpannedError> {
    if let Some(one_too_many) = tables.get(MAX_JOBS) {
        return Err(SpannedError::new(one_too_many.span(), format!("at most {MAX_JOBS} jobs")));
    }
    let mut pool = HostPool::new(around.placement);
    let mut hosts = vec![None; tables.len()];
    for (table, hosts) in tables.iter().zip(&mut hosts) {
        *hosts = pool.take_listed(table.get_ref())?;
    }
    let mut jobs: Vec<ScenarioJob> = Vec::with_capacity(tables.len());
    for (number, (spanned, listed)) in tables.iter().zip(hosts).enumerate() {
        let table = spanned.get_ref();
        let (placement, hosts) = match listed {
            Some(hosts) => (JobPlacement::Listed, hosts),
            None => {
                let names = [("packed", JobPlacement::Packed), ("random", JobPlacement::Random)];
                let placement = choice(&table.placement, &names, JobPlacement::Packed)?;
                let random = (placement == JobPlacement::Random)
                    .then(|| RandomStream::new(around.seed.wrapping_add(number as u64), 0x10b));
                (placement, pool.take(spanned, random)?)
            }
        };
        let name = match &table.name {
            Some(name) if jobs.iter().any(|other| other.name == *name.get_ref()) => {
                let message = format!("another job is called {:?}", name.get_ref());
                return Err(SpannedError::new(name.span(), message).allowing("a name of its own"));
            }
            Some(name) => name.get_ref().clone(),
            None => format!("job {}", number + 1),
        };
        jobs.push(job(spanned, name, (placement, hosts), around)?);
    }
    Ok(jobs)
}

fn job(
    spanned: &Spanned<JobTable>,
    name: String,
    (placement, mut hosts): (JobPlacement, Vec<u32>),
    around: &JobSurroundings<'_>,
) -> Result<ScenarioJob, SpannedError> {
    let (table, members) = (spanned.get_ref(), hosts.len() as u32);
    let own = table.to_collective();
    let operation = method::operation(&own)?;
    let settings = vector::vector(&own, operation)?;
    let request = TreeRequest::over(hosts.iter().copied().map(NodeId));
    let (found, choice) = method::method(&own, operation, &settings, (around.fabric, &request), members)?;
    let tree = values::collective(&own, around.link, around.fabric.hosts(), found, &settings)?;
    let (method, vector, links) = match found {
        ScenarioMethod::Tree(of_tree) => {
            check_tree(spanned, request, &tree, around.fabric)?;
            // A tree joins hosts in their order.
            hosts.sort_unstable();
            let vector = vector_of_tree(&tree, &settings);
            let links = host_vector::connections(&own)?;
            (
                GroupMethod::Tree(method_of(of_tree)),
                vector,
                JobLinks { policy: links.0, mtu: links.1, window: links.2 },
            )
        }
        ScenarioMethod::Hosts(algorithm) => {
            let parameters = host_vector::parameters(&own, operation, algorithm, &settings, &tree, members)?;
            let SegmentedParameters { policy, mtu, window, vector, .. } = parameters;
            (GroupMethod::Hosts(algorithm), vector, JobLinks { policy, mtu, window })
        }
    };
    values::check_buffer(around.link_table, around.link, links.mtu.min(settings.bytes))?;
    let job = ScenarioJob {
        name,
        placement,
        hosts,
        operation,
        method,
        choice,
        vector,
        operations: whole(&own.operations, 1..=i64::from(MAX_JOB_OPERATIONS), 10)? as u32,
        start: sim_span(&table.start_us, 0.0..=1e9, 1e6, SimSpan::ZERO)?,
        check: values::check(&own, &settings)?,
        tree,
        links,
    };
    check_operations(&job, &own, spanned.span())?;
    Ok(job)
}

fn check_operations(
    job: &ScenarioJob,
    own: &CollectiveTable,
    whole: std::ops::Range<usize>,
) -> Result<(), SpannedError> {
    if job.can_run(job.operations) {
        return Ok(());
    }
    let (operations, members, segments) = (job.operations, job.members(), job.vector.segments());
    let message = format!("{operations} operations of {members} members in {segments} segments are too many");
    let span = at(&own.operations).or(at(&own.segment_bytes)).unwrap_or(whole);
    Err(SpannedError::new(span, message).allowing("fewer operations, or longer segments"))
}

/// Refuses a tree that the fabric does not have, which would only show in the run.
fn check_tree(
    spanned: &Spanned<JobTable>,
    request: TreeRequest,
    tree: &CollectiveParameters,
    fabric: &Fabric,
) -> Result<(), SpannedError> {
    let request = TreeRequest { radix_limit: tree.radix_limit, ..request };
    topology::place_tree(fabric, &request).map(drop).map_err(|error| {
        let span = at(&spanned.get_ref().algorithm).unwrap_or(spanned.span());
        SpannedError::new(span, error.to_string()).allowing("an algorithm among hosts, such as \"ring\"")
    })
}

fn method_of(operation: SimulatedOperation) -> CollectiveMethod {
    match operation {
        SimulatedOperation::Broadcast(method) | SimulatedOperation::Barrier(method) => method,
        SimulatedOperation::AllReduce | SimulatedOperation::Reduce => CollectiveMethod::Aggregation,
    }
}

/// The vector and its segments, which are packets of the tree.
fn vector_of_tree(tree: &CollectiveParameters, settings: &VectorSettings) -> SegmentedVector {
    let kind = settings.kind.unwrap_or_else(method::any_kind);
    let element = kind.element_size() as u32;
    SegmentedVector {
        kind,
        elements: settings.bytes / element,
        segment_elements: (tree.contents.bytes() / element).max(1),
        contents: if settings.kind.is_some() { VectorContents::Elements } else { VectorContents::SizeOnly },
    }
}
