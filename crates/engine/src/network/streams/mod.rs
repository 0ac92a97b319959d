//! Messages of schedules among the leaders of hosts, as transfers.
//!
//! In: operations on the caller's memory; parts and acknowledgements from the sockets; time. Out: packets, and results. A part is
//! combined with the caller's vector straight from the receive buffer, and sent on while later parts arrive; the sender's bytes leave
//! from the caller's memory. At the end of an operation, what peers may still lack is copied, so that the caller need not wait for
//! their acknowledgements. Short vectors travel in whole messages (`whole_messages`). Rules: P-86 to P-92.

mod buffers;
mod incoming_messages;
mod outgoing_stream;
mod stream_operation;
mod whole_messages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use protocol::collective::CollectiveSchedule;
use protocol::transfer::{
    BulkSender, IMPLICIT_ACK_BYTES, PartLimit, TransferAcknowledgement, TransferPacing, TransferPeerLost,
};
use transport::edges::{TransferSink, UnverifiedPart};
use units::{GroupId, OpId, PathId, QpNumber, Rank, Span, Time};
use wire::transfer::{self, TransferHeader, TransferName, TransferPacketKind};

pub use buffers::StreamBuffers;
pub(super) use whole_messages::WholeMessage;

use super::leader_group::{HOST_STREAM, OperationResults};
use super::mesh::{mesh_qp, mesh_rank};
use super::operation_map::OperationMap;
use super::tree_operation::{LeaderNetworkError, OperationHandle};
use crate::aggregation::TreeEdges;
use incoming_messages::{IncomingMessages, KeepOutcome, MessageUse};
use outgoing_stream::{OutgoingStream, SpareBuffers, StreamData};
use stream_operation::{PartOutcome, StreamOperation};
use whole_messages::{MESSAGES_PER_ACKNOWLEDGEMENT, WholeOperation};

/// Bytes that a stream sends before what has arrived meanwhile is received: both ends work on data that is still in the cache.
const TURN_BYTES: u32 = 60 << 10;
/// What a peer may lack of operations whose callers have got their memory back.
const MAX_DETACHED_BYTES: u32 = 256 << 10;
/// What it lacks as a rule, and what is copied then: before the last so many bytes of a long message the sender asks for an acknowledgement.
const USUAL_DETACHED_BYTES: u32 = 64 << 10;
/// The receive window: at most this, and at least [`protocol::transfer::UNSOLICITED_BYTES`].
const MAX_WINDOW_BYTES: usize = 1 << 20;
/// The share of the socket's receive buffer that one transfer may fill. The kernel counts more than the bytes, and several peers may
/// send at once.
const WINDOW_SHARE: usize = 8;
/// Timeouts in a row after which the next path is tried.
const TIMEOUTS_PER_PATH: u32 = 2;
/// A process that did nothing here for so long was outside the library.
const ABSENCE: Span = Span::from_micros(200);
/// Damaged parts that are reported at a time.
const MAX_DAMAGED_PARTS: usize = 64;
/// Groups that are closed and still known: messages to them are acknowledged, because their operations are over.
const MAX_CLOSED_GROUPS: usize = 64;

/// A streamed operation: the communicator and the number of the operation in it.
type StreamKey = (GroupId, OpId);

/// A part for an operation that is not streamed here, at least not any more.
pub(super) struct StrayPart {
    pub from: Rank,
    pub path: PathId,
    pub header: TransferHeader,
}

/// The path to a peer.
#[derive(Default)]
struct StreamPeer {
    pacing: TransferPacing,
    part_limit: PartLimit,
    path: u8,
    /// The path on which its last part arrived: acknowledgements return on it (P-15). The own one may be cut without anything that is
    /// sent there and would find out.
    arrival_path: u8,
    /// Whole messages that it may lack, and their bytes.
    open_messages: u32,
    open_bytes: u32,
}

