//! A queue pair: messages and remote writes of any length over a reliable connection that outlives its path.
//!
//! In: posted requests, packets, time. Out: packets to transmit (headers, and which bytes of which buffer follow them),
//! bytes put into [`QpMemory`], completions. Rules: docs/protocol.md P-27 to P-40; IB specification 9.7 and 10.3.
//!
//! It speaks to other ends of ours and to any verbs peer (RC over RoCEv2). It never copies payload except packets that
//! come early, of which it keeps a bounded number.

mod requester;
mod responder;
mod state;
#[cfg(test)]
mod tests;
mod work_request;

use std::collections::{BTreeMap, VecDeque};

use units::limits::{MAX_MTU, MAX_REORDER_PACKETS, is_valid_mtu};
use units::{PathId, Psn, QpNumber, Time};
use wire::{Bth, IcrcCoverage, PacketHeaders, PartitionKey};

pub use requester::PacketDescriptor;
pub use responder::QpMemory;
pub use state::{InvalidQpTransition, QP_TRANSITIONS, QpState, QpTransition};
pub use work_request::{QpError, QpOperation, QpPostError, WorkCompletion};

use crate::connection::path::{InvalidPathTransition, LoadPathError, PathEvent};
use crate::connection::{
    AckRequest, Connection, ConnectionPolicy, Frame, FramePath, FramePurpose, OutgoingFrame, Paths, PsnPosition,
    control_frame, control_headers, migration_bit,
};
use requester::Requester;
use responder::{PacketRejection, Responder, is_request};

/// Requests of each kind that may be posted at once.
pub const MAX_POSTED_REQUESTS: usize = 1 << 14;
/// Packets under way beyond which the end of every message asks for an acknowledgement, unless others will.
pub(crate) const MAX_UNREQUESTED_ACKS: usize = 7;
/// The longest message (IB specification, 9.7.1).
pub const MAX_QP_MESSAGE_BYTES: u32 = 1 << 31;

/// What both ends must agree on, told out of band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttributes {
    /// The other end's number.
    pub remote: QpNumber,
    /// The number of the first packet sent from here.
    pub send_psn: Psn,
    /// The number of the first packet sent from there.
    pub receive_psn: Psn,
    /// Most payload of a packet: a power of two, 256 to 4096 bytes; to an end of ours up to 62 KiB.
    pub mtu: u32,
    /// What the checks of packets cover that are longer than InfiniBand's (P-99).
    pub coverage: IcrcCoverage,
    /// The partition of both.
    pub partition: PartitionKey,
    /// How the connection behaves.
    pub policy: ConnectionPolicy,
}

/// Ways to break a queue pair on purpose.
#[cfg(feature = "sabotage")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QpSabotage {
    /// Forgets after its first migration that it has the last packet.
    Forget,
    /// Skips a packet after its first migration.
    Skip,
}

/// A packet to transmit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// Its headers.
    pub headers: PacketHeaders,
    /// Which bytes follow them; none for control packets.
    pub segment: Option<PacketDescriptor>,
    /// Over which path.
    pub path: PathId,
    /// Why.
    pub purpose: FramePurpose,
}

/// Packets that were dropped, by cause.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DropCounters {
    /// Came in a state in which nothing is taken.
    pub untimely: u64,
    /// Of another partition.
    pub foreign: u64,
    /// Of a kind that has no meaning here.
    pub senseless: u64,
    /// Came before.
    pub repeated: u64,
    /// Came when no receive was posted; the sender was asked to wait.
    pub unready: u64,
}

/// A packet that came early.
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
    contract: QpAttributes,
    connection: Connection<PacketDescriptor>,
    requester: Requester,
    responder: Responder,
    held: BTreeMap<u32, OutOfOrderPacket>,
    completions: VecDeque<WorkCompletion>,
    dropped: DropCounters,
    /// How it will break.
    #[cfg(feature = "sabotage")]
    sabotage: Option<QpSabotage>,
}

impl QueuePair {
    /// A queue pair in state RESET.
    pub fn new(number: QpNumber) -> Self {
        let contract = QpAttributes {
            remote: QpNumber(0),
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            mtu: MAX_MTU,
            coverage: IcrcCoverage::Whole,
            partition: PartitionKey::DEFAULT,
            policy: ConnectionPolicy::datagram(),
        };
        Self {
            state: QpState::Reset,
            number,
            connection: Connection::new(contract.policy),
            requester: Requester::new(contract.send_psn),
            responder: Responder::default(),
            held: BTreeMap::new(),
            completions: VecDeque::new(),
            dropped: DropCounters::default(),
            contract,
            #[cfg(feature = "sabotage")]
            sabotage: None,
        }
    }

