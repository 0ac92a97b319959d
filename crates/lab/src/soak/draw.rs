//! Draws a case from a seed.
//!
//! Most cases are small, so that thousands run in a minute; a few have hundreds of hosts or vectors of a megabyte.

use faults::{FaultKind, FaultRule, PhaseFilter, RandomStream};
use reduce::{ElementType, Operator, ReductionKind};
use topology::{Fabric, NodeId};

use super::case::{SoakCase, SoakFabric, SoakGroup, SoakLink, SoakOperation};

/// The longest vector.
const MAX_BYTES: u64 = 1 << 20;

/// Buffers that never fill. Routes that go only up and then down cannot wait for each other in a circle. Elsewhere, and with alternate
/// paths, they can, and simulated switches never drop a packet that waits too long, as real ones do.
const AMPLE_BUFFER_BYTES: u32 = 4 << 20;

/// Random numbers, one after another.
pub(super) struct CaseRandom {
    stream: RandomStream,
    drawn: u64,
}

impl CaseRandom {
    pub(super) fn new(seed: u64) -> Self {
        Self { stream: RandomStream::new(seed, 0x50a4), drawn: 0 }
    }

    /// In `0..bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        self.stream.below(self.drawn, bound)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// True once in `n`.
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

impl SoakCase {
    /// The case of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = CaseRandom::new(seed);
        let shape = fabric(&mut random);
        let fabric = shape.build().expect("all drawn shapes are within the bounds");
        let has_hard_faults = random.below(5) < 2;
        let mut case = Self {
            seed,
            // Without hard faults nobody may give up, however many packets are damaged.
            retry_limit: if has_hard_faults { random.pick(&[4, 5, 7]) } else { u8::MAX },
            acknowledge_every: random.pick(&[1, 4, 16]),
            fabric: shape,
            link: link(&mut random),
            groups: Vec::new(),
            faults: Vec::new(),
        };
        if !random.one_in(12) {
            let rules = 1 + random.below(3);
            case.faults.extend((0..rules).map(|_| packet_fault(&mut random, &fabric)));
        }
        if has_hard_faults {
            let rules = 1 + random.below(2);
            case.faults.extend((0..rules).map(|_| hard_fault(&mut random, &fabric)));
        }
        case.groups = groups(&mut random, &fabric);
        let has_alternates = case.groups.iter().any(|group| group.alternate_paths);
        if has_alternates || !matches!(case.fabric, SoakFabric::Xgft { .. } | SoakFabric::KAryNTree { .. }) {
            case.link.buffer_bytes = AMPLE_BUFFER_BYTES;
        }
        for group in 0..case.groups.len() {
            if !case.has_permanent_fault(group) {
                add_operations_after_faults(&mut random, &mut case.groups[group]);
            }
        }
        case
    }
}

fn fabric(random: &mut CaseRandom) -> SoakFabric {
    let xgft = |children: &[u32], parents: &[u32]| SoakFabric::Xgft {
        children: children.to_vec(),
        parents: parents.to_vec(),
    };
    match random.below(40) {
        0 => xgft(&[16, 8], &[1, 4]),
        1 => xgft(&[8, 8, 4], &[1, 4, 2]),
        2 => SoakFabric::KAryNTree { k: 4, n: 3 },
        3..=6 => xgft(&[8], &[1]),
        7..=11 => xgft(&[4, 4], &[1, 4]),
        12..=16 => xgft(&[4, 4, 2], &[1, 2, 2]),
        17..=19 => xgft(&[3, 2, 2], &[1, 3, 2]),
        20..=22 => SoakFabric::KAryNTree { k: 3, n: 3 },
        23..=25 => SoakFabric::KAryNTree { k: 2, n: 3 },
        26..=28 => SoakFabric::Hypercube { dimensions: 3, hosts_per_switch: 2 },
        29..=31 => SoakFabric::Torus { sizes: vec![3, 4], hosts_per_switch: 2 },
        32..=34 => SoakFabric::Mesh { sizes: vec![2, 3], hosts_per_switch: 3 },
        _ => SoakFabric::DragonflyPlus {
            groups: 3,
            leaves_per_group: 2,
            spines_per_group: 2,
            hosts_per_leaf: 2,
            global_ports_per_spine: 2,
        },
    }
}

