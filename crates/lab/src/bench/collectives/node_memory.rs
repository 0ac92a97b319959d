//! The memory of a node process with as many groups and operations in flight as it is built for.
//!
//! A real `pleach node` serves groups that this process opens; all members but one contribute to every operation, so that none
//! can end, and the node holds what they gave.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use engine::aggregation::{Membership, TreeEdgeEvent, TreeEdges};
use manager::{DistributionSpec, GroupLeader, GroupRequest};
use protocol::Payload;
use protocol::aggregation::{Contribution, ContributionRole as Speaks, ResultDisposition};
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
/// Groups that a job may have if it does not ask for more.
const GROUPS_OF_A_JOB: usize = 50;
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
pub(super) struct NodeMemory {
    pub groups: usize,
    /// In flight, of all groups.
    pub operations: u64,
    pub contributions: usize,
    pub bytes: usize,
    pub resident_mib: f64,
    /// Without any group.
    pub resident_before_mib: f64,
}

pub(super) fn measure() -> Result<NodeMemory> {
    let plan = LocalFabricSpec { nodes: 1, site: FabricSite::Loopback, faults: None, voice: StderrMode::Kept };
    let mut fabric = LocalFabric::start(&plan)?;
    let resident_before_mib = fabric.resident_mib("root")?;
    let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut wires = TreeEdges::open(&[loopback], FaultInjector::default()).context("a socket")?;
    let addresses = wires.addresses();
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
        let opened = clients.last_mut().context("a client")?.open_group(request)?;
        for leader in 1..MEMBERS {
            memberships.push(Membership::join(&mut wires, &opened, leader)?);
        }
    }
    let kind = ReductionKind::new(ElementType::F64, Operator::Sum).context("a sum")?;
    for _ in 0..OPERATIONS {
        for membership in &mut memberships {
            let contribution = Contribution {
                element: ElementCode(kind.element().code()),
                operator: OperatorCode(kind.operator().code()),
                element_count: (BYTES / 8) as u16,
                voice: Speaks::Plain,
                wish: ResultDisposition::Result,
                segment: SegmentIndex(0),
                payload: Payload::Bytes(vec![0; BYTES].into()),
            };
            membership.start(&mut wires, contribution).map_err(|error| anyhow::anyhow!("{error:?}"))?;
            wires.flush();
        }
        settle(&mut wires, &mut memberships, Duration::from_millis(50));
    }
    let began = Instant::now();
    let operations = loop {
        settle(&mut wires, &mut memberships, Duration::from_millis(200));
        let in_flight: u64 = fabric.status()?.nodes.iter().map(|node| u64::from(node.report.in_flight)).sum();
        if in_flight >= (GROUPS * OPERATIONS) as u64 {
            break in_flight;
        }
        ensure!(began.elapsed() < PATIENCE, "only {in_flight} operations are in flight after {PATIENCE:?}");
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

/// Takes acknowledgements and repeats what is overdue.
fn settle(wires: &mut TreeEdges, memberships: &mut [Membership], time: Duration) {
    let began = Instant::now();
    let mut inputs = Vec::new();
    while began.elapsed() < time {
        wires.receive(&mut inputs);
        for input in inputs.drain(..) {
            let (TreeEdgeEvent::Frame { edge, .. } | TreeEdgeEvent::Damage { edge }) = &input else { continue };
            // Edges are numbered in the order in which groups were opened, but not only those of members.
            if let Ok(place) = memberships.binary_search_by_key(&edge.0, |membership| membership.edge().0) {
                memberships[place].handle(wires, input, &mut Vec::new());
            }
        }
        let now = wires.clock().now();
        for membership in memberships.iter_mut().filter(|membership| membership.deadline() <= now) {
            membership.handle_timeout(wires, &mut Vec::new());
        }
        wires.flush();
    }
}
