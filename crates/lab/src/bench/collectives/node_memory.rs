//! The memory of a node process with as many groups and operations in flight as it is designed for.
//!
//! This process opens groups at a real `pleach node`. All members but one contribute to every operation, so that no operation
//! completes and the node holds all contributions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use engine::aggregation::{Membership, TreeEdgeEvent, TreeEdges};
use manager::{DistributionSpec, GroupLeader, GroupRequest};
use protocol::Payload;
use protocol::aggregation::{Contribution, ContributionRole, ResultDisposition};
use reduce::{ElementType, Operator, ReductionKind};
use serde::Serialize;
use transport::udp::FaultInjector;
use units::{Rank, SegmentIndex};
use wire::aggregation::{ElementCode, OperatorCode};

use crate::local_fabric::child_process::StderrMode;
use crate::local_fabric::{FabricSite, LocalFabric, LocalFabricSpec};

const GROUPS: usize = 1_000;
const OPERATIONS: usize = 10;
const MEMBERS: usize = 4;
/// A segment of the paper (SH-4).
const BYTES: usize = 256;
/// The default quota of groups of a job.
const GROUPS_OF_A_JOB: usize = 50;
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Serialize)]
pub(super) struct NodeMemory {
    pub groups: usize,
    /// Operations in flight, of all groups.
    pub operations: u64,
    pub contributions: usize,
    pub bytes: usize,
    pub resident_mib: f64,
    /// Resident memory before the first group is opened.
    pub resident_before_mib: f64,
}

pub(super) fn measure() -> Result<NodeMemory> {
    let plan = LocalFabricSpec { nodes: 1, site: FabricSite::Loopback, faults: None, stderr: StderrMode::Captured };
    let mut fabric = LocalFabric::start(&plan)?;
    let resident_before_mib = fabric.resident_mib("root")?;
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut edges =
        TreeEdges::open(&[loopback], FaultInjector::default()).context("cannot open a UDP socket on 127.0.0.1")?;
    let addresses = edges.addresses();
    let mut clients = Vec::new();
    let mut memberships = Vec::new();
    for group in 0..GROUPS {
        if group % GROUPS_OF_A_JOB == 0 {
            let mut client = fabric.another_client()?;
            client.open_job(&format!("memory-{group}"), None)?;
            clients.push(client);
        }
        let leaders = (0..MEMBERS as u32).map(|rank| GroupLeader {
            rank: Rank(rank),
            host: format!("host{rank}"),
            addresses: addresses.clone(),
        });
        let request = GroupRequest {
            leaders: leaders.collect(),
            window: OPERATIONS as u32,
            segment_bytes: BYTES as u32,
            distribution: DistributionSpec::Edges,
            avoid: Vec::new(),
        };
        let opened = clients.last_mut().context("no client of the manager")?.open_group(request)?;
        for leader in 1..MEMBERS {
            memberships.push(Membership::join(&mut edges, &opened, leader)?);
        }
    }
    let kind = ReductionKind::new(ElementType::F64, Operator::Sum).context("f64 has no sum")?;
    for _ in 0..OPERATIONS {
        for membership in &mut memberships {
            let contribution = Contribution {
                element: ElementCode(kind.element().code()),
                operator: OperatorCode(kind.operator().code()),
                element_count: (BYTES / 8) as u16,
                role: ContributionRole::Operand,
                disposition: ResultDisposition::Deliver,
                segment: SegmentIndex(0),
                payload: Payload::Bytes(vec![0; BYTES].into()),
            };
            membership.start(&mut edges, contribution)?;
            edges.flush();
        }
        progress_for(&mut edges, &mut memberships, Duration::from_millis(50));
    }
    let began = Instant::now();
    let operations = loop {
        progress_for(&mut edges, &mut memberships, Duration::from_millis(200));
        let in_flight: u64 = fabric.status()?.nodes.iter().map(|node| u64::from(node.report.in_flight)).sum();
        if in_flight >= (GROUPS * OPERATIONS) as u64 {
            break in_flight;
        }
        ensure!(began.elapsed() < TIMEOUT, "only {in_flight} operations are in flight after {TIMEOUT:?}");
    };
    Ok(NodeMemory {
        groups: GROUPS,
        operations,
        contributions: GROUPS * OPERATIONS * (MEMBERS - 1),
        bytes: BYTES,
        resident_mib: fabric.resident_mib("root")?,
        resident_before_mib,
    })
}

/// Receives acknowledgements and retransmits what is overdue, for some time.
fn progress_for(edges: &mut TreeEdges, memberships: &mut [Membership], time: Duration) {
    let began = Instant::now();
    let mut inputs = Vec::new();
    while began.elapsed() < time {
        edges.receive(&mut inputs);
        for input in inputs.drain(..) {
            let (TreeEdgeEvent::Frame { edge, .. } | TreeEdgeEvent::Damage { edge }) = &input else { continue };
            // Edge numbers ascend in the order in which groups were opened, but not all belong to members.
            if let Ok(place) = memberships.binary_search_by_key(&edge.0, |membership| membership.edge().0) {
                memberships[place].handle(edges, input, &mut Vec::new());
            }
        }
        let now = edges.clock().now();
        for membership in memberships.iter_mut().filter(|membership| membership.deadline() <= now) {
            membership.handle_timeout(edges, &mut Vec::new());
        }
        edges.flush();
    }
}
