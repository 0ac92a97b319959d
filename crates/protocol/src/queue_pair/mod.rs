//! A queue pair: messages and remote writes of any length over a reliable connection that can migrate between paths.
//!
//! In: posted requests, packets, time. Out: packets to transmit (headers, and which bytes of which buffer follow them), bytes
//! written to [`QpMemory`], completions. Rules: docs/protocol.md P-10 to P-27; IB specification 9.7 and 10.3.
//!
//! It interoperates with Pleach ends and with any verbs peer (RC over RoCEv2). It copies no payload, except packets that arrive
//! early, of which it buffers a bounded number.

mod attributes;
mod drop_counters;
mod limits;
mod packet_headers;
mod requester;
mod responder;
mod state;
#[cfg(test)]
mod tests;
mod work_request;

use std::collections::{BTreeMap, VecDeque};

use units::limits::{MAX_MTU, MAX_REORDER_PACKETS, is_valid_mtu};
use units::{PathId, QpNumber, Time};
use wire::{PacketHeaders, PartitionKey};

pub use attributes::QpAttributes;
pub use drop_counters::DropCounters;
pub(crate) use limits::MAX_UNREQUESTED_ACKS;
pub use limits::{MAX_POSTED_REQUESTS, MAX_QP_MESSAGE_BYTES};
pub use packet_headers::Transmit;
pub use requester::PacketDescriptor;
pub use responder::QpMemory;
pub use state::{InvalidQpTransition, QP_TRANSITIONS, QpState, QpTransition};
pub use work_request::{QpError, QpOperation, QpPostError, WorkCompletion};

use crate::connection::path::{InvalidPathTransition, LoadPathError, PathEvent};
use crate::connection::{AckRequest, Connection, Frame, FramePath, Paths, PsnPosition, control_frame, migration_bit};
use packet_headers::with_headers;
use requester::Requester;
use responder::{PacketRejection, Responder, is_request};

/// Deliberate faults, for tests.
#[cfg(feature = "sabotage")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpSabotage {
    /// After the first migration, expects the last packet again.
    Forget,
    /// After the first migration, skips a packet.
    Skip,
}

/// A packet that arrived early.
#[derive(Debug)]
struct OutOfOrderPacket {
    headers: PacketHeaders,
    payload: Box<[u8]>,
}

/// One end of a queue pair.
#[derive(Debug)]
pub struct QueuePair {
    state: QpState,
    number: QpNumber,
    attributes: QpAttributes,
    connection: Connection<PacketDescriptor>,
    requester: Requester,
    responder: Responder,
    early: BTreeMap<u32, OutOfOrderPacket>,
    completions: VecDeque<WorkCompletion>,
    dropped: DropCounters,
    /// The fault to inject.
    #[cfg(feature = "sabotage")]
    sabotage: Option<QpSabotage>,
}

