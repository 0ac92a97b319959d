//! The simulation: members, nodes and a lossy network between them.

use std::collections::BTreeMap;

use protocol::Payload;
use protocol::aggregation::{
    AbortCause, AckBarrierCounter, AggregationAction, AggregationMember, AggregationMessage, AggregationNode,
    Contribution, ContributionRole, DownwardDelivery, EdgeIndex, ImplicitAck, MemberConfig, OperationMode,
    OperationStartError, Outbox, ParentLink, Plane, PollRole, RepairTimeoutMode, ResultDisposition, SeatConfig,
};
use protocol::connection::{Frame, FramePath};
use reduce::{ElementType, Operator};
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex, Span, Time};
use wire::aggregation::{AggregationMessageKind, ElementCode, OperatorCode};

use crate::plan::{Call, MulticastPlan, TestRng, addend, payload_of};

const WINDOW: u32 = 16;
const GROUP: GroupId = GroupId(3);
const EPOCH: Epoch = Epoch(1);
/// A run that takes longer hangs.
const PATIENCE: Span = Span::from_micros(300_000_000);

enum Event {
    Frame { to: usize, edge: EdgeIndex, frame: Frame<AggregationMessage> },
    Multicast { to: usize, message: AggregationMessage },
    Timer(usize),
    Call(usize),
}

/// One member's program.
struct Program {
    member: AggregationMember,
    ack_barrier: AckBarrierCounter,
    /// Calls that the program has reached, and those that have started.
    reached: usize,
    started: usize,
    ended: usize,
    /// Too many calls are in flight to start the next.
    is_waiting: bool,
    /// The call of each operation; none for an acknowledgement barrier.
    operations: BTreeMap<u32, Option<usize>>,
    failed: Option<AbortCause>,
    is_closed: bool,
}

impl Program {
    fn new((leaf, edge): (usize, EdgeIndex)) -> Self {
        let up = ParentLink { edge: EdgeIndex(0), child: ChildIndex(edge.0), plane: Plane(0) };
        let config = MemberConfig {
            group: GROUP,
            epoch: EPOCH,
            parents: vec![up],
            peers: vec![leaf as u32],
            implicit_ack: ImplicitAck::ByResult,
            window: WINDOW,
            repair_after: Span::from_micros(2_000),
            repair_timeout_mode: RepairTimeoutMode::Adaptive,
        };
        Self {
            member: AggregationMember::new(policy(), config),
            ack_barrier: AckBarrierCounter::new(WINDOW).expect("the window has room for multicasts"),
            reached: 0,
            started: 0,
            ended: 0,
            is_waiting: false,
            operations: BTreeMap::new(),
            failed: None,
            is_closed: false,
        }
    }

    fn is_finished(&self) -> bool {
        self.failed.is_some() || self.is_closed
    }
}

#[derive(Default, Debug, Clone, Copy)]
pub(crate) struct RunCounts {
    pub(crate) ended: usize,
    pub(crate) failed: usize,
    pub(crate) multicasts_lost: usize,
    pub(crate) multicasts_repaired: usize,
    pub(crate) verdicts: usize,
    pub(crate) most_retained: usize,
}

pub(crate) struct MulticastSimulation {
    plan: MulticastPlan,
    rng: TestRng,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    events: u64,
    nodes: Vec<AggregationNode>,
    programs: Vec<Program>,
    /// For each party (nodes first), the party and edge at the other end of each edge.
    far: Vec<Vec<(usize, EdgeIndex)>>,
    /// The pending timer of each party.
    timers: Vec<Time>,
    counts: RunCounts,
}

/// The policy of tree edges over a lossy network.
fn policy() -> protocol::connection::ConnectionPolicy {
    use protocol::connection::{ConnectionPolicy, LossRecovery};
    ConnectionPolicy {
        loss_recovery: LossRecovery::GoBackN,
        window: 256,
        timeout: Span::from_micros(5_000),
        ..ConnectionPolicy::datagram()
    }
}

/// For each party (nodes first), the party and edge at the other end of each edge.
fn connect_parties(plan: &MulticastPlan, node_count: usize) -> Vec<Vec<(usize, EdgeIndex)>> {
    let leaves = plan.leaves.len();
    let mut far: Vec<Vec<(usize, EdgeIndex)>> = vec![Vec::new(); node_count + plan.members];
    let mut party = node_count;
    for (leaf, members) in plan.leaves.iter().enumerate() {
        for child in 0..*members {
            far[leaf].push((party, EdgeIndex(0)));
            far[party].push((leaf, EdgeIndex(child as u16)));
            party += 1;
        }
        if leaves > 1 {
            far[leaf].push((leaves, EdgeIndex(leaf as u16)));
            far[leaves].push((leaf, EdgeIndex(*members as u16)));
        }
    }
    far
}