/// The streamed operations of a process.
#[derive(Default)]
pub(super) struct StreamTable {
    operations: OperationMap<StreamKey, StreamOperation>,
    /// Operations whose schedules take whole messages.
    whole: OperationMap<StreamKey, WholeOperation>,
    outgoing: Vec<OutgoingStream>,
    peers: BTreeMap<Rank, StreamPeer>,
    /// Messages of several parts that running schedules have taken whole.
    assembled: BTreeSet<(StreamKey, Rank, u16)>,
    /// Messages that cannot be used yet.
    incoming: IncomingMessages,
    /// Whole messages for the groups.
    arrived: Vec<WholeMessage>,
    /// Memory for what peers may lack at the end of an operation.
    spare_buffers: SpareBuffers,
    /// The groups that were closed last.
    closed: VecDeque<GroupId>,
    /// The first operation of each group that has not begun.
    begun: BTreeMap<GroupId, OpId>,
    /// Parts that the groups must judge.
    strays: Vec<StrayPart>,
    /// Messages that are complete, whose senders must hear of it.
    completed: Vec<StrayPart>,
    /// Damaged parts behind authentic headers, and their bytes: their senders must hear of it.
    damaged: Vec<(StrayPart, u32)>,
    /// Groups in which ranks called different operations.
    mismatches: Vec<GroupId>,
    /// Groups with a message that was intact when it arrived, was acknowledged, and was damaged in this process's memory.
    corrupted: Vec<GroupId>,
    now: Time,
    /// More could be sent at once.
    has_more: bool,
    /// The own process began or ended something: what waited for it can go on, although nothing arrives.
    is_changed: bool,
}

impl StreamTable {
    /// A group is entered.
    pub(super) fn open_group(&mut self, context: GroupId) {
        self.closed.retain(|group| *group != context);
    }

    /// Messages that arrived before their operation began show whether all ranks mean the same operation. Nobody sends them again: they
    /// were acknowledged. False if the ranks disagree.
    fn check_early(&mut self, key: StreamKey, fingerprint: u32) -> bool {
        let agrees = !self.incoming.contradicts(key, fingerprint);
        if !agrees {
            self.mismatches.push(key.0);
        }
        agrees
    }

    /// An operation begins. If the process was outside the library before, peers had no chance to be heard: the clocks of first probes
    /// start now.
    fn note_presence(&mut self, now: Time) {
        let was_away = now.since(self.now) > ABSENCE;
        self.now = now;
        if was_away {
            for stream in &mut self.outgoing {
                if let Some(peer) = self.peers.get(&stream.to) {
                    stream.transfer.note_absence(now, &peer.pacing);
                }
            }
        }
    }

    /// Starts an operation. The caller keeps the memory valid until the result is there, or the operation is cancelled.
    pub(super) fn start(
        &mut self,
        tree_edges: &mut TreeEdges,
        (context, op): StreamKey,
        handle: OperationHandle,
        schedule: CollectiveSchedule,
        (leaders, buffers): (Vec<Rank>, StreamBuffers),
        results: &mut OperationResults,
    ) {
        let window = (tree_edges.receive_buffer_bytes() / WINDOW_SHARE)
            .clamp(protocol::transfer::UNSOLICITED_BYTES as usize, MAX_WINDOW_BYTES);
        self.check_early((context, op), schedule.fingerprint());
        let operation = StreamOperation::new(handle, schedule, leaders, buffers, window as u32);
        let operation = operation.expect("the caller chose an algorithm that can stream");
        self.operations.insert((context, op), operation);
        self.begun.insert(context, op.next());
        self.is_changed = true;
        self.note_presence(tree_edges.clock().now());
        self.take_early_parts((context, op));
        self.drive(tree_edges, results);
    }

    /// Sends what can be sent, acknowledges what arrived, and finishes operations. The time was set shortly before: reading the clock
    /// takes as long as much else here.
    pub(super) fn drive(&mut self, tree_edges: &mut TreeEdges, results: &mut OperationResults) {
        if self.is_idle() {
            return;
        }
        self.queue_messages();
        self.send_parts(tree_edges);
        self.acknowledge(tree_edges);
        self.acknowledge_completed(tree_edges);
        self.report_damaged(tree_edges);
        self.finish_operations(results);
    }