impl QueuePair {
    /// A queue pair in state RESET.
    pub fn new(number: QpNumber) -> Self {
        let attributes = QpAttributes::unconnected();
        Self {
            state: QpState::Reset,
            number,
            connection: Connection::new(attributes.policy),
            requester: Requester::new(attributes.send_psn),
            responder: Responder::default(),
            early: BTreeMap::new(),
            completions: VecDeque::new(),
            dropped: DropCounters::default(),
            attributes,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// Injects a fault.
    #[cfg(feature = "sabotage")]
    pub fn set_sabotage(&mut self, sabotage: QpSabotage) {
        self.sabotage = Some(sabotage);
    }

    #[cfg(feature = "sabotage")]
    fn apply_sabotage(&mut self) {
        let has_moved = self.connection.paths().is_some_and(|paths| paths.migrations() > 0);
        if let Some(sabotage) = self.sabotage.take_if(|_| has_moved) {
            let expected = self.connection.expected();
            let wrong = if sabotage == QpSabotage::Forget { expected.previous() } else { expected.next() };
            self.connection.expect_wrongly(wrong);
        }
    }

    /// The queue pair's own number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// The state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Packets dropped so far.
    pub fn dropped(&self) -> DropCounters {
        self.dropped
    }

    /// The underlying connection.
    pub fn connection(&self) -> &Connection<PacketDescriptor> {
        &self.connection
    }

    fn transition(&mut self, asked: QpTransition) -> Result<(), InvalidQpTransition> {
        self.state = self.state.after(asked)?;
        Ok(())
    }

    /// RESET to INIT: receives may be posted.
    pub fn initialise(&mut self, partition: PartitionKey) -> Result<(), InvalidQpTransition> {
        self.transition(QpTransition::Initialise)?;
        self.attributes.partition = partition;
        Ok(())
    }

    /// INIT to RTR: accepts packets of the peer. With several paths, their numbers mean the same at both ends.
    ///
    /// # Panics
    /// If the MTU is invalid: the caller checks it.
    pub fn connect(&mut self, attributes: QpAttributes, paths: Option<Paths>) -> Result<(), InvalidQpTransition> {
        let mtu = attributes.mtu;
        assert!(is_valid_mtu(mtu), "{mtu} is no path MTU");
        self.transition(QpTransition::Connect)?;
        self.attributes = attributes;
        self.requester = Requester::new(attributes.send_psn);
        self.connection = Connection::starting_at(attributes.policy, attributes.send_psn, attributes.receive_psn);
        if let Some(paths) = paths {
            self.connection.set_paths(paths);
        }
        Ok(())
    }

    /// RTR to RTS: may send.
    pub fn open(&mut self) -> Result<(), InvalidQpTransition> {
        self.transition(QpTransition::Open)
    }

    /// Back to RESET. Posted requests are dropped without completions.
    pub fn clear(&mut self) -> Result<(), InvalidQpTransition> {
        self.state.after(QpTransition::Clear)?;
        *self = Self::new(self.number);
        Ok(())
    }

    /// To ERROR: posted requests complete as flushed.
    pub fn fail(&mut self) -> Result<(), InvalidQpTransition> {
        self.state.after(QpTransition::Fail)?;
        self.enter_error(QpError::Flushed, QpError::Flushed);
        Ok(())
    }

    /// Enters ERROR. The first request of each kind completes with the given error, the others as flushed.
    fn enter_error(&mut self, mut send: QpError, mut receive: QpError) {
        if self.transition(QpTransition::Fail).is_err() {
            return;
        }
        self.connection.abandon();
        self.early.clear();
        while let Some(id) = self.requester.flush() {
            let failure = std::mem::replace(&mut send, QpError::Flushed);
            self.completions.push_back(WorkCompletion::SendFailed { id, failure });
        }
        while let Some(id) = self.responder.flush() {
            let failure = std::mem::replace(&mut receive, QpError::Flushed);
            self.completions.push_back(WorkCompletion::ReceiveFailed { id, failure });
        }
    }

    /// Posts a send or a write of this many bytes. `id` comes back with the completion; until then the bytes must not change.
    pub fn post_send(
        &mut self,
        now: Time,
        id: u64,
        length: u32,
        operation: QpOperation,
        out: &mut impl FnMut(Transmit),
    ) -> Result<(), QpPostError> {
        self.post_send_with_ack(now, (id, length, operation), AckRequest::Periodic, out)
    }

    /// As [`Self::post_send`]; with [`AckRequest::Immediate`] the end of the message requests an acknowledgement, even if the policy
    /// delays those of short messages.
    pub fn post_send_with_ack(
        &mut self,
        now: Time,
        (id, length, operation): (u64, u32, QpOperation),
        ask: AckRequest,
        out: &mut impl FnMut(Transmit),
    ) -> Result<(), QpPostError> {
        if self.state != QpState::ReadyToSend {
            return Err(QpPostError::State(self.state));
        }
        if self.requester.len() >= MAX_POSTED_REQUESTS {
            return Err(QpPostError::Full);
        }
        if length > MAX_QP_MESSAGE_BYTES {
            return Err(QpPostError::TooLong { length });
        }
        self.requester.post(id, length, operation, ask);
        self.pump(now, out);
        Ok(())
    }

    /// Posts a buffer of this many bytes for the next message.
    pub fn post_receive(&mut self, id: u64, length: u32) -> Result<(), QpPostError> {
        if matches!(self.state, QpState::Reset | QpState::Error) {
            return Err(QpPostError::State(self.state));
        }
        if self.responder.posted() >= MAX_POSTED_REQUESTS {
            return Err(QpPostError::Full);
        }
        self.responder.post(id, length);
        Ok(())
    }

    /// Whether a message is partly received.
    pub fn is_receiving(&self) -> bool {
        self.responder.is_receiving()
    }

    /// The next completion.
    pub fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.completions.pop_front()
    }

    /// The next event of its paths.
    pub fn poll_path_event(&mut self) -> Option<PathEvent> {
        self.connection.paths_mut()?.poll_event()
    }

    /// Hands packets to the connection as far as its window allows: no more, or a long message would be segmented all at once.
    fn pump(&mut self, now: Time, out: &mut impl FnMut(Transmit)) {
        let window = usize::from(self.attributes.policy.window);
        while self.connection.outstanding() < window {
            let Some(segment) = self.requester.next_packet(self.attributes.mtu) else { break };
            // The sender waits for the end of a message, and no later packet may request an acknowledgement (P-5). A few messages may be
            // acknowledged later, if the policy allows it.
            let may_wait = self.attributes.policy.acknowledge_after.is_some()
                && match segment.ask {
                    AckRequest::Immediate => false,
                    AckRequest::Periodic => self.requester.sent() <= MAX_UNREQUESTED_ACKS,
                    AckRequest::Deferred => true,
                };
            let asks = segment.opcode.ends_message() && !may_wait;
            let ask = if asks { AckRequest::Immediate } else { AckRequest::Periodic };
            let mut out = with_headers(self.attributes, self.responder.messages(), out);
            self.connection.send(now, segment, ask, &mut out);
        }
    }

    /// Handles a packet for this queue pair whose ICRC was correct.
    pub fn handle_packet(
        &mut self,
        now: Time,
        path: PathId,
        headers: &PacketHeaders,
        payload: &[u8],
        memory: &mut impl QpMemory,
        out: &mut impl FnMut(Transmit),
    ) {
        if !matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend) {
            self.dropped.wrong_state += 1;
            return;
        }
        if headers.bth.partition != self.attributes.partition {
            self.dropped.wrong_partition += 1;
            return;
        }
        // No layer above would verify the bytes that the packet's check does not cover.
        if !headers.bth.coverage.covers_at_least(self.attributes.coverage) {
            self.dropped.malformed += 1;
            return;
        }
        #[cfg(feature = "sabotage")]
        self.apply_sabotage();
        let arrival = FramePath { path, migration: migration_bit(headers) };
        if is_request(headers.bth.opcode) {
            self.handle_request(now, arrival, headers, payload, memory, out);
        } else if let Some(frame) = control_frame(headers) {
            self.handle_control(now, arrival, &frame, out);
        } else {
            self.dropped.malformed += 1;
        }
    }