    /// Breaks the machine on purpose.
    #[cfg(feature = "sabotage")]
    pub fn set_sabotage(&mut self, sabotage: QpSabotage) {
        self.sabotage = Some(sabotage);
    }

    #[cfg(feature = "sabotage")]
    fn be_sabotaged(&mut self) {
        let has_moved = self.connection.paths().is_some_and(|paths| paths.migrations() > 0);
        if let Some(sabotage) = self.sabotage.take_if(|_| has_moved) {
            let expected = self.connection.expected();
            let wrong = if sabotage == QpSabotage::Forget { expected.previous() } else { expected.next() };
            self.connection.expect_wrongly(wrong);
        }
    }

    /// Its own number.
    pub fn number(&self) -> QpNumber {
        self.number
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// What was dropped so far.
    pub fn dropped(&self) -> DropCounters {
        self.dropped
    }

    /// The connection beneath.
    pub fn connection(&self) -> &Connection<PacketDescriptor> {
        &self.connection
    }

    fn go(&mut self, asked: QpTransition) -> Result<(), InvalidQpTransition> {
        self.state = self.state.after(asked)?;
        Ok(())
    }

    /// RESET to INIT: receives may be posted.
    pub fn initialise(&mut self, partition: PartitionKey) -> Result<(), InvalidQpTransition> {
        self.go(QpTransition::Initialise)?;
        self.contract.partition = partition;
        Ok(())
    }

    /// INIT to RTR: takes packets of the other end. Several paths may be given; their numbers mean the same at both ends.
    ///
    /// # Panics
    /// If the MTU is not one of those that there are: the caller bounds it.
    pub fn connect(&mut self, contract: QpAttributes, paths: Option<Paths>) -> Result<(), InvalidQpTransition> {
        let mtu = contract.mtu;
        assert!(is_valid_mtu(mtu), "{mtu} is no path MTU");
        self.go(QpTransition::Connect)?;
        self.contract = contract;
        self.requester = Requester::new(contract.send_psn);
        self.connection = Connection::starting_at(contract.policy, contract.send_psn, contract.receive_psn);
        if let Some(paths) = paths {
            self.connection.set_paths(paths);
        }
        Ok(())
    }

    /// RTR to RTS: may send.
    pub fn open(&mut self) -> Result<(), InvalidQpTransition> {
        self.go(QpTransition::Open)
    }

    /// Back to RESET. Whatever was posted is forgotten without a word.
    pub fn clear(&mut self) -> Result<(), InvalidQpTransition> {
        self.state.after(QpTransition::Clear)?;
        *self = Self::new(self.number);
        Ok(())
    }

    /// To ERROR: whatever was posted is given back.
    pub fn fail(&mut self) -> Result<(), InvalidQpTransition> {
        self.state.after(QpTransition::Fail)?;
        self.break_down(QpError::Flushed, QpError::Flushed);
        Ok(())
    }

    /// The first request of each kind hears why, the others that they were flushed.
    fn break_down(&mut self, mut send: QpError, mut receive: QpError) {
        if self.go(QpTransition::Fail).is_err() {
            return;
        }
        self.connection.abandon();
        self.held.clear();
        while let Some(id) = self.requester.flush() {
            let failure = std::mem::replace(&mut send, QpError::Flushed);
            self.completions.push_back(WorkCompletion::SendFailed { id, failure });
        }
        while let Some(id) = self.responder.flush() {
            let failure = std::mem::replace(&mut receive, QpError::Flushed);
            self.completions.push_back(WorkCompletion::ReceiveFailed { id, failure });
        }
    }

    /// Posts a send or a write of so many bytes. `id` is the user's and comes back with the completion; until then the
    /// bytes must stay as they are.
    pub fn post_send(
        &mut self,
        now: Time,
        id: u64,
        length: u32,
        operation: QpOperation,
        out: &mut impl FnMut(Transmit),
    ) -> Result<(), QpPostError> {
        self.post_send_asking(now, (id, length, operation), AckRequest::InTurn, out)
    }

    /// The same; where somebody waits for its completion, its end is acknowledged at once, whatever the policy says of short
    /// messages.
    pub fn post_send_asking(
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

    /// Posts a buffer of so many bytes for the next message.
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

    /// Whether a message is half received.
    pub fn is_receiving(&self) -> bool {
        self.responder.is_receiving()
    }

    /// What has ended, one at a time.
    pub fn poll_completion(&mut self) -> Option<WorkCompletion> {
        self.completions.pop_front()
    }

    /// What has happened to its paths, one at a time.
    pub fn poll_path_event(&mut self) -> Option<PathEvent> {
        self.connection.paths_mut()?.poll_event()
    }

    /// Hands packets to the connection as far as its window goes: no more, or a long message would be cut all at once.
    fn pump(&mut self, now: Time, out: &mut impl FnMut(Transmit)) {
        let window = usize::from(self.contract.policy.window);
        while self.connection.outstanding() < window {
            let Some(segment) = self.requester.cut(self.contract.mtu) else { break };
            // The end of a message is waited for by its sender, and nothing may follow that would ask (P-5). A few short ones may be
            // acknowledged later, if that is agreed.
            let (begins, ends) = (segment.opcode.begins_message(), segment.opcode.ends_message());
            let may_wait = begins
                && self.contract.policy.acknowledge_after.is_some()
                && match segment.ask {
                    AckRequest::Now => false,
                    AckRequest::InTurn => self.connection.outstanding() < MAX_UNREQUESTED_ACKS,
                    AckRequest::Later => true,
                };
            let ask = if ends && !may_wait { AckRequest::Now } else { AckRequest::InTurn };
            let mut out = framed(self.contract, self.responder.messages(), out);
            self.connection.send(now, segment, ask, &mut out);
        }
    }

    /// Takes a packet whose ICRC was right and that is addressed to this queue pair.
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
            self.dropped.untimely += 1;
            return;
        }
        if headers.bth.partition != self.contract.partition {
            self.dropped.foreign += 1;
            return;
        }
        // Nobody here would look at what the packet's check does not cover.
        if headers.bth.coverage == IcrcCoverage::Beginning && self.contract.coverage == IcrcCoverage::Whole {
            self.dropped.senseless += 1;
            return;
        }
        #[cfg(feature = "sabotage")]
        self.be_sabotaged();
        let arrival = FramePath { path, migration: migration_bit(headers) };
        if is_request(headers.bth.opcode) {
            self.handle_request(now, arrival, headers, payload, memory, out);
        } else if let Some(frame) = control_frame(headers) {
            self.handle_control(now, arrival, &frame, out);
        } else {
            self.dropped.senseless += 1;
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
            &mut framed(self.contract, self.responder.messages(), out),
        );
        if let Frame::Refusal { psn, cause } = frame {
            // One that names nothing which is under way is an old one, or nonsense (P-6).
            let ahead = psn.distance_from(self.connection.first_unacknowledged()) as usize;
            if ahead < self.connection.outstanding() {
                self.complete_sends();
                self.break_down(QpError::Refused(*cause), QpError::Flushed);
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
        let place =
            self.connection.place(now, arrival, psn, &mut framed(self.contract, self.responder.messages(), out));
        match place {
            PsnPosition::Next => {
                if self.take(arrival, headers, payload, memory, out) {
                    self.held.remove(&psn.get()); // Kept when there was no buffer for it.
                    let more = self.take_held(arrival, memory, out);
                    if (wants_ack || more) && self.state != QpState::Error {
                        let mut out = framed(self.contract, self.responder.messages(), out);
                        self.connection.acknowledge(arrival, &mut out);
                    } else {
                        self.connection.acknowledge_later(now);
                    }
                }
            }
            PsnPosition::Ahead(distance) => {
                // Nothing that is longer than agreed is kept, whoever sent it, and of long packets fewer.
                let mtu = self.contract.mtu;
                if payload.len() as u32 <= mtu && distance <= MAX_REORDER_PACKETS * MAX_MTU / mtu.max(MAX_MTU) {
                    self.held.insert(psn.get(), OutOfOrderPacket { headers: *headers, payload: payload.into() });
                    let mut out = framed(self.contract, self.responder.messages(), out);
                    self.connection.keep(arrival, distance, wants_ack, &mut out);
                }
            }
            PsnPosition::Old | PsnPosition::Beyond => {
                self.dropped.repeated += u64::from(place == PsnPosition::Old);
                let mut out = framed(self.contract, self.responder.messages(), out);
                self.connection.turn_away(arrival, place, wants_ack, &mut out);
            }
        }
    }

    /// Takes the packets that came early and whose turn it is now. True if there were any.
    fn take_held(&mut self, arrival: FramePath, memory: &mut impl QpMemory, out: &mut impl FnMut(Transmit)) -> bool {
        let mut any = false;
        while self.connection.has_next() {
            let number = self.connection.expected().get();
            let Some(held) = self.held.remove(&number) else { break };
            any = true;
            if !self.take(arrival, &held.headers, &held.payload, memory, out) {
                // Not ready: it stays, and is looked at again when the sender repeats it.
                self.held.insert(number, held);
                break;
            }
        }
        any
    }

    /// Takes the next packet; true if it was taken.
    fn take(
        &mut self,
        arrival: FramePath,
        headers: &PacketHeaders,
        payload: &[u8],
        memory: &mut impl QpMemory,
        out: &mut impl FnMut(Transmit),
    ) -> bool {
        match self.responder.take(headers, payload, self.contract.mtu, memory) {
            Ok(completion) => {
                self.completions.extend(completion);
                self.connection.take_next();
                true
            }
            Err(PacketRejection::NotReady(wait)) => {
                self.dropped.unready += 1;
                let mut out = framed(self.contract, self.responder.messages(), out);
                self.connection.not_ready(arrival, wait, &mut out);
                false
            }
            Err(PacketRejection::Refused(cause, failure)) => {
                let mut out = framed(self.contract, self.responder.messages(), out);
                self.connection.refuse(arrival, cause, &mut out);
                self.break_down(QpError::Flushed, failure);
                false
            }
        }
    }

    /// A packet came over a path and its ICRC was wrong.
    pub fn handle_damage(&mut self, now: Time, path: PathId, out: &mut impl FnMut(Transmit)) {
        self.connection.handle_path_damage(now, path, &mut framed(self.contract, self.responder.messages(), out));
    }

    /// The driver knows that a path is down.
    pub fn handle_path_down(&mut self, now: Time, path: PathId, out: &mut impl FnMut(Transmit)) {
        self.connection.handle_path_down(now, path, &mut framed(self.contract, self.responder.messages(), out));
    }

    /// The driver knows that a path is up again.
    pub fn handle_path_up(&mut self, now: Time, path: PathId) {
        self.connection.handle_path_up(now, path);
    }

    /// The driver has reason to doubt a path: it is probed at once.
    pub fn suspect_path(&mut self, now: Time, path: PathId) {
        self.connection.suspect_path(now, path);
    }

    /// Loads an alternate path: [`PathEvent::Armed`] tells when it is ready.
    pub fn load_path(&mut self, now: Time, path: PathId) -> Result<(), LoadPathError> {
        self.connection.load_path(now, path)
    }

    /// Moves traffic to the armed alternate.
    pub fn migrate(&mut self, now: Time, out: &mut impl FnMut(Transmit)) -> Result<(), InvalidPathTransition> {
        self.connection.migrate(now, &mut framed(self.contract, self.responder.messages(), out))
    }

    /// When [`Self::handle_timeout`] is due, if ever.
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
        if let Err(exhausted) = self.connection.handle_timeout(now, &mut framed(self.contract, messages, out)) {
            self.break_down(QpError::Unreachable(exhausted), QpError::Flushed);
        }
    }
}

/// Gives frames their headers.
fn framed(
    contract: QpAttributes,
    messages: u32,
    out: &mut impl FnMut(Transmit),
) -> impl FnMut(OutgoingFrame<PacketDescriptor>) {
    move |outgoing| {
        let OutgoingFrame { frame, purpose, path, migration, .. } = outgoing;
        let (mut headers, segment) = match frame {
            Frame::Data { psn, wants_ack, message } => {
                let mut headers = PacketHeaders::from(Bth::new(message.opcode, contract.remote, psn));
                headers.bth.acknowledge = wants_ack;
                if u32::from(message.length) > MAX_MTU {
                    headers.bth.coverage = contract.coverage;
                }
                headers.bth.migrated = migration == crate::connection::MigrationBit::Migrated;
                headers.reth = message.reth;
                headers.immediate = message.immediate;
                (headers, Some(message))
            }
            control => {
                let headers = control_headers(&control, contract.remote, migration, messages);
                (headers.expect("it is not data"), None)
            }
        };
        headers.bth.partition = contract.partition;
        out(Transmit { headers, segment, path, purpose });
    }
}