fn create_node(plan: &MulticastPlan, far: &[(usize, EdgeIndex)], node: usize) -> AggregationNode {
    let leaves = plan.leaves.len();
    let peers: Vec<u32> = far.iter().map(|(far, _)| *far as u32).collect();
    let children = if leaves > 1 && node < leaves { peers.len() - 1 } else { peers.len() };
    let mut machine = AggregationNode::new(policy(), &peers);
    let up = ParentLink { edge: EdgeIndex(children as u16), child: ChildIndex::from_position(node), plane: Plane(0) };
    machine.take_seat(SeatConfig {
        group: GROUP,
        epoch: EPOCH,
        plane: Plane(0),
        children: (0..children).map(|child| vec![EdgeIndex(child as u16)]).collect(),
        parents: if children < peers.len() { vec![up] } else { Vec::new() },
        implicit_ack: ImplicitAck::ByResult,
        distribution: DownwardDelivery::Multicast,
        window: WINDOW,
    });
    machine
}

impl MulticastSimulation {
    pub(crate) fn new(plan: MulticastPlan) -> Self {
        let node_count = if plan.leaves.len() == 1 { 1 } else { plan.leaves.len() + 1 };
        let far = connect_parties(&plan, node_count);
        let nodes = (0..node_count).map(|node| create_node(&plan, &far[node], node)).collect();
        let programs = (0..plan.members).map(|member| Program::new(far[node_count + member][0])).collect();
        let rng = TestRng(plan.seed ^ 0xabcd);
        let mut simulation = Self {
            timers: vec![Time::NEVER; far.len()],
            plan,
            rng,
            now: Time::ZERO,
            queue: BTreeMap::new(),
            events: 0,
            nodes,
            programs,
            far,
            counts: RunCounts::default(),
        };
        for rank in 0..simulation.programs.len() {
            simulation.schedule(Span::ZERO, Event::Call(rank));
        }
        simulation
    }

    fn schedule(&mut self, after: Span, event: Event) {
        self.events += 1;
        self.queue.insert((self.now + after, self.events), event);
    }

    /// Whether a party does not answer: a failed node, or a member whose driver has left the tree.
    fn is_silent(&self, party: usize) -> bool {
        let has_left = |rank: usize| self.programs[rank].failed.is_some();
        self.plan.failure.is_some_and(|(node, at)| node == party && at <= self.now)
            || party.checked_sub(self.nodes.len()).is_some_and(has_left)
    }

    /// The delays after which the copies of a packet arrive: none if it is lost, two if it is duplicated.
    fn arrival_delays(&mut self) -> Vec<Span> {
        let copies = if self.rng.chance(self.plan.duplicates) { 2 } else { 1 };
        let one = |rng: &mut TestRng, loss: u64| {
            let slow = if rng.chance(20) { 2_000 } else { 0 };
            (!rng.chance(loss)).then(|| Span::from_micros(5 + rng.below(40) + slow))
        };
        (0..copies).filter_map(|_| one(&mut self.rng, self.plan.loss)).collect()
    }

    fn execute_actions(&mut self, party: usize, outbox: &mut Outbox) {
        let actions: Vec<AggregationAction> = outbox.drain().collect();
        for action in actions {
            match action {
                AggregationAction::Transmit { edge, outgoing } => {
                    let (to, far_edge) = self.far[party][usize::from(edge.0)];
                    let mine = party >= self.nodes.len();
                    if let Frame::Data { message, .. } = &outgoing.frame {
                        self.counts.multicasts_repaired +=
                            usize::from(mine && message.header.kind == AggregationMessageKind::Result);
                    }
                    for after in self.arrival_delays() {
                        self.schedule(after, Event::Frame { to, edge: far_edge, frame: outgoing.frame.clone() });
                    }
                }
                AggregationAction::Multicast { message, .. } => self.multicast(party, &message),
                AggregationAction::Reduced { .. } => {}
                AggregationAction::Complete { op, result } => self.completed(party - self.nodes.len(), op, &result),
                AggregationAction::Failed { cause, .. } => {
                    self.programs[party - self.nodes.len()].failed.get_or_insert(cause);
                }
            }
        }
        let deadline = match self.nodes.get(party) {
            Some(node) => node.deadline(),
            None => self.programs[party - self.nodes.len()].member.deadline(),
        };
        if deadline < self.timers[party] {
            self.timers[party] = deadline;
            let after = if deadline > self.now { deadline.since(self.now) } else { Span::ZERO };
            self.schedule(after, Event::Timer(party));
        }
    }

