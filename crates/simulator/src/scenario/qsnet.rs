//! Scenarios on the Quadrics network: `link.technology = "qsnet"` (claims QN-1 to QN-16).
//!
//! In: the tables of a scenario. Out: a [`QsnetScenario`], which the crate of that network runs. A table or field that means nothing
//! there is an error, not ignored: that network has one kind of link, no aggregation nodes and two collectives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use protocol::collective::MAX_RADIX;
use reduce::ReductionKind;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use topology::Fabric;
use units::{SimSpan, Span};

use super::error::SpannedError;
use super::field_values::{at, choice, machine_span, optional, sim_span, whole};
use super::tables::{CollectiveTable, LinkTable, QsnetTable, ScenarioTable, SpannedField};
use super::{LinkTechnology, MAX_OPERATIONS, Scenario, Source, fabric, fault_rules, method, stem, values, vector};
use crate::collective::{CollectiveParameters, ContributionContents};
use crate::fault::{FaultPlan, LinkFaults, PhaseFilter};
use crate::segmented::HostOperation;

/// The most dimensions of the tree: 65,536 nodes.
const MAX_DIMENSION: u32 = 8;
/// The most bytes of all buffers of a broadcast with contents.
const MAX_BUFFER_BYTES: u64 = 1 << 30;

/// The collectives of the network (QN-9, QN-10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetAlgorithm {
    /// A barrier up a tree, released by multicast.
    Gsync,
    /// A barrier that the root polls in the network.
    Hgsync,
    /// A broadcast that synchronises up a tree.
    Bcast,
    /// A broadcast that synchronises by polls.
    Hbcast,
}

/// Where the data of a broadcast is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetMemory {
    /// In the adapters' memory.
    Elan,
    /// In main memory.
    Main,
}

/// How a host notices the end of a polled barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetWakeUp {
    /// It polls a word.
    Polling,
    /// It waits for an event.
    Event,
}

/// The priority of polls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetPollPriority {
    /// As data.
    Low,
    /// Before data.
    High,
}

/// The destinations of the background traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetBackground {
    /// No traffic.
    None,
    /// The node whose number has all bits inverted.
    Complement,
    /// Another node for each message.
    Uniform,
}

/// What interrupts the hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QsnetHostNoise {
    /// Nothing.
    None,
    /// The operating system, as on the paper's testbed.
    Testbed,
}

impl QsnetAlgorithm {
    /// The names, each with the operation; the first of an operation is its default.
    pub const NAMES: [(&'static str, Self, HostOperation); 4] = [
        ("hgsync", Self::Hgsync, HostOperation::Barrier),
        ("gsync", Self::Gsync, HostOperation::Barrier),
        ("hbcast", Self::Hbcast, HostOperation::Broadcast),
        ("bcast", Self::Bcast, HostOperation::Broadcast),
    ];

    /// The name.
    pub fn name(self) -> &'static str {
        self.entry().0
    }

    /// A barrier or a broadcast.
    pub fn operation(self) -> HostOperation {
        self.entry().2
    }

    fn entry(self) -> (&'static str, Self, HostOperation) {
        *Self::NAMES.iter().find(|(_, algorithm, _)| *algorithm == self).expect("every algorithm has a name")
    }
}