fn link(random: &mut CaseRandom) -> SoakLink {
    SoakLink {
        rate: random.pick(&["SDR", "FDR", "EDR", "NDR"]).to_owned(),
        wire_ns: random.below(50),
        switch_delay_ns: 50 + random.below(100),
        adapter_delay_ns: 50 + random.below(200),
        forwarding: random.pick(&["cut-through", "cut-through", "store-and-forward"]).to_owned(),
        virtual_lanes: random.pick(&[1, 1, 2]),
        buffer_bytes: random.pick(&[8_192, 16_384, 65_536]),
    }
}

/// Jobs on hosts of their own; each has a group of all its hosts, and some have a second group.
fn groups(random: &mut CaseRandom, fabric: &Fabric) -> Vec<SoakGroup> {
    let order = RandomStream::new(random.below(u64::MAX), 1).permutation(fabric.hosts());
    let jobs = 1 + random.below(3) as usize;
    let largest = if random.one_in(20) { order.len() } else { 16 };
    let mut groups = Vec::new();
    for (job, hosts) in order.chunks(order.len().div_ceil(jobs)).enumerate() {
        let hosts = &hosts[..hosts.len().min(largest)];
        let of_whole_job = group(random, job as u32, hosts);
        let size = 1 + random.below(hosts.len() as u64) as usize;
        groups.push(of_whole_job);
        if random.one_in(3) {
            groups.push(group(random, job as u32, &hosts[..size]));
        }
    }
    groups
}

fn group(random: &mut CaseRandom, job: u32, hosts: &[u32]) -> SoakGroup {
    let mut hosts = hosts.to_vec();
    hosts.sort_unstable();
    let style = random.pick(&[GroupStyle::Tree, GroupStyle::Multicast, GroupStyle::Hosts, GroupStyle::Mixed]);
    let has_multicasts = matches!(style, GroupStyle::Multicast | GroupStyle::Mixed);
    let windows: &[u32] = if has_multicasts { &[8, 16, 32] } else { &[1, 2, 4, 16] };
    let count = 1 + random.below(7);
    let operations = (0..count).map(|_| operation(random, style, hosts.len())).collect();
    SoakGroup {
        job,
        window: random.pick(windows),
        copies: random.pick(&[1, 1, 1, 2, 3]),
        late_ns: random.pick(&[0, 0, 300, 5_000, 80_000]),
        // Members find out that multicasts work by getting results that way (P-61).
        results: random
            .pick(if has_multicasts { &["multicast", "both"] } else { &["multicast", "connections", "both"] })
            .to_owned(),
        radix_limit: random.pick(&[None, None, None, Some(3)]),
        alternate_paths: random.one_in(4),
        hosts,
        operations,
    }
}

/// How a group does its operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupStyle {
    Tree,
    Multicast,
    Hosts,
    Mixed,
}

fn operation(random: &mut CaseRandom, style: GroupStyle, ranks: usize) -> SoakOperation {
    let operation = random.pick(&["barrier", "broadcast", "reduce", "allreduce", "allreduce"]);
    let among_hosts: &[&str] = match operation {
        "barrier" => &["dissemination", "tree", "recursive-doubling"],
        "broadcast" => &["tree", "chain", "scatter-allgather"],
        "reduce" => &["tree", "ring", "rabenseifner"],
        _ => &["ring", "rabenseifner", "recursive-doubling", "tree"],
    };
    let can_multicast = matches!(operation, "barrier" | "broadcast");
    let algorithm = match style {
        GroupStyle::Hosts => random.pick(among_hosts),
        GroupStyle::Multicast if can_multicast && !random.one_in(4) => "multicast",
        GroupStyle::Mixed => match random.below(3) {
            0 => random.pick(among_hosts),
            1 if can_multicast => "multicast",
            _ => "aggregation",
        },
        GroupStyle::Tree | GroupStyle::Multicast => "aggregation",
    };
    let kind = reduction(random);
    let element_bytes = kind.element_size() as u64;
    let bytes = match (operation, algorithm) {
        ("barrier", _) => 0,
        (_, "multicast") => vector_bytes(random, ranks).min(4_096),
        _ => vector_bytes(random, ranks),
    };
    let is_in_tree = matches!(algorithm, "aggregation" | "multicast");
    let segments: &[u32] = if is_in_tree { &[1_024, 4_096] } else { &[4_096, 65_536, 1 << 20] };
    // A member multicast is one packet.
    let segment_bytes = if algorithm == "multicast" { 4_096 } else { random.pick(segments) };
    SoakOperation {
        operation: operation.to_owned(),
        algorithm: algorithm.to_owned(),
        element: kind.element().name().to_owned(),
        operator: kind.operator().name().to_owned(),
        count: (bytes / element_bytes) as u32,
        segment_bytes,
        after_faults: false,
        start_ms: 0,
    }
}

