//! The driver of segmented collectives: runs operations one after another, performs the actions of executors, and calls the observer.

use std::sync::Arc;

use faults::RandomStream;
use protocol::Payload;
use protocol::collective::{FoldOrder, ScheduleAction, ScheduleExecutor};
use protocol::connection::OutgoingFrame;
use topology::NodeId;
use units::{OpId, Rank, SimSpan, SimTime};

use super::blocks::SegmentBlocks;
use super::host_link::{HostLinks, MessagePart};
use super::message_transport::{LATE_ENTRY, SegmentMessage};
use super::rank_progress::{RankProgress, RunningSegment};
use super::{SegmentedParameters, VectorContents};
use crate::collective::{CollectiveObserver, CollectiveTiming, OperationFailure, OperationPacing};
use crate::network::SimulatedNetwork;
use crate::residue::FabricResidue;
use crate::slab::Slab;

/// Work that needs the observer.
pub(super) enum PendingWork {
    /// A host enters the operation.
    Enter(Rank),
    /// A message was received before its segment has started.
    Early(u32),
    /// A host may be able to start its next segment.
    StartNext(Rank),
    /// A host has the result of a segment.
    Delivered(Rank, u32, Payload),
    /// A connection gave up: the two hosts.
    Unreachable(Rank, Rank),
}

pub(crate) struct SegmentedDriver {
    pub(super) parameters: SegmentedParameters,
    /// The host of each rank.
    pub(super) hosts: Vec<NodeId>,
    /// The order in which the present operation is folded, if it is prescribed.
    order: Option<Arc<FoldOrder>>,
    blocks: SegmentBlocks,
    pub(super) ranks: Vec<RankProgress>,
    pub(super) links: HostLinks,
    pub(super) messages: Slab<SegmentMessage>,
    pub(super) actions: Vec<ScheduleAction>,
    pub(super) frames: Vec<OutgoingFrame<MessagePart>>,
    pub(super) pending: Vec<PendingWork>,
    /// Takes turns with `pending`, so that neither is allocated again.
    spare: Vec<PendingWork>,
    lateness: RandomStream,
    /// Timers that are set for messages and late hosts.
    pub(super) timers: u32,
    op: OpId,
    /// The observer's number of the first segment of the present operation.
    first_number: OpId,
    /// Hosts without the results of all segments.
    unfinished: u32,
    completed: u32,
    last: SimTime,
    failed: bool,
    hung: bool,
}

impl SegmentedDriver {
    pub(crate) fn new(parameters: SegmentedParameters, hosts: Vec<NodeId>, seed: u64) -> Self {
        Self {
            parameters,
            hosts,
            order: None,
            blocks: SegmentBlocks::default(),
            ranks: Vec::new(),
            links: HostLinks::default(),
            messages: Slab::default(),
            actions: Vec::new(),
            frames: Vec::new(),
            pending: Vec::new(),
            spare: Vec::new(),
            lateness: RandomStream::new(seed, 0x1a7e),
            timers: 0,
            op: OpId(0),
            first_number: OpId(0),
            unfinished: 0,
            completed: 0,
            last: SimTime::ZERO,
            failed: false,
            hung: false,
        }
    }

    pub(super) fn is_hung(&self) -> bool {
        self.hung
    }

    /// Runs one operation of all hosts.
    pub(super) fn run_one(
        &mut self,
        network: &mut SimulatedNetwork,
        op: OpId,
        observer: &mut dyn CollectiveObserver,
    ) -> CollectiveTiming {
        let (started, members) = (network.now(), self.parameters.members);
        self.begin(network, op, OpId(op.0 * self.parameters.vector.segments()));
        let hung_at = started + self.parameters.hang_timeout;
        loop {
            self.perform_pending(network, observer);
            if self.is_settled(network) || network.now() > hung_at {
                break;
            }
            network.run(self, |driver, network| {
                !driver.pending.is_empty() || driver.is_settled(network) || network.now() > hung_at
            });
            if self.pending.is_empty() && !self.is_settled(network) {
                break; // No event is left: the operation never ends, and the observer misses its results.
            }
        }
        self.hung |= self.unfinished > 0;
        if self.failed {
            self.drain(network);
        }
        CollectiveTiming { reduce: None, complete: (self.completed == members).then(|| self.last.since(started)) }
    }

