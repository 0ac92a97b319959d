//! The memory of a node is bounded: at most 64 MiB with 64 trees, 1,000 groups and 10,000 operations in flight, and it reports
//! exactly what it holds.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use control::{AccessPolicy, ClusterSecret, DataPlane, ManagerClient, NodeControl};
use engine::aggregation::{Membership, TreeEdgeEvent, TreeEdges};
use manager::message::{Capacity, GroupKey, NodeDescriptor, NodeReport, Quota};
use manager::status::NodeStatus;
use manager::{ControlError, GroupDescriptor, GroupLeader, GroupRequest, SeatSpec};
use nix::poll::{PollTimeout, poll};
use protocol::aggregation::{Contribution, ContributionRole, ResultDisposition};
use reduce::{ElementType, Operator};
use transport::udp::FaultInjector;
use units::{QpNumber, Rank, SegmentIndex, Time};
use wire::aggregation::{ElementCode, OperatorCode};

use super::process::*;

const TREES: usize = 64;
const GROUPS: usize = 1_000;
const OPERATIONS: usize = 10;
const PAYLOAD: usize = 256;
const MOST_BYTES: u64 = 64 << 20;

/// Seats of nodes that receive no packets: they only complete the trees.
struct Empty;

impl DataPlane for Empty {
    fn install(&mut self, _: &SeatSpec) -> Result<(), ControlError> {
        Ok(())
    }

    fn remove(&mut self, _: GroupKey) {}

    fn operations(&self, _: GroupKey) -> u64 {
        0
    }

    fn report(&mut self) -> NodeReport {
        NodeReport::default()
    }
}