    fn multicast(&mut self, from: usize, message: &AggregationMessage) {
        self.counts.verdicts += usize::from(message.header.kind == AggregationMessageKind::NotEntered);
        // A root does not join the multicast group.
        let root = if self.plan.leaves.len() == 1 { 0 } else { self.plan.leaves.len() };
        for to in (0..self.far.len()).filter(|to| *to != root) {
            let arrival_delays = self.arrival_delays();
            let is_cast = from >= self.nodes.len() && message.header.kind == AggregationMessageKind::Result;
            self.counts.multicasts_lost +=
                usize::from(is_cast && arrival_delays.is_empty() && to >= self.nodes.len());
            for after in arrival_delays {
                self.schedule(after, Event::Multicast { to, message: message.clone() });
            }
        }
    }

    fn completed(&mut self, rank: usize, op: OpId, result: &Payload) {
        let seed = self.plan.seed;
        let Some(call) = self.programs[rank].operations.get(&op.0).copied().expect("the operation was started")
        else {
            return;
        };
        let bytes = result.bytes().unwrap_or_default();
        match self.plan.calls[call] {
            Call::Broadcast { .. } => assert_eq!(bytes, payload_of(call), "seed {seed}: call {call} at {rank}"),
            Call::Sum => {
                let sum: u64 = (0..self.plan.members).map(|rank| addend(rank, call)).sum();
                assert_eq!(bytes, sum.to_le_bytes(), "seed {seed}: call {call} at {rank}");
            }
            Call::Barrier => {
                let absent = self.programs.iter().position(|program| program.started <= call);
                assert_eq!(absent, None, "seed {seed}: {rank} left barrier {call} too early");
            }
        }
        self.programs[rank].ended += 1;
        self.counts.ended += 1;
        if std::mem::take(&mut self.programs[rank].is_waiting) {
            self.call_soon(rank);
        }
    }

    /// Schedules a program's next call after some other work, sometimes late.
    fn call_soon(&mut self, rank: usize) {
        let late = if self.rng.chance(self.plan.late) { 3_000 } else { 10 };
        let after = Span::from_micros(1 + self.rng.below(late));
        self.schedule(after, Event::Call(rank));
    }

    /// Starts the operations that a program can start; an acknowledgement barrier comes between multicasts where the rule requires it.
    fn start_operations(&mut self, rank: usize) {
        let party = self.nodes.len() + rank;
        let mut outbox = Outbox::default();
        loop {
            let program = &mut self.programs[rank];
            let over = program.started == self.plan.calls.len();
            if program.failed.is_some() || program.is_closed {
                break;
            }
            let is_cast = |call: usize| matches!(self.plan.calls[call], Call::Broadcast { folded: false, .. });
            let is_ack_barrier = if over {
                if program.ended < program.started {
                    break;
                }
                program.is_closed = !program.ack_barrier.is_open();
                program.ack_barrier.is_open()
            } else {
                program.ack_barrier.is_due() && is_cast(program.started)
            };
            if program.is_closed || !is_ack_barrier && program.started == program.reached {
                break;
            }
            let call = (!is_ack_barrier).then_some(program.started);
            let (contribution, mode) = contribution(rank, call.map(|call| (call, self.plan.calls[call])));
            let op = OpId(program.operations.len() as u32);
            program.operations.insert(op.0, call);
            // An operation that completes at once has started as well.
            program.started += usize::from(!is_ack_barrier);
            match program.member.start_with_mode(self.now, contribution, mode, &mut outbox) {
                Ok(started) => {
                    assert_eq!(started, op);
                    match mode {
                        OperationMode::Multicast => program.ack_barrier.note_multicast(),
                        _ => program.ack_barrier.note_contributions(),
                    }
                    self.counts.most_retained = self.counts.most_retained.max(program.member.multicasts_retained());
                    self.execute_actions(party, &mut outbox);
                }
                Err(error) => {
                    program.operations.remove(&op.0);
                    program.started -= usize::from(!is_ack_barrier);
                    if let OperationStartError::ParentsLost(cause) = error {
                        program.failed = Some(cause);
                    }
                    break;
                }
            }
        }
    }

