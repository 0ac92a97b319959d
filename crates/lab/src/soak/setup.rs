//! Turns a case into what the simulator runs.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use faults::FaultPlan;
use protocol::collective::CollectiveOperation;
use protocol::connection::path::{AlternateLoading, PathPolicy};
use protocol::connection::{ConnectionPolicy, RetransmitTimer};
use reduce::ReductionKind;
use simulator::LinkParameters;
use simulator::collective::{
    AlternatePathParameters, CollectiveMethod, CollectiveParameters, ContributionContents, DownwardDelivery,
    Replication,
};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::queue_pair::LinkNotification;
use simulator::scenario::names::{FORWARDINGS, HOST_ALGORITHMS, OPERATIONS};
use simulator::segmented::{HostOperation, VectorContents};
use simulator::shared_fabric::{AfterFailure, FabricGroup, GroupMethod, GroupOperation, SharedFabric};
use topology::{Fabric, NodeId};
use units::{Rank, SimSpan, SimTime, Span};

use super::case::{SoakCase, SoakGroup, SoakLink, SoakOperation};

/// The retransmission timeout of connections among hosts: longer than a round trip in a busy fabric.
const HOST_TIMEOUT: Span = Span::from_micros(200);
/// Unacknowledged packets of such a connection.
const HOST_WINDOW: u16 = 256;
/// Largest payload of a packet.
const MTU: u32 = 4_096;
/// How long an operation may take: much longer than the longest fault and all retries after it.
const HANG_TIMEOUT: SimSpan = SimSpan::from_micros(1_000_000);
/// The most bytes of a vector.
const MAX_VECTOR_BYTES: u64 = 1 << 26;
/// The most segments of an operation in a tree.
const MAX_TREE_SEGMENTS: u32 = 1 << 14;

/// The first probe arms an alternate; later ones are rare, because a run waits long for machines that give up.
const ALTERNATE_PATHS: AlternatePathParameters = AlternatePathParameters {
    policy: PathPolicy {
        probe_every: Span::from_micros(10_000),
        probe_timeout: Span::from_micros(100),
        misses: 2,
        failback_after: Span::from_micros(1_000_000),
        damage_limit: None,
        loading: AlternateLoading::Automatic,
    },
    notice: LinkNotification::Notified,
};

/// A case that is ready to run.
pub(super) struct PreparedCase {
    pub(super) fabric: Arc<Fabric>,
    pub(super) groups: Vec<FabricGroup>,
    link: LinkParameters,
    plan: FaultPlan,
    seed: u64,
}

impl PreparedCase {
    /// Checks a case and translates it.
    pub(super) fn new(case: &SoakCase) -> Result<Self> {
        let fabric = case.fabric.build()?;
        case.check(&fabric)?;
        let groups = case
            .groups
            .iter()
            .enumerate()
            .map(|(number, group)| fabric_group(case, group).with_context(|| format!("group {number}")));
        Ok(Self {
            groups: groups.collect::<Result<_>>()?,
            fabric,
            link: link(&case.link)?,
            plan: FaultPlan { seed: None, rules: case.faults.clone() },
            seed: case.seed,
        })
    }

    /// Sets up the run.
    pub(super) fn set_up(&self) -> Result<SharedFabric> {
        let (fabric, link, groups) = (self.fabric.clone(), self.link.clone(), self.groups.clone());
        Ok(SharedFabric::new(fabric, link, groups, &self.plan, self.seed)?)
    }
}

/// The value of a name.
fn named<T: Copy>(names: &[(&'static str, T)], name: &str, what: &str) -> Result<T> {
    let known = names.iter().find(|(known, _)| *known == name);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let allowed: Vec<&str> = names.iter().map(|(known, _)| *known).collect();
        anyhow!("unknown {what} '{name}'; known: {}", allowed.join(", "))
    })
}

fn link(link: &SoakLink) -> Result<LinkParameters> {
    ensure!((1..=15).contains(&link.virtual_lanes), "virtual-lanes must be from 1 to 15");
    ensure!(link.buffer_bytes >= 2 * MTU, "buffer-bytes must be at least {}", 2 * MTU);
    let nanos = |nanos: u64| SimSpan::from_nanos(nanos.min(1_000_000));
    Ok(LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, named(&LinkRate::NAMES, &link.rate, "rate")?),
        wire: nanos(link.wire_ns),
        switch_delay: nanos(link.switch_delay_ns),
        adapter_delay: nanos(link.adapter_delay_ns),
        forwarding: named(&FORWARDINGS, &link.forwarding, "forwarding")?,
        virtual_lanes: link.virtual_lanes,
        buffer_bytes: link.buffer_bytes,
        adapter_lanes: 1,
    })
}

/// The latest start of an operation: ten hours.
const MAX_START_MS: u64 = 36_000_000;

/// Longer than it takes a link to send what all groups of a job may have under way. Otherwise packets that only wait in line are
/// retransmitted, the line grows, and peers that live count as lost.
fn tree_timeout(case: &SoakCase, job: u32) -> Result<Span> {
    let of_the_job = case.groups.iter().filter(|group| group.job == job);
    let packets =
        of_the_job.map(|group| group.window.saturating_mul(group.copies.into())).fold(0, u32::saturating_add);
    Ok(ConnectionPolicy::default().timeout.max(time_in_line(case, packets)?))
}

/// How long a link takes to send so many packets.
fn time_in_line(case: &SoakCase, packets: u32) -> Result<Span> {
    let line = link(&case.link)?.byte_time.serialise(packets.saturating_mul(MTU));
    Ok(Span::from_nanos(line.as_picos().div_ceil(1_000)))
}