    /// True if more could be sent at once.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// True, once, if the own process began or ended something.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// True if nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.operations.is_empty()
            && self.whole.is_empty()
            && self.outgoing.is_empty()
            && self.completed.is_empty()
            && self.damaged.is_empty()
            && self.incoming.is_empty()
    }

    /// True if the groups must judge something.
    pub(super) fn has_questions(&self) -> bool {
        !self.strays.is_empty()
            || !self.mismatches.is_empty()
            || !self.corrupted.is_empty()
            || !self.arrived.is_empty()
    }

    /// Makes messages of the schedules that may be sent now, and updates how much of each is available.
    fn queue_messages(&mut self) {
        for (key, operation) in self.operations.iter_mut() {
            while let Some((send, bytes)) = operation.next_send() {
                let round = send.round as u16;
                self.outgoing.push(OutgoingStream {
                    operation: *key,
                    to: operation.leaders[send.step.to.index()],
                    name: TransferName { group: key.0, epoch: HOST_STREAM, operation: key.1, round },
                    fingerprint: operation.fingerprint,
                    length: send.step.part.len(),
                    element: operation.element(),
                    transfer: BulkSender::new(send.step.part.len()),
                    data: StreamData::Borrowed(bytes),
                    path: 0,
                });
            }
            operation.update_availability(|round, bytes| {
                let is_it = |stream: &&mut OutgoingStream| {
                    stream.operation == *key && u32::from(stream.name.round) == round && !stream.is_detached()
                };
                if let Some(stream) = self.outgoing.iter_mut().find(is_it) {
                    stream.transfer.make_available(bytes);
                }
            });
        }
    }

    /// Sends from each stream in turn. New bytes of a stream follow all bytes of earlier ones to its peer.
    fn send_parts(&mut self, tree_edges: &mut TreeEdges) {
        self.has_more = false;
        for index in 0..self.outgoing.len() {
            if !self.outgoing[index].transfer.is_settled() && !self.send_stream(tree_edges, index) {
                return; // The kernel cannot take more now.
            }
        }
    }

    /// Sends from one stream; false if the kernel cannot take more now.
    fn send_stream(&mut self, tree_edges: &mut TreeEdges, index: usize) -> bool {
        let to = self.outgoing[index].to;
        let (mut before, mut in_flight) = (0_usize, 0);
        for (other, stream) in self.outgoing.iter().enumerate().filter(|(_, stream)| stream.to == to) {
            if other < index {
                if !stream.transfer.is_sent() {
                    return true;
                }
                before += 1;
            }
            in_flight += if other == index { 0 } else { stream.transfer.in_flight() };
        }
        let unfinished = self.unfinished(self.outgoing[index].name.group);
        let (stream, peer) = (&mut self.outgoing[index], self.peers.entry(to).or_default());
        let Some(range) = stream.next_range(&peer.pacing, in_flight, TURN_BYTES) else { return true };
        let asks = stream.transfer.timeouts() > 0
            || (before + 1).is_multiple_of(MESSAGES_PER_ACKNOWLEDGEMENT)
            || stream.transfer.is_last_for_now(&range, &peer.pacing)
            || stream.reaches_last(USUAL_DETACHED_BYTES, &range);
        let header = stream.header(range.start, asks, unfinished);
        let (bytes, path) = (stream.bytes(&range), PathId(peer.path));
        let packets = stream.packets(peer.part_limit.is_limited(self.now));
        let sent = tree_edges.send_transfer(mesh_qp(to), path, &header, bytes, packets);
        // If the packet of an empty message is not sent, its timer repeats it.
        let end = if bytes.is_empty() { range.end } else { range.start + sent as u32 };
        stream.transfer.note_sent(self.now, range.start..end, &peer.pacing);
        stream.path = path.0;
        self.has_more |= stream.next_range(&peer.pacing, in_flight, TURN_BYTES).is_some();
        end == range.end
    }

    /// Acknowledges what arrived where the sender should hear of it.
    fn acknowledge(&mut self, tree_edges: &mut TreeEdges) {
        let mut owed = Vec::new();
        for (key, operation) in self.operations.iter_mut() {
            let fingerprint = operation.fingerprint;
            let Some((from, round, length, transfer)) = operation.transfer_mut() else { continue };
            if transfer.owes_acknowledgement() {
                let name = TransferName { group: key.0, epoch: HOST_STREAM, operation: key.1, round: round as u16 };
                let path = PathId(self.peers.get(&from).map_or(0, |peer| peer.arrival_path));
                owed.push((from, path, (name, fingerprint, length), transfer.acknowledge()));
            }
        }
        self.incoming.take_acknowledgements(|message, acknowledgement| {
            let TransferHeader { name, fingerprint, length, .. } = message.header;
            owed.push((message.from, message.path, (name, fingerprint, length), acknowledgement));
        });
        for (from, path, identity, TransferAcknowledgement { received, limit, missing, probe }) in owed {
            let kind = TransferPacketKind::Acknowledgement { received, limit, probe };
            self.send_acknowledgement(tree_edges, (from, path), identity, kind, &missing);
        }
    }

    fn send_acknowledgement(
        &self,
        tree_edges: &mut TreeEdges,
        (to, path): (Rank, PathId),
        (name, fingerprint, length): (TransferName, u32, u32),
        kind: TransferPacketKind,
        missing: &[(u32, u32)],
    ) {
        let (destination, unfinished) = (QpNumber(0), self.unfinished(name.group));
        let payload_mac = 0; // The transport computes it.
        let header = TransferHeader { destination, name, fingerprint, length, unfinished, kind, payload_mac };
        tree_edges.send_transfer_acknowledgement(mesh_qp(to), path, &header, missing);
    }

    /// Tells the senders of complete messages so. Before anything else: they may wait for it.
    fn acknowledge_completed(&mut self, tree_edges: &mut TreeEdges) {
        for message in std::mem::take(&mut self.completed) {
            self.acknowledge_all(tree_edges, &message);
        }
    }

    /// Asks for damaged parts again. That says nothing of what else has arrived.
    fn report_damaged(&mut self, tree_edges: &mut TreeEdges) {
        for (StrayPart { from, path, header }, bytes) in std::mem::take(&mut self.damaged) {
            let TransferPacketKind::Data { offset, probe, .. } = header.kind else { continue };
            let (kind, identity) = (
                TransferPacketKind::Acknowledgement { received: 0, limit: 0, probe },
                (header.name, header.fingerprint, header.length),
            );
            self.send_acknowledgement(tree_edges, (from, path), identity, kind, &[(offset, bytes.max(1))]);
        }
    }

    fn finish_operations(&mut self, results: &mut OperationResults) {
        let (outgoing, spare_buffers) = (&mut self.outgoing, &mut self.spare_buffers);
        self.operations.retain(|key, operation| {
            if !operation.is_received() {
                return true;
            }
            let is_mine = |stream: &OutgoingStream| stream.operation == *key && !stream.is_detached();
            if outgoing.iter().any(|stream| is_mine(stream) && !stream.transfer.is_sent()) {
                return true;
            }
            // What a peer may lack of this and earlier operations is bounded: a sender does not run far ahead.
            let lacking = |to: Rank| -> u32 {
                outgoing.iter().filter(|stream| stream.to == to).map(OutgoingStream::unacknowledged).sum()
            };
            if outgoing.iter().any(|stream| is_mine(stream) && lacking(stream.to) > MAX_DETACHED_BYTES) {
                return true;
            }
            for stream in outgoing.iter_mut().filter(|stream| is_mine(stream)) {
                stream.detach(spare_buffers);
            }
            results.push((operation.handle, Ok(Vec::new())));
            false
        });
    }

    /// Retransmits what is overdue; returns the ranks that do not answer, and for how long they have not.
    pub(super) fn handle_timeouts(&mut self, tree_edges: &TreeEdges) -> Vec<(Rank, Span)> {
        let now = tree_edges.clock().now();
        let (mut lost, mut asked) = (Vec::new(), Vec::new());
        for stream in self.outgoing.iter_mut().filter(|stream| stream.transfer.deadline() <= now) {
            let peer = self.peers.entry(stream.to).or_default();
            // Of many short messages to a peer, the first one asks: the answer tells which operations are finished there (P-91).
            let is_message = matches!(stream.data, StreamData::Message(_));
            if is_message && stream.transfer.timeouts() == 0 && asked.contains(&stream.to) {
                stream.transfer.note_absence(now, &peer.pacing);
                continue;
            }
            asked.push(stream.to);
            peer.part_limit.note_timeouts(now, stream.transfer.timeouts() + 1);
            let probe = tree_edges.part_bytes(stream.packets(peer.part_limit.is_limited(now))) as u32;
            match stream.transfer.handle_timeout(now, probe, &mut peer.pacing) {
                // Others may have left the path on which this one was sent; each would lead back to it.
                Ok(())
                    if stream.transfer.timeouts().is_multiple_of(TIMEOUTS_PER_PATH) && stream.path == peer.path =>
                {
                    peer.path = next_path(tree_edges, stream.to, peer.path);
                }
                Ok(()) => {}
                Err(TransferPeerLost { silence }) => lost.push((stream.to, silence)),
            }
        }
        lost
    }

    /// The kernel reports that a path to a peer is down.
    pub(super) fn handle_path_down(&mut self, tree_edges: &TreeEdges, rank: Rank, path: PathId) {
        if let Some(peer) = self.peers.get_mut(&rank).filter(|peer| peer.path == path.0) {
            peer.path = next_path(tree_edges, rank, peer.path);
        }
    }

    /// When [`Self::handle_timeouts`] is due.
    pub(super) fn deadline(&self) -> Time {
        if self.has_more {
            return self.now;
        }
        self.outgoing.iter().map(|stream| stream.transfer.deadline()).min().unwrap_or(Time::NEVER)
    }

    /// True if every peer has everything.
    pub(super) fn is_drained(&self) -> bool {
        self.outgoing.is_empty()
    }

    /// Fails the operations of a group.
    pub(super) fn fail_group(&mut self, context: GroupId, error: LeaderNetworkError, results: &mut OperationResults) {
        let is_of_group = |(group, _): &StreamKey| *group == context;
        if !self.operations.keys().any(is_of_group) && !self.whole.keys().any(is_of_group) {
            return;
        }
        self.whole.retain(|key, _| !is_of_group(key));
        self.assembled.retain(|(key, ..)| !is_of_group(key));
        self.incoming.take(|message| message.header.name.group == context);
        self.operations.retain(|(group, _), operation| {
            let fails = *group == context;
            if fails {
                results.push((operation.handle, Err(error)));
            }
            !fails
        });
        self.is_changed = true;
        self.outgoing.retain(|stream| stream.operation.0 != context || stream.is_detached());
    }

    /// Forgets an operation whose caller takes its memory back.
    pub(super) fn cancel(&mut self, handle: OperationHandle) {
        let Some(key) = self.operations.iter().find(|(_, found)| found.handle == handle).map(|(key, _)| *key) else {
            return;
        };
        self.is_changed = true;
        self.operations.remove(&key);
        self.outgoing.retain(|stream| stream.operation != key || stream.is_detached());
    }

    /// A rank is lost or has left: nothing more is sent to it.
    pub(super) fn release(&mut self, rank: Rank) {
        self.is_changed = true;
        self.outgoing.retain(|stream| stream.to != rank);
        if let Some(peer) = self.peers.get_mut(&rank) {
            (peer.open_messages, peer.open_bytes) = (0, 0);
        }
    }

    /// A group is closed. What its peers may lack is still sent: an outage may last longer than the group.
    pub(super) fn close_group(&mut self, context: GroupId) {
        self.is_changed = true;
        self.begun.remove(&context);
        self.whole.retain(|(group, _), _| *group != context);
        self.assembled.retain(|((group, _), ..)| *group != context);
        self.incoming.take(|message| message.header.name.group == context);
        self.closed.push_back(context);
        if self.closed.len() > MAX_CLOSED_GROUPS {
            self.closed.pop_front();
        }
    }

    /// Parts for operations that are not streamed here, for the groups to judge.
    pub(super) fn take_strays(&mut self) -> Vec<StrayPart> {
        std::mem::take(&mut self.strays)
    }

    /// Groups with a message that was damaged in this process's memory.
    pub(super) fn take_corrupted(&mut self) -> Vec<GroupId> {
        std::mem::take(&mut self.corrupted)
    }

    /// Groups in which ranks called different operations.
    pub(super) fn take_mismatches(&mut self) -> Vec<GroupId> {
        std::mem::take(&mut self.mismatches)
    }

    /// Tells the sender of a part that its whole message is here.
    pub(super) fn acknowledge_all(&self, tree_edges: &mut TreeEdges, part: &StrayPart) {
        let StrayPart { from, path, header } = part;
        let probe = match header.kind {
            TransferPacketKind::Data { probe, .. } | TransferPacketKind::Acknowledgement { probe, .. } => probe,
        };
        // An empty message counts as one byte.
        let (received, identity) = (header.length.max(1), (header.name, header.fingerprint, header.length));
        let kind = TransferPacketKind::Acknowledgement { received, limit: received, probe };
        self.send_acknowledgement(tree_edges, (*from, *path), identity, kind, &[]);
    }

    /// Handles the parts that arrived before an operation, or one of its messages, was open.
    fn take_early_parts(&mut self, key: StreamKey) {
        loop {
            let Some((from, round)) = self.operations.get(&key).and_then(StreamOperation::awaited) else { return };
            let name = TransferName { group: key.0, epoch: HOST_STREAM, operation: key.1, round: round as u16 };
            let messages = self.incoming.take(|message| message.from == from && message.header.name == name);
            if messages.is_empty() {
                return;
            }
            for message in messages {
                for part in message.parts() {
                    let (offset, acknowledge_now, probe) = (part.offset, message.is_asked, 0);
                    let kind = TransferPacketKind::Data { offset, acknowledge_now, probe };
                    let header = TransferHeader { kind, ..message.header };
                    if !self.dispatch_part(from, message.path, &header, part.unverified()) {
                        self.corrupted.push(key.0);
                    }
                }
            }
            if self.operations.get(&key).and_then(StreamOperation::awaited) == Some((from, round)) {
                return;
            }
        }
    }

    /// Handles a part; false if it is not intact.
    fn dispatch_part(&mut self, from: Rank, path: PathId, header: &TransferHeader, part: UnverifiedPart<'_>) -> bool {
        let TransferPacketKind::Data { offset, acknowledge_now, probe } = header.kind else { return true };
        let key = (header.name.group, header.name.operation);
        if let Some(whole) = self.whole.get(&key).copied() {
            return self.handle_whole_part((from, path), header, whole, part);
        }
        let Some(operation) = self.operations.get_mut(&key) else {
            let next = self.begun.get(&key.0);
            let is_over = next.is_some_and(|next| key.1.steps_from(*next) < 0) || self.closed.contains(&key.0);
            if is_over {
                // One answer tells which operations of the group are finished here.
                self.strays.retain(|noted| (noted.from, noted.header.name.group) != (from, key.0));
                self.strays.push(StrayPart { from, path, header: *header });
                return true;
            }
            return self.keep_early((from, path), header, part);
        };
        if operation.fingerprint != header.fingerprint {
            self.mismatches.push(key.0);
            return true;
        }
        let name = (from, u32::from(header.name.round));
        let place = (offset, header.length);
        let outcome = operation.handle_part(name, place, (acknowledge_now, probe), part);
        if matches!(outcome, PartOutcome::Handled { .. }) {
            self.peers.entry(from).or_default().arrival_path = path.0;
        }
        match outcome {
            PartOutcome::Handled { completed: false } => {}
            PartOutcome::Handled { completed: true } => {
                operation.open_next();
                if acknowledge_now || header.length > IMPLICIT_ACK_BYTES {
                    self.note_completed(from, path, header);
                }
                self.take_early_parts(key);
            }
            PartOutcome::AlreadyComplete => self.note_completed(from, path, header),
            PartOutcome::Early => return self.keep_early((from, path), header, part),
            PartOutcome::Mismatch => self.mismatches.push(key.0),
            PartOutcome::Damaged => return false,
        }
        true
    }

    fn note_completed(&mut self, from: Rank, path: PathId, header: &TransferHeader) {
        add_once(&mut self.completed, StrayPart { from, path, header: *header });
    }

    fn keep_early(&mut self, from: (Rank, PathId), header: &TransferHeader, part: UnverifiedPart<'_>) -> bool {
        self.incoming.keep(from, header, MessageUse::Early, part) != KeepOutcome::Damaged
    }
}