    fn handle_control(
        &mut self,
        now: Time,
        arrival: FramePath,
        frame: &Frame<PacketDescriptor>,
        out: &mut impl FnMut(Transmit),
    ) {
        self.connection.handle_control(
            now,
            arrival,
            frame,
            &mut with_headers(self.attributes, self.responder.messages(), out),
        );
        if let Frame::FatalNak { psn, cause } = frame {
            // A NAK for a packet that is not in flight is old or malformed (P-6).
            let ahead = psn.distance_from(self.connection.first_unacknowledged()) as usize;
            if ahead < self.connection.outstanding() {
                self.complete_sends();
                self.enter_error(QpError::Rejected(*cause), QpError::Flushed);
            }
            return;
        }
        self.complete_sends();
        self.pump(now, out);
    }

    fn complete_sends(&mut self) {
        while let Some(id) = self.requester.complete(self.connection.first_unacknowledged()) {
            self.completions.push_back(WorkCompletion::Sent { id });
        }
    }

    fn handle_request(
        &mut self,
        now: Time,
        arrival: FramePath,
        headers: &PacketHeaders,
        payload: &[u8],
        memory: &mut impl QpMemory,
        out: &mut impl FnMut(Transmit),
    ) {
        let (psn, wants_ack) = (headers.bth.psn, headers.bth.acknowledge);
        let place = self.connection.classify(
            now,
            arrival,
            psn,
            &mut with_headers(self.attributes, self.responder.messages(), out),
        );
        match place {
            PsnPosition::Expected => {
                if self.accept(arrival, headers, payload, memory, out) {
                    self.early.remove(&psn.get()); // Buffered when no receive was posted for it.
                    let more = self.accept_early(arrival, memory, out);
                    if (wants_ack || more) && self.state != QpState::Error {
                        let mut out = with_headers(self.attributes, self.responder.messages(), out);
                        self.connection.acknowledge(arrival, &mut out);
                    } else {
                        self.connection.acknowledge_later(now);
                    }
                }
            }
            PsnPosition::Ahead(distance) => {
                // Packets longer than the agreed MTU are not buffered, and of long packets fewer.
                let mtu = self.attributes.mtu;
                if payload.len() as u32 <= mtu && distance <= MAX_REORDER_PACKETS * MAX_MTU / mtu.max(MAX_MTU) {
                    self.early.insert(psn.get(), OutOfOrderPacket { headers: *headers, payload: payload.into() });
                    let mut out = with_headers(self.attributes, self.responder.messages(), out);
                    self.connection.hold_early(arrival, distance, wants_ack, &mut out);
                }
            }
            PsnPosition::Duplicate | PsnPosition::OutOfWindow => {
                self.dropped.duplicate += u64::from(place == PsnPosition::Duplicate);
                let mut out = with_headers(self.attributes, self.responder.messages(), out);
                self.connection.discard(arrival, place, wants_ack, &mut out);
            }
        }
    }