/// The parents of the measured node and one sibling, driven by one thread until dropped.
struct Extras {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Extras {
    fn start(manager: SocketAddr) -> Self {
        let loopback: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let control = |name: String, parents: Vec<String>, serves: &[&str]| {
            let card = NodeDescriptor {
                name,
                addresses: vec!["127.0.0.1:9".parse().expect("an address")],
                control: loopback,
                parents,
                serves: serves.iter().map(|host| (*host).to_owned()).collect(),
                capacity: Capacity { seats: 2_000, operations: 100_000, bytes: 1 << 40 },
            };
            NodeControl::bind(card, manager, loopback, ClusterSecret::new(SECRET).ok(), AccessPolicy::LoopbackOnly)
                .expect("a port")
        };
        let mut controls: Vec<NodeControl> = tops().map(|top| control(top, Vec::new(), &[])).collect();
        controls.push(control("beside".to_owned(), tops().collect(), &["b*"]));
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                controls.iter_mut().for_each(|control| control.turn(&mut Empty));
                let mut fds: Vec<_> = controls.iter().flat_map(NodeControl::poll_fds).collect();
                poll(&mut fds, PollTimeout::from(20_u8)).expect("it polls");
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Extras {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn tops() -> impl Iterator<Item = String> {
    (0..TREES).map(|number| format!("top{number}"))
}

/// The leaders below the measured node: both join, and one of them contributes.
struct Members {
    wires: TreeEdges,
    memberships: BTreeMap<QpNumber, Membership>,
    inputs: Vec<TreeEdgeEvent>,
}

impl Members {
    fn join(&mut self, group: &GroupDescriptor) -> QpNumber {
        let join = |leader| Membership::join(&mut self.wires, group, leader).expect("a place");
        let joined = [0, 1].map(join);
        let first = joined[0].edge();
        self.memberships.extend(joined.map(|membership| (membership.edge(), membership)));
        first
    }

    fn contribute(&mut self, edge: QpNumber) {
        let membership = self.memberships.get_mut(&edge).expect("it joined");
        for _ in 0..OPERATIONS {
            let payload = vec![1; PAYLOAD].into();
            let contribution = Contribution {
                element: ElementCode(ElementType::I32.code()),
                operator: OperatorCode(Operator::Sum.code()),
                element_count: (PAYLOAD / 4) as u16,
                role: ContributionRole::Operand,
                disposition: ResultDisposition::Deliver,
                segment: SegmentIndex(0),
                payload,
            };
            membership.start(&mut self.wires, contribution).expect("room in the window");
        }
        self.turn();
    }

    /// Handles packets, and retransmits what was lost.
    fn turn(&mut self) {
        let mut inputs = std::mem::take(&mut self.inputs);
        self.wires.receive(&mut inputs);
        for input in inputs.drain(..) {
            let TreeEdgeEvent::Frame { edge, .. } = &input else { continue };
            if let Some(membership) = self.memberships.get_mut(&edge.clone()) {
                membership.handle(&mut self.wires, input, &mut Vec::new());
            }
        }
        self.inputs = inputs;
        let now: Time = self.wires.clock().now();
        for membership in self.memberships.values_mut().filter(|membership| membership.deadline() <= now) {
            membership.handle_timeout(&mut self.wires, &mut Vec::new());
        }
        self.wires.flush();
    }
}

fn status_of(client: &mut ManagerClient, name: &str) -> NodeStatus {
    let status = client.status().expect("it answers");
    status.nodes.into_iter().find(|node| node.name == name).expect("it is there")
}

fn resident_bytes(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn a_node_with_many_trees_groups_and_operations_uses_little_memory_and_reports_it() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--log", "warn"]);
    let parents = tops().collect::<Vec<_>>().join(",");
    let node = Process::start(
        &[
            ["node", "--manager", &manager.line, "--name", "measured", "--log", "warn"].as_slice(),
            &["--serves", "a*"],
        ]
        .concat()
        .into_iter()
        .chain(["--parent", parents.as_str()])
        .collect::<Vec<_>>(),
    );
    let _extras = Extras::start(manager.address());
    let mut client = client(&manager);
    wait_for_nodes(&mut client, TREES + 2);
    client.open_job("large", Some(Quota { groups: 1_024, operations: 1 << 16, bytes: 1 << 30 })).expect("admitted");
    let wires =
        TreeEdges::open(&["127.0.0.1:0".parse().expect("an address")], FaultInjector::default()).expect("a socket");
    let own = wires.addresses();
    let mut members = Members { wires, memberships: BTreeMap::new(), inputs: Vec::new() };
    let leader = |rank: u32, host: &str, addresses: &[SocketAddr]| GroupLeader {
        rank: Rank(rank),
        host: host.to_owned(),
        addresses: addresses.to_vec(),
    };
    let unused = ["127.0.0.1:9".parse().expect("an address")];
    let hosts =
        vec![leader(0, "a0", &own), leader(1, "a1", &own), leader(2, "b0", &unused), leader(3, "b1", &unused)];
    let request = GroupRequest {
        leaders: hosts,
        window: 16,
        segment_bytes: 4_096,
        distribution: Default::default(),
        avoid: Vec::new(),
    };
    let mut edges = Vec::new();
    let mut roots: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..GROUPS {
        let group = client.open_group(request.clone()).expect("opened");
        *roots.entry(group.seats[0].name.clone()).or_default() += 1;
        edges.push(members.join(&group));
    }
    assert_eq!(roots.len(), TREES, "groups are spread over all trees");
    for edge in edges {
        members.contribute(edge);
    }
    let began = Instant::now();
    let report = loop {
        members.turn();
        let report = status_of(&mut client, "measured").report;
        if report.in_flight as usize == GROUPS * OPERATIONS {
            break report;
        }
        assert!(began.elapsed() < PATIENCE, "{} operations are in flight", report.in_flight);
        std::thread::sleep(Duration::from_millis(2));
    };
    assert_eq!(report.bytes as usize, GROUPS * OPERATIONS * PAYLOAD);
    assert_eq!(report.operations, 0, "nothing could be folded yet");
    assert!(report.received as usize >= GROUPS * OPERATIONS && report.uptime_ms > 0);
    let bytes = resident_bytes(node.id());
    assert!(bytes <= MOST_BYTES, "it took {} MiB", bytes >> 20);
    println!(
        "a node with {TREES} trees, {GROUPS} groups and {} operations took {} KiB",
        GROUPS * OPERATIONS,
        bytes >> 10
    );
}