    /// Sets what the next operation is, and the order in which it is folded, if that is prescribed.
    pub(crate) fn set_operation(&mut self, parameters: SegmentedParameters, order: Option<Arc<FoldOrder>>) {
        (self.parameters, self.order) = (parameters, order);
        self.blocks.clear();
    }

    /// Lets all hosts enter operation `op`, those that are late by timer.
    pub(crate) fn begin(&mut self, network: &mut SimulatedNetwork, op: OpId, first_number: OpId) {
        let (started, members) = (network.now(), self.parameters.members);
        let segments = self.parameters.vector.segments();
        self.ranks.clear();
        self.ranks.resize_with(members as usize, || RankProgress::new(segments));
        (self.op, self.first_number, self.unfinished, self.completed) = (op, first_number, members, 0);
        (self.last, self.failed) = (started, false);
        for rank in (0..members).map(Rank) {
            match self.arrival_delay(rank) {
                late if late == SimSpan::ZERO => self.pending.push(PendingWork::Enter(rank)),
                late => {
                    self.timers += 1;
                    network.set_timer(started + late, LATE_ENTRY | rank.0);
                }
            }
        }
    }

    /// Whether there is work that needs the observer.
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Between operations: forgets work that no operation waits for any more. True if a connection has given up, so that the next
    /// operation needs new ones.
    pub(crate) fn discard_idle_work(&mut self) -> bool {
        self.pending.drain(..).any(|work| matches!(work, PendingWork::Unreachable(..)))
    }

    /// Whether the operation has ended at every host.
    pub(crate) fn is_over(&self) -> bool {
        self.unfinished == 0
    }

    /// Whether the present operation has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// What is left although no operation is in progress.
    pub(crate) fn residue(&self) -> FabricResidue {
        let unsent: usize = self.ranks.iter().map(|rank| rank.outgoing.len()).sum();
        FabricResidue {
            frames: self.links.unacknowledged() as u64,
            messages: (self.messages.len() + unsent) as u64,
            ..FabricResidue::default()
        }
    }

    fn is_settled(&self, network: &SimulatedNetwork) -> bool {
        match self.parameters.pace {
            OperationPacing::BackToBack => self.unfinished == 0,
            OperationPacing::Drained => self.unfinished == 0 && self.is_at_rest(network),
        }
    }

    fn is_at_rest(&self, network: &SimulatedNetwork) -> bool {
        network.packets_in_flight() == 0 && self.timers == 0
    }

    /// After a failure: waits until nothing is in flight. The hosts connect anew in the next operation.
    fn drain(&mut self, network: &mut SimulatedNetwork) {
        network.run(self, |driver, network| driver.is_at_rest(network));
        self.pending.clear();
    }

    /// The delay of a rank's entry after the first rank's.
    fn arrival_delay(&self, rank: Rank) -> SimSpan {
        let most = self.parameters.arrival_skew.as_picos();
        let draw = u64::from(self.op.0) * u64::from(self.parameters.members) + u64::from(rank.0);
        SimSpan::from_picos(if most == 0 { 0 } else { self.lateness.below(draw, most + 1) })
    }

    /// The observer's number of a segment of the present operation.
    fn number(&self, segment: u32) -> OpId {
        OpId(self.first_number.0 + segment)
    }

    pub(crate) fn perform_pending(&mut self, network: &mut SimulatedNetwork, observer: &mut dyn CollectiveObserver) {
        while !self.pending.is_empty() {
            let mut pending = std::mem::replace(&mut self.pending, std::mem::take(&mut self.spare));
            for work in pending.drain(..) {
                match work {
                    PendingWork::Enter(rank) => {
                        self.ranks[rank.index()].entered = true;
                        for segment in 0..self.parameters.vector.segments() {
                            observer.started(rank, self.number(segment));
                        }
                        self.pending.push(PendingWork::StartNext(rank));
                    }
                    PendingWork::Early(message) => self.receive_early(network, message, observer),
                    PendingWork::StartNext(rank) => self.start_segments(network, rank, observer),
                    PendingWork::Delivered(rank, segment, result) => {
                        observer.delivered(rank, self.number(segment), &result);
                    }
                    PendingWork::Unreachable(from, to) => self.fail(from, to, observer),
                }
            }
            self.spare = pending;
        }
    }