/// Adds a part unless another one of its message is there: one answer is enough.
fn add_once(parts: &mut Vec<StrayPart>, part: StrayPart) {
    if !parts.iter().any(|noted| noted.from == part.from && noted.header.name == part.header.name) {
        parts.push(part);
    }
}

/// The path after this one, around all paths to a peer.
fn next_path(tree_edges: &TreeEdges, rank: Rank, path: u8) -> u8 {
    let paths = tree_edges.paths(mesh_qp(rank)).max(1);
    ((usize::from(path) + 1) % paths) as u8
}

impl TransferSink for StreamTable {
    /// Also the time at which what is sent next is sent.
    fn set_time(&mut self, now: Time) {
        self.now = now;
    }

    fn handle_part(
        &mut self,
        edge: QpNumber,
        path: PathId,
        header: &TransferHeader,
        part: UnverifiedPart<'_>,
    ) -> bool {
        let Some(from) = mesh_rank(edge) else { return true };
        self.note_finished_at(from, header);
        let is_intact = self.dispatch_part(from, path, header, part);
        // After a timeout the clock repairs (P-88): a path that damages everything must cost timeouts, which lead to another one.
        let is_first = matches!(header.kind, TransferPacketKind::Data { probe: 0, .. });
        if !is_intact && is_first && self.damaged.len() < MAX_DAMAGED_PARTS {
            self.damaged.push((StrayPart { from, path, header: *header }, part.len() as u32));
        }
        is_intact
    }

    fn handle_acknowledgement(&mut self, edge: QpNumber, _: PathId, header: &TransferHeader, missing: &[u8]) {
        let (TransferPacketKind::Acknowledgement { received, limit, probe }, Some(from)) =
            (header.kind, mesh_rank(edge))
        else {
            return;
        };
        self.note_finished_at(from, header);
        let is_it = |stream: &OutgoingStream| stream.to == from && stream.name == header.name;
        let Some(place) = self.outgoing.iter().position(is_it) else { return };
        let missing = transfer::parse_missing(missing).collect();
        let acknowledgement = TransferAcknowledgement { received, limit, missing, probe };
        let peer = self.peers.entry(from).or_default();
        let stream = &mut self.outgoing[place];
        stream.transfer.handle_acknowledgement(self.now, &acknowledgement, &mut peer.pacing);
        if stream.transfer.is_complete() {
            peer.close_message(stream);
            self.spare_buffers.reclaim(self.outgoing.remove(place));
        }
    }
}