    pub(crate) fn run(mut self) -> RunCounts {
        while let Some(((at, _), event)) = self.queue.pop_first() {
            self.now = at;
            if at > Time::ZERO + PATIENCE {
                let progress: Vec<_> = self.programs.iter().map(|program| (program.ended, program.failed)).collect();
                panic!("seed {}: the run does not end; {progress:?}, {:?}", self.plan.seed, self.plan);
            }
            let mut outbox = Outbox::default();
            let (now, nodes) = (self.now, self.nodes.len());
            match event {
                Event::Call(rank) => {
                    let program = &mut self.programs[rank];
                    program.is_waiting = program.reached - program.ended >= self.plan.depth;
                    if program.reached < self.plan.calls.len() && !program.is_waiting {
                        program.reached += 1;
                        self.call_soon(rank);
                    }
                    self.start_operations(rank);
                    continue;
                }
                Event::Frame { to, .. } | Event::Multicast { to, .. } | Event::Timer(to) if self.is_silent(to) => {
                    continue;
                }
                Event::Frame { to, edge, ref frame } => match self.nodes.get_mut(to) {
                    Some(node) => node.handle_frame(now, edge, FramePath::ONLY_PATH, frame, &mut outbox),
                    None => {
                        let member = &mut self.programs[to - nodes].member;
                        member.handle_frame(now, edge, FramePath::ONLY_PATH, frame, &mut outbox);
                    }
                },
                Event::Multicast { to, ref message } => match self.nodes.get_mut(to) {
                    Some(node) => {
                        let up = EdgeIndex(self.far[to].len() as u16 - 1);
                        node.handle_multicast(now, up, message, &mut outbox);
                    }
                    None => {
                        let member = &mut self.programs[to - nodes].member;
                        member.handle_multicast(now, EdgeIndex(0), message, &mut outbox);
                    }
                },
                Event::Timer(to) => {
                    if self.timers[to] > now {
                        continue; // The timer was since set to an earlier time and has expired.
                    }
                    self.timers[to] = Time::NEVER;
                    match self.nodes.get_mut(to) {
                        Some(node) => node.handle_timeout(now, &mut outbox),
                        None => self.programs[to - nodes].member.handle_timeout(now, &mut outbox),
                    }
                }
            }
            let party = match event {
                Event::Frame { to, .. } | Event::Multicast { to, .. } | Event::Timer(to) => to,
                Event::Call(_) => unreachable!("calls are handled above"),
            };
            self.execute_actions(party, &mut outbox);
            if self.plan.failure.is_some() && self.programs.iter().all(Program::is_finished) {
                break; // The driver has left the tree and handles the member's other operations.
            }
            if let Some(rank) = party.checked_sub(nodes) {
                let kept = self.programs[rank].member.multicasts_retained();
                self.counts.most_retained = self.counts.most_retained.max(kept);
                self.start_operations(rank);
            }
        }
        self.judge()
    }

    /// When no event is left, every program has all results, or knows why not.
    fn judge(mut self) -> RunCounts {
        for (rank, program) in self.programs.iter().enumerate() {
            let (seed, plan) = (self.plan.seed, &self.plan);
            match (plan.failure, program.failed) {
                (None, Some(cause)) => panic!("seed {seed}: {rank} failed without a fault: {cause:?}"),
                (Some(_), Some(_)) => self.counts.failed += 1,
                (_, None) => {
                    assert_eq!(program.ended, plan.calls.len(), "seed {seed}: {rank} waits forever; {plan:?}");
                    let settled = program.member.is_settled();
                    assert!(
                        settled || plan.failure.is_some(),
                        "seed {seed}: {rank} does not know that every member has every result"
                    );
                }
            }
        }
        assert!(self.counts.most_retained <= 2 * WINDOW as usize, "{:?}", self.counts);
        self.counts
    }
}

fn contribution(rank: usize, call: Option<(usize, Call)>) -> (Contribution, OperationMode) {
    let carrier = (ElementType::U8, Operator::Or);
    let ((element, operator), role, payload, mode) = match call {
        None => (carrier, ContributionRole::Operand, Vec::new(), OperationMode::Aggregated),
        Some((_, Call::Barrier)) => {
            let role = if rank == 0 { PollRole::Poller } else { PollRole::Responder };
            (carrier, ContributionRole::Operand, Vec::new(), OperationMode::Polled(role))
        }
        Some((call, Call::Sum)) => {
            let bytes = addend(rank, call).to_le_bytes().to_vec();
            ((ElementType::U64, Operator::Sum), ContributionRole::Operand, bytes, OperationMode::Aggregated)
        }
        Some((call, Call::Broadcast { root, folded })) => {
            let mode = if folded { OperationMode::Aggregated } else { OperationMode::Multicast };
            let (role, bytes) = if root == rank {
                (ContributionRole::Sole, payload_of(call))
            } else {
                (ContributionRole::ReceiveOnly, Vec::new())
            };
            (carrier, role, bytes, mode)
        }
    };
    let size = if element == ElementType::U64 { 8 } else { 1 };
    let contribution = Contribution {
        element: ElementCode(element.code()),
        operator: OperatorCode(operator.code()),
        element_count: (payload.len() / size) as u16,
        role,
        disposition: ResultDisposition::Deliver,
        segment: SegmentIndex(call.map_or(u32::MAX, |(call, _)| call as u32)),
        payload: if role == ContributionRole::ReceiveOnly { Payload::EMPTY } else { payload.into() },
    };
    (contribution, mode)
}