fn reduction(random: &mut CaseRandom) -> ReductionKind {
    loop {
        let kind = ReductionKind::new(random.pick(&ElementType::ALL), random.pick(&Operator::ALL));
        if let Ok(kind) = kind {
            return kind;
        }
    }
}

/// Mostly short vectors. Long ones cost time for every rank, so that large groups get shorter ones.
fn vector_bytes(random: &mut CaseRandom, ranks: usize) -> u64 {
    let most = match random.below(40) {
        0..=3 => return 0,
        4..=17 => 64,
        18..=31 => 1_024,
        32..=36 => 8_192,
        37 | 38 => 65_536,
        _ => MAX_BYTES,
    };
    let most = most.min((4 * MAX_BYTES / ranks as u64).max(1_024));
    if random.one_in(4) { most } else { 1 + random.below(most) }
}

fn packet_fault(random: &mut CaseRandom, fabric: &Fabric) -> FaultRule {
    let kind = random.pick(&FaultKind::PACKET_FAULTS);
    let mut rule =
        FaultRule::new(kind).during(random.pick(&[PhaseFilter::All, PhaseFilter::Reduce, PhaseFilter::Broadcast]));
    if random.one_in(2) {
        rule = rule.on(cable(random, fabric));
    }
    if kind == FaultKind::Delay {
        rule = rule.up_to_ns(random.pick(&[500.0, 5_000.0, 50_000.0]));
    }
    rule = match random.below(4) {
        0 => rule.nth(1 + random.below(6)),
        1 => rule.with_mean_us(random.pick(&[1.0, 5.0, 50.0])),
        _ => rule.with_probability(random.pick(&[0.01, 0.1, 0.3, 1.0])),
    };
    let start = random.pick(&[0, 0, 10, 50]) + random.below(30);
    rule.lasting(start as f64, Some(random.pick(&[20.0, 100.0, 300.0, 1_000.0])))
}

fn hard_fault(random: &mut CaseRandom, fabric: &Fabric) -> FaultRule {
    let rule = if random.one_in(2) {
        FaultRule::new(FaultKind::Kill).at_node(fabric.name(NodeId(random.below(fabric.nodes().into()) as u32)))
    } else {
        FaultRule::new(FaultKind::Down).on(cable(random, fabric))
    };
    let start = random.below(120) as f64;
    rule.lasting(start, random.pick(&[Some(15.0), Some(200.0), Some(2_000.0), Some(20_000.0), None]))
}

/// The name of a cable: both directions.
fn cable(random: &mut CaseRandom, fabric: &Fabric) -> String {
    let number = random.below(fabric.cable_count()) as usize;
    let cable = fabric.cables().nth(number).expect("the number is below the count");
    format!("{}-{}", fabric.name(cable.a.node), fabric.name(cable.b.node))
}

/// When all faults are over, everything must work: in the tree and among hosts. The last operation is one to which all members of a
/// tree contribute, so that nobody keeps a multicast for others.
fn add_operations_after_faults(random: &mut CaseRandom, group: &mut SoakGroup) {
    let ranks = group.hosts.len();
    let barrier = SoakOperation {
        operation: "barrier".to_owned(),
        algorithm: "aggregation".to_owned(),
        element: "u8".to_owned(),
        operator: "or".to_owned(),
        count: 0,
        segment_bytes: 4_096,
        after_faults: true,
        start_ms: 0,
    };
    let style = random.pick(&[GroupStyle::Tree, GroupStyle::Hosts]);
    let any = SoakOperation { after_faults: true, ..operation(random, style, ranks) };
    group.operations.extend([barrier.clone(), any, barrier]);
}