    /// Accepts early packets that are expected now. True if there were any.
    fn accept_early(
        &mut self,
        arrival: FramePath,
        memory: &mut impl QpMemory,
        out: &mut impl FnMut(Transmit),
    ) -> bool {
        let mut any = false;
        while self.connection.holds_expected() {
            let number = self.connection.expected().get();
            let Some(held) = self.early.remove(&number) else { break };
            any = true;
            if !self.accept(arrival, &held.headers, &held.payload, memory, out) {
                // No receive is posted: it stays, until the sender retransmits it.
                self.early.insert(number, held);
                break;
            }
        }
        any
    }

    /// Accepts the expected packet; false if it was rejected.
    fn accept(
        &mut self,
        arrival: FramePath,
        headers: &PacketHeaders,
        payload: &[u8],
        memory: &mut impl QpMemory,
        out: &mut impl FnMut(Transmit),
    ) -> bool {
        match self.responder.accept(headers, payload, self.attributes.mtu, memory) {
            Ok(completion) => {
                self.completions.extend(completion);
                self.connection.accept_expected();
                true
            }
            Err(PacketRejection::NotReady(wait)) => {
                self.dropped.no_receive += 1;
                let mut out = with_headers(self.attributes, self.responder.messages(), out);
                self.connection.send_rnr_nak(arrival, wait, &mut out);
                false
            }
            Err(PacketRejection::Fatal(cause, failure)) => {
                let mut out = with_headers(self.attributes, self.responder.messages(), out);
                self.connection.send_fatal_nak(arrival, cause, &mut out);
                self.enter_error(QpError::Flushed, failure);
                false
            }
        }
    }

    /// A packet arrived over a path with a wrong ICRC.
    pub fn handle_damage(&mut self, now: Time, path: PathId, out: &mut impl FnMut(Transmit)) {
        self.connection.handle_path_damage(
            now,
            path,
            &mut with_headers(self.attributes, self.responder.messages(), out),
        );
    }

    /// The driver reports that a path is down.
    pub fn handle_path_down(&mut self, now: Time, path: PathId, out: &mut impl FnMut(Transmit)) {
        self.connection.handle_path_down(
            now,
            path,
            &mut with_headers(self.attributes, self.responder.messages(), out),
        );
    }

    /// The driver reports that a path is up again.
    pub fn handle_path_up(&mut self, now: Time, path: PathId) {
        self.connection.handle_path_up(now, path);
    }

    /// The driver suspects a path: probe it at once.
    pub fn suspect_path(&mut self, now: Time, path: PathId) {
        self.connection.suspect_path(now, path);
    }

    /// Loads an alternate path; [`PathEvent::Armed`] follows when it is ready.
    pub fn load_path(&mut self, now: Time, path: PathId) -> Result<(), LoadPathError> {
        self.connection.load_path(now, path)
    }

    /// Moves traffic to the armed alternate.
    pub fn migrate(&mut self, now: Time, out: &mut impl FnMut(Transmit)) -> Result<(), InvalidPathTransition> {
        self.connection.migrate(now, &mut with_headers(self.attributes, self.responder.messages(), out))
    }

    /// When [`Self::handle_timeout`] is due; none if nothing is pending.
    pub fn deadline(&self) -> Option<Time> {
        if matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend) {
            self.connection.deadline()
        } else {
            None
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Time, out: &mut impl FnMut(Transmit)) {
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        let messages = self.responder.messages();
        if let Err(exhausted) = self.connection.handle_timeout(now, &mut with_headers(self.attributes, messages, out))
        {
            self.enter_error(QpError::Unreachable(exhausted), QpError::Flushed);
        }
    }
}