    /// Starts as many segments of a host as its window allows.
    fn start_segments(&mut self, network: &mut SimulatedNetwork, rank: Rank, observer: &mut dyn CollectiveObserver) {
        let (segments, window) = (self.parameters.vector.segments(), self.parameters.window);
        while let Some(segment) = self.ranks[rank.index()].next_segment(segments, window).filter(|_| !self.failed) {
            self.open(rank, segment, observer);
            let mut actions = std::mem::take(&mut self.actions);
            self.ranks[rank.index()].start(segment, &mut actions);
            self.perform(network, rank, segment, actions);
        }
    }

    /// Creates the executor of a segment, if there is none.
    fn open(&mut self, rank: Rank, segment: u32, observer: &mut dyn CollectiveObserver) {
        if self.ranks[rank.index()].running.contains_key(&segment) {
            return;
        }
        let collective = self.parameters.collective(self.op);
        let is_real = self.parameters.vector.contents != VectorContents::SizeOnly;
        let own = if collective.is_contributor(rank) && is_real {
            observer.contribution(rank, self.number(segment))
        } else {
            Payload::SizeOnly { bytes: self.parameters.vector.bytes_of(segment) }
        };
        let schedule = self.parameters.schedule(self.op, rank, segment, self.order.as_ref(), &mut self.blocks);
        let schedule = schedule.expect("validated at set-up");
        let executor = ScheduleExecutor::new(schedule, own).expect("the contribution has the segment's length");
        let running = RunningSegment { executor, undelivered: 0, is_over: false };
        self.ranks[rank.index()].running.insert(segment, running);
    }

    /// Performs the actions of an executor: sends its messages, or notes its result.
    pub(super) fn perform(
        &mut self,
        network: &mut SimulatedNetwork,
        rank: Rank,
        segment: u32,
        mut actions: Vec<ScheduleAction>,
    ) {
        for action in actions.drain(..) {
            match action {
                ScheduleAction::Send { to, round, payload } => self.send(network, rank, to, segment, round, payload),
                ScheduleAction::Complete { result } => self.note_result(network, rank, segment, result),
                ScheduleAction::Failed { cause } => {
                    unreachable!("ranks with one schedule and no lost rank agree: {cause}")
                }
            }
        }
        self.actions = actions;
        if self.ranks[rank.index()].settle(segment) {
            self.pending.push(PendingWork::StartNext(rank));
        }
    }

    fn note_result(&mut self, network: &SimulatedNetwork, rank: Rank, segment: u32, result: Payload) {
        let progress = &mut self.ranks[rank.index()];
        if let Some(running) = progress.running.get_mut(&segment) {
            running.is_over = true;
        }
        progress.missing -= 1;
        if progress.missing == 0 {
            self.unfinished -= 1;
            self.completed += 1;
            self.last = self.last.max(network.now());
        }
        self.pending.push(PendingWork::Delivered(rank, segment, result));
    }

    /// A message has arrived on a host that has not started its segment.
    fn receive_early(&mut self, network: &mut SimulatedNetwork, number: u32, observer: &mut dyn CollectiveObserver) {
        let Some(message) = self.messages.get(number).filter(|_| !self.failed) else { return };
        let (to, segment) = (message.to, message.segment);
        self.open(to, segment, observer);
        self.receive(network, number);
    }

    /// Two hosts cannot reach each other: the operation fails on every host that has not completed it.
    fn fail(&mut self, from: Rank, to: Rank, observer: &mut dyn CollectiveObserver) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        self.links.clear();
        self.messages = Slab::default();
        for rank in (0..self.parameters.members).map(Rank) {
            let progress = std::mem::take(&mut self.ranks[rank.index()]);
            if progress.missing > 0 {
                self.unfinished -= 1;
            }
            for segment in 0..self.parameters.vector.segments() {
                let is_over = progress.running.get(&segment).map_or(
                    segment < progress.started, // A started segment that is not running has settled.
                    |running| running.is_over,
                );
                if !is_over {
                    observer.failed(rank, self.number(segment), OperationFailure::Unreachable { from, to });
                }
            }
        }
    }
}