fn fabric_group(case: &SoakCase, group: &SoakGroup) -> Result<FabricGroup> {
    let operations = group.operations.iter().enumerate().map(|(number, operation)| {
        group_operation(case, group, operation).with_context(|| format!("operation {number}"))
    });
    let policy = ConnectionPolicy {
        retry_limit: case.retry_limit,
        // Faults that damage every packet for a millisecond cause more than a thousand NAKs for one frame.
        refusal_limit: u16::MAX,
        acknowledge_every: case.acknowledge_every,
        timeout: tree_timeout(case, group.job)?,
        ..ConnectionPolicy::default()
    };
    let mut tree = CollectiveParameters::new(ContributionContents::SizeOnly { bytes: 0 });
    tree.policy = policy;
    tree.window = group.window;
    tree.radix_limit = group.radix_limit;
    tree.arrival_skew = SimSpan::from_nanos(group.late_ns);
    tree.alternate_paths = group.alternate_paths.then_some(ALTERNATE_PATHS);
    tree.distribution = named(&DELIVERIES, &group.results, "way of results")?;
    if group.copies > 1 {
        tree.replication = Replication::Temporal { copies: group.copies };
    }
    // As for trees: a window of packets may be in line before the path was measured.
    let timeout = HOST_TIMEOUT.max(time_in_line(case, HOST_WINDOW.into())?);
    let host_policy = ConnectionPolicy { timeout, timer: RetransmitTimer::Measured, window: HOST_WINDOW, ..policy };
    Ok(FabricGroup {
        hosts: group.hosts.iter().copied().map(NodeId).collect(),
        tree,
        policy: host_policy,
        mtu: MTU,
        window: group.window,
        operations: operations.collect::<Result<_>>()?,
        hang_timeout: HANG_TIMEOUT,
        after_failure: AfterFailure::GoOn,
    })
}

const DELIVERIES: [(&str, DownwardDelivery); 3] = [
    ("multicast", DownwardDelivery::Multicast),
    ("connections", DownwardDelivery::Connections),
    ("both", DownwardDelivery::Both),
];

fn group_operation(case: &SoakCase, group: &SoakGroup, given: &SoakOperation) -> Result<GroupOperation> {
    let known: Vec<(&'static str, HostOperation)> =
        OPERATIONS.iter().map(|(name, of, _)| (*name, *of)).filter(|(_, of)| !of.has_blocks()).collect();
    let operation = named(&known, &given.operation, "operation")?;
    let kind = ReductionKind::new(given.element.parse()?, given.operator.parse()?)?;
    let method = method(operation, &given.algorithm, kind)?;
    let element_bytes = kind.element_size() as u32;
    let segment_bytes = match method {
        GroupMethod::Tree(_) => given.segment_bytes.min(MTU),
        GroupMethod::Hosts(_) => given.segment_bytes,
    };
    ensure!(given.start_ms <= MAX_START_MS, "start-ms must be at most {MAX_START_MS}");
    let start = SimTime::ZERO + SimSpan::from_micros(given.start_ms * 1_000);
    let spec = GroupOperation {
        operation,
        method,
        kind,
        elements: if operation == HostOperation::Barrier { 0 } else { given.count },
        segment_elements: (segment_bytes / element_bytes).max(1),
        contents: VectorContents::Elements,
        not_before: if given.after_faults { case.healed_at().max(start) } else { start },
    };
    let bytes = u64::from(spec.elements) * u64::from(element_bytes);
    ensure!(bytes <= MAX_VECTOR_BYTES, "a vector of {bytes} bytes; at most {MAX_VECTOR_BYTES}");
    if let GroupMethod::Tree(method) = method {
        ensure!(spec.segments() <= MAX_TREE_SEGMENTS, "{} segments; at most {MAX_TREE_SEGMENTS}", spec.segments());
        if method == CollectiveMethod::Multicast {
            ensure!(spec.segments() == 1, "a member multicast is one packet of at most {MTU} bytes");
            ensure!(group.window >= 8, "member multicasts need a window of at least 8");
            ensure!(group.results != "connections", "member multicasts need results = \"multicast\" or \"both\"");
        }
    }
    Ok(spec)
}

fn method(operation: HostOperation, algorithm: &str, kind: ReductionKind) -> Result<GroupMethod> {
    let can_multicast = matches!(operation, HostOperation::Broadcast | HostOperation::Barrier);
    match algorithm {
        "aggregation" => return Ok(GroupMethod::Tree(CollectiveMethod::Aggregation)),
        "multicast" if can_multicast => return Ok(GroupMethod::Tree(CollectiveMethod::Multicast)),
        _ => {}
    }
    let of_radix = named(&HOST_ALGORITHMS, algorithm, "algorithm")?;
    let root = Rank(0);
    let machine_operation = match operation {
        HostOperation::Barrier => CollectiveOperation::Barrier,
        HostOperation::Broadcast => CollectiveOperation::Broadcast { root },
        HostOperation::Reduce => CollectiveOperation::Reduce { root, kind },
        HostOperation::AllReduce => CollectiveOperation::AllReduce { kind },
        HostOperation::ReduceScatter => CollectiveOperation::ReduceScatter { kind },
        HostOperation::AllGather => CollectiveOperation::AllGather,
        HostOperation::AllToAll => CollectiveOperation::AllToAll,
    };
    let algorithm = of_radix(2);
    ensure!(algorithm.supports(&machine_operation), "{algorithm} does not do this operation");
    Ok(GroupMethod::Hosts(algorithm))
}