impl QsnetMemory {
    /// The names.
    pub const NAMES: [(&'static str, Self); 2] = [("elan", Self::Elan), ("main", Self::Main)];
}

impl QsnetWakeUp {
    /// The names.
    pub const NAMES: [(&'static str, Self); 2] = [("polling", Self::Polling), ("event", Self::Event)];
}

impl QsnetPollPriority {
    /// The names.
    pub const NAMES: [(&'static str, Self); 2] = [("low", Self::Low), ("high", Self::High)];
}

impl QsnetBackground {
    /// The names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("none", Self::None), ("complement", Self::Complement), ("uniform", Self::Uniform)];
}

impl QsnetHostNoise {
    /// The names.
    pub const NAMES: [(&'static str, Self); 2] = [("none", Self::None), ("testbed", Self::Testbed)];
}

/// What a run on the Quadrics network needs beyond what all scenarios have.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct QsnetScenario {
    /// The collective.
    pub algorithm: QsnetAlgorithm,
    /// Dimensions of the quaternary tree.
    pub dimension: u32,
    /// Children of a node of the software tree.
    pub radix: u32,
    /// Element type of a broadcast's data; none if only its size is simulated.
    pub kind: Option<ReductionKind>,
    /// Bytes of a broadcast.
    pub bytes: u32,
    /// Members enter up to this much later than they could.
    pub late: SimSpan,
    /// Delay of a cable, if it is not the usual one.
    pub wire: Option<SimSpan>,
    /// Delay of a switch, if it is not the usual one.
    pub switch_delay: Option<SimSpan>,
    /// How long a source waits for a missing answer; doubles each time.
    pub timeout: Span,
    /// Missing answers in a row after which the destination counts as lost.
    pub retry_limit: u8,
    /// Network errors in a row after which the destination counts as lost.
    pub refusal_limit: u16,
    /// Where a broadcast's data is.
    pub memory: QsnetMemory,
    /// How hosts notice the end of a polled barrier.
    pub wake_up: QsnetWakeUp,
    /// The priority of polls.
    pub poll_priority: QsnetPollPriority,
    /// The background traffic.
    pub background: QsnetBackground,
    /// Bytes of its messages.
    pub background_bytes: u32,
    /// What interrupts the hosts.
    pub host_noise: QsnetHostNoise,
}

/// The fields of `[link]` and `[collective]` in the text, with their places.
#[derive(Deserialize)]
struct GivenFields {
    #[serde(default)]
    link: BTreeMap<Spanned<String>, IgnoredAny>,
    #[serde(default)]
    collective: BTreeMap<Spanned<String>, IgnoredAny>,
}

/// The fields that mean something on this network.
const LINK_FIELDS: [&str; 3] = ["technology", "wire-ns", "switch-delay-ns"];
const COLLECTIVE_FIELDS: [&str; 14] = [
    "operation",
    "algorithm",
    "radix",
    "late-us",
    "operations",
    "members",
    "element",
    "count",
    "bytes",
    "size-only-bytes",
    "check",
    "timeout-us",
    "retry-limit",
    "refusal-limit",
];

/// Reads a scenario of this network.
pub(super) fn read(mut table: ScenarioTable, text: &str, file_name: &str) -> Result<Scenario, SpannedError> {
    check_given(&table, text)?;
    let file = Path::new(file_name);
    let fabric = fabric::fabric(&table.fabric, file.parent().unwrap_or(Path::new("")))?;
    let kind = table.fabric.get_ref().kind.span();
    let dimension = dimension(&table, &fabric)?;
    let own = table.collective.take().unwrap_or_default();
    let algorithm = algorithm(&own)?;
    let vector = vector::vector(&own, algorithm.operation())?;
    let members = values::members(&own, fabric.hosts())?;
    check_buffers(&own, &vector, members.unwrap_or(fabric.hosts()))?;
    let settings = table.qsnet.take().map(Spanned::into_inner).unwrap_or_default();
    let qsnet = scenario(&own, &table.link, &settings, algorithm, (dimension, &vector))?;
    let seed = whole(&table.seed, 0..=i64::MAX, 1)? as u64;
    let fault_seed = optional(&table.fault_seed, 0..=i64::MAX)?.map(|seed| seed as u64);
    let plan = fault_rules::plan(std::mem::take(&mut table.fault), fault_seed, &fabric, 1)?;
    check_faults(&plan)?;
    let mut collective = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: vector.bytes });
    collective.members = members;
    let usual = values::link(&LinkTable::default())?;
    let scenario = Scenario {
        name: table.name.unwrap_or_else(|| stem(file)),
        about: table.about.unwrap_or_default(),
        seed,
        operations: whole(&own.operations, 1..=i64::from(MAX_OPERATIONS), 100)? as u32,
        placement: (0..fabric.hosts()).collect(),
        fabric: Arc::new(fabric),
        width: usual.width,
        rate: usual.rate,
        link: usual.parameters,
        collective,
        hosts: None,
        choice: None,
        plan,
        check: values::check(&own, &vector)?,
        ethernet: None,
        routing: usual.routing,
        flows: None,
        has_collective: true,
        jobs: Vec::new(),
        qsnet: Some(qsnet),
        source: Source {
            file: file_name.to_owned(),
            text: text.to_owned(),
            copies: kind.clone(),
            fabric: kind.clone(),
            algorithm: at(&own.algorithm).unwrap_or(kind.clone()),
        },
    };
    super::check_operations(&scenario, at(&own.operations).unwrap_or(kind))?;
    Ok(scenario)
}

/// The network that `[link]` names.
pub(super) fn technology(table: &LinkTable) -> Result<LinkTechnology, SpannedError> {
    choice(&table.technology, &LinkTechnology::NAMES, LinkTechnology::OfRate)
}

fn scenario(
    own: &CollectiveTable,
    link: &LinkTable,
    settings: &QsnetTable,
    algorithm: QsnetAlgorithm,
    (dimension, vector): (u32, &vector::VectorSettings),
) -> Result<QsnetScenario, SpannedError> {
    let delay = |field: &SpannedField<f64>| match field {
        Some(_) => sim_span(field, 0.0..=1e6, 1e3, SimSpan::ZERO).map(Some),
        None => Ok(None),
    };
    let polls = matches!(algorithm, QsnetAlgorithm::Hgsync | QsnetAlgorithm::Hbcast);
    let without_effect = [
        (at(&own.radix), !polls, "a polled collective has no tree"),
        (at(&settings.poll_priority), polls, "a collective up a tree has no polls"),
        (at(&settings.wake_up), algorithm == QsnetAlgorithm::Hgsync, "only hgsync has a choice"),
        (at(&settings.memory), algorithm.operation() == HostOperation::Broadcast, "a barrier carries nothing"),
    ];
    if let Some((Some(span), _, why)) = without_effect.into_iter().find(|(span, fits, _)| span.is_some() && !fits) {
        return Err(SpannedError::new(span, why).allowing("leave it out"));
    }
    let background = choice(&settings.background, &QsnetBackground::NAMES, QsnetBackground::None)?;
    if let Some(span) = at(&settings.background_bytes).filter(|_| background == QsnetBackground::None) {
        return Err(SpannedError::new(span, "there is no background").allowing("with background = \"uniform\""));
    }
    Ok(QsnetScenario {
        algorithm,
        dimension,
        radix: whole(&own.radix, 2..=i64::from(MAX_RADIX), 4)? as u32,
        kind: vector.kind,
        bytes: vector.bytes,
        late: sim_span(&own.late_us, 0.0..=1e5, 1e6, SimSpan::ZERO)?,
        wire: delay(&link.wire_ns)?,
        switch_delay: delay(&link.switch_delay_ns)?,
        timeout: machine_span(&own.timeout_us, 0.1..=1e5, Span::from_micros(100))?,
        retry_limit: whole(&own.retry_limit, 0..=255, 7)? as u8,
        refusal_limit: whole(&own.refusal_limit, 1..=i64::from(u16::MAX), 1_000)? as u16,
        memory: choice(&settings.memory, &QsnetMemory::NAMES, QsnetMemory::Elan)?,
        wake_up: choice(&settings.wake_up, &QsnetWakeUp::NAMES, QsnetWakeUp::Polling)?,
        poll_priority: choice(&settings.poll_priority, &QsnetPollPriority::NAMES, QsnetPollPriority::Low)?,
        background,
        background_bytes: whole(&settings.background_bytes, 1..=1 << 30, 65_536)? as u32,
        host_noise: choice(&settings.host_noise, &QsnetHostNoise::NAMES, QsnetHostNoise::None)?,
    })
}

/// Rejects tables and fields of other networks.
fn check_given(table: &ScenarioTable, text: &str) -> Result<(), SpannedError> {
    let tables = [
        table.job.first().map(Spanned::span),
        table.traffic.first().map(Spanned::span),
        table.workload.as_ref().map(Spanned::span),
        table.training.as_ref().map(Spanned::span),
    ];
    if let Some(span) = tables.into_iter().flatten().next() {
        return Err(SpannedError::new(span, "jobs, traffic and workloads run on InfiniBand and Ethernet")
            .allowing("with qsnet: [collective], [qsnet] and [[fault]]"));
    }
    let given: GivenFields = toml::from_str(text)?;
    let check = |fields: &BTreeMap<Spanned<String>, IgnoredAny>, allowed: &[&str]| {
        let foreign = fields.keys().find(|name| !allowed.contains(&name.get_ref().as_str()));
        foreign.map_or(Ok(()), |name| {
            let message = format!("{} means nothing with qsnet", name.get_ref());
            Err(SpannedError::new(name.span(), message).allowing(format!("with qsnet: {}", allowed.join(", "))))
        })
    };
    check(&given.link, &LINK_FIELDS)?;
    check(&given.collective, &COLLECTIVE_FIELDS)
}

/// The dimension of the quaternary tree (QN-3).
fn dimension(table: &ScenarioTable, fabric: &Fabric) -> Result<u32, SpannedError> {
    let fields = table.fabric.get_ref();
    let is_quaternary = fields.kind.get_ref() == "k-ary-n-tree"
        && fields.taper.is_none()
        && fields.k.as_ref().is_some_and(|k| *k.get_ref() == 4);
    let dimension = fabric.hosts().max(1).ilog(4);
    if is_quaternary && dimension <= MAX_DIMENSION {
        return Ok(dimension);
    }
    Err(SpannedError::new(fields.kind.span(), "qsnet is a quaternary fat tree")
        .allowing(format!("kind = \"k-ary-n-tree\" with k = 4 and n from 1 to {MAX_DIMENSION}")))
}

fn algorithm(own: &CollectiveTable) -> Result<QsnetAlgorithm, SpannedError> {
    let operation = if own.operation.is_some() { method::operation(own)? } else { HostOperation::Barrier };
    let of_operation = QsnetAlgorithm::NAMES.iter().filter(|(_, _, of)| *of == operation);
    let names: Vec<(&str, QsnetAlgorithm)> = of_operation.map(|(name, algorithm, _)| (*name, *algorithm)).collect();
    let Some((_, usual)) = names.first() else {
        let span = at(&own.operation).unwrap_or(0..0);
        return Err(SpannedError::new(span, "the Quadrics network does not compute")
            .allowing("with qsnet: \"barrier\", \"broadcast\""));
    };
    choice(&own.algorithm, &names, *usual)
}

/// Rejects contents that do not fit into memory.
fn check_buffers(own: &CollectiveTable, vector: &vector::VectorSettings, members: u32) -> Result<(), SpannedError> {
    if vector.kind.is_none() || u64::from(vector.bytes) * u64::from(members) <= MAX_BUFFER_BYTES {
        return Ok(());
    }
    let span = at(&own.bytes).or(at(&own.count)).unwrap_or(0..0);
    Err(SpannedError::new(span, format!("{} bytes for each of {members} members are too many", vector.bytes))
        .allowing("together at most 2^30 bytes, or size-only-bytes"))
}

/// Rejects rules that the network has no meaning for.
fn check_faults(plan: &FaultPlan) -> Result<(), SpannedError> {
    for rule in &plan.rules {
        let place: Range<usize> = rule.kind.span();
        if !LinkFaults::KINDS.contains(rule.kind.get_ref()) {
            return Err(SpannedError::new(place, "this fault means nothing with qsnet")
                .allowing("with qsnet: \"flip\", \"lose\", \"down\", \"kill\""));
        }
        if rule.phase != PhaseFilter::All || rule.lane.is_some() {
            return Err(SpannedError::new(place, "phase and lane mean nothing with qsnet").allowing("leave them out"));
        }
    }
    Ok(())
}
