//! The state of an endpoint for one peer, and what all its packets share: numbers, acknowledgements, credit.
//!
//! Outgoing packets in order of priority: retransmissions, control messages (`control_send`), fragments (`fragment_send`), pure
//! acknowledgements. Incoming packets: `receive_path`.

use std::collections::{BTreeMap, VecDeque};

use units::{Rank, Span};

use super::action::{InPlaceBuffers, MessagingAction};
use super::checksum_policy;
use super::completion::PeerLossCause;
use super::control_message::ControlMessage;
use super::endpoint_shared::EndpointShared;
use super::fragments::{IncomingTransfer, OutgoingTransfer};
use super::lent_buffer::SendBuffer;
use super::limits::CONTROL_WINDOW;
use super::matching::{ReceiveId, SendId};
use super::packet::{BodyKind, MESSAGE_HEADER_BYTES, MessageHeader};
use super::rails::{PacketLoad, RailIndex, RailPacketId, Rails};
use super::reorder_buffer::ReorderBuffer;
use super::unacked_log::{ResendOutcome, UnackedLog};

/// A send that has not started.
#[derive(Debug)]
pub(super) struct QueuedSend {
    pub(super) id: SendId,
    pub(super) tag: u64,
    /// Sent with the RTS of a long message; zero for none.
    pub(super) note: u128,
    pub(super) data: SendBuffer,
}

/// Packets in flight on a rail beyond which not even acknowledgements and retransmissions are sent.
pub(super) const MAX_IN_FLIGHT_PACKETS: usize = 64;

#[derive(Debug)]
pub(super) struct MessagingPeer {
    pub(super) rank: Rank,
    pub(super) lost: Option<PeerLossCause>,
    pub(super) rails: Rails,
    /// The endpoint drains: the peer must acknowledge everything. An acknowledgement was requested for messages below
    /// `ack_requested`.
    pub(super) is_draining: bool,
    ack_requested: u64,
    // Outgoing.
    pub(super) queue: VecDeque<QueuedSend>,
    /// CTS, FIN, NACK and closed rails that wait to be sent.
    pub(super) replies: VecDeque<ControlMessage<'static>>,
    pub(super) log: UnackedLog,
    pub(super) next_sequence: u64,
    /// Messages that the peer acknowledged.
    pub(super) confirmed: u64,
    /// Credit that the peer granted, and that was used, in bytes since the start.
    pub(super) granted: u64,
    pub(super) spent: u64,
    pub(super) outgoing: BTreeMap<u64, OutgoingTransfer>,
    /// Transfers with fragments to send.
    pub(super) active: VecDeque<u64>,
    /// Transfers whose first fragment may be prepared, and the number of prepared fragments.
    pub(super) unprepared: VecDeque<u64>,
    pub(super) prepared: usize,
    /// From RTS to CTS; none before the first measurement.
    pub(super) rtt: Option<Span>,
    // Incoming.
    pub(super) reorder: ReorderBuffer,
    pub(super) incoming: BTreeMap<u64, IncomingTransfer>,
    /// Credit granted to the peer, and used by it, in bytes since the start.
    pub(super) allowed: u64,
    pub(super) used: u64,
    pub(super) owes_ack: bool,
    pub(super) consecutive_corrupt: u32,
    /// The acknowledgement and the credit that the last packet carried, and the first packet with this acknowledgement.
    sent_ack: u64,
    sent_credit: u64,
    sent_ack_in: Option<RailPacketId>,
}

impl MessagingPeer {
    pub(super) fn new(rank: Rank, rails: u8, credit: u64) -> Self {
        Self {
            rank,
            lost: None,
            rails: Rails::new(rails),
            is_draining: false,
            ack_requested: 0,
            queue: VecDeque::new(),
            replies: VecDeque::new(),
            log: UnackedLog::default(),
            next_sequence: 0,
            confirmed: 0,
            granted: credit,
            spent: 0,
            outgoing: BTreeMap::new(),
            active: VecDeque::new(),
            unprepared: VecDeque::new(),
            prepared: 0,
            rtt: None,
            reorder: ReorderBuffer::default(),
            incoming: BTreeMap::new(),
            allowed: credit,
            used: 0,
            owes_ack: false,
            consecutive_corrupt: 0,
            sent_ack: 0,
            sent_credit: credit,
            sent_ack_in: None,
        }
    }

    /// The peer acknowledged everything, and received the acknowledgement of everything it sent: it may wait for that, and this
    /// process may exit in a moment.
    pub(super) fn is_drained(&self) -> bool {
        let quiet =
            self.queue.is_empty() && self.replies.is_empty() && self.outgoing.is_empty() && self.log.is_empty();
        let has_acked = self.sent_ack == self.reorder.received()
            && !self.sent_ack_in.is_some_and(|packet| self.rails.is_in_flight(packet));
        quiet && has_acked
    }

    /// Nothing waits to be sent, and no acknowledgement is due.
    #[inline]
    pub(super) fn is_idle(&self, shared: &EndpointShared) -> bool {
        self.queue.is_empty()
            && self.replies.is_empty()
            && !self.log.has_resends()
            && !self.has_deferred_work()
            && !self.is_draining
            && !self.is_ack_due(shared)
    }

    /// Sends everything that can be sent now, except fragments.
    pub(super) fn pump(&mut self, shared: &mut EndpointShared) -> Result<(), PeerLossCause> {
        self.resend_control(shared);
        self.send_control(shared)?;
        if !self.has_fragments() {
            self.send_ack(shared);
        }
        Ok(())
    }

    /// Whether there are transfers with fragments to send.
    pub(super) fn has_fragments(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether there is work that is done when the driver polls for actions.
    pub(super) fn has_deferred_work(&self) -> bool {
        self.has_fragments() || !self.unprepared.is_empty()
    }

    /// Sends one fragment, or an acknowledgement after the last one. False if nothing was sent.
    pub(super) fn send_next(
        &mut self,
        shared: &mut EndpointShared,
        buffers: &mut impl InPlaceBuffers,
    ) -> Result<bool, PeerLossCause> {
        while let Some(transfer) = self.active.front().copied() {
            let ready = self.outgoing.get(&transfer).filter(|outgoing| outgoing.is_ready);
            let Some(avoid) = ready.and_then(OutgoingTransfer::wants) else {
                self.active.pop_front();
                continue;
            };
            let Some(rail) = self.rails.for_fragment(shared.settings.depth, avoid) else { break };
            self.send_fragment(shared, transfer, rail, buffers)?;
            return Ok(true);
        }
        if self.send_ack(shared) {
            return Ok(true);
        }
        while let Some(transfer) = self.unprepared.pop_front() {
            self.prepare_transfer(shared, transfer, buffers);
        }
        Ok(false)
    }

    /// Numbers a packet with a body of this many bytes, and writes its header to the start.
    pub(super) fn write_header(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        (load, body): (Option<PacketLoad>, usize),
        header: MessageHeader,
        bytes: &mut [u8],
    ) -> u64 {
        let number = self.number_packet(shared, rail, load, MESSAGE_HEADER_BYTES + body);
        let (acked, granted) = self.sent_ack_and_credit();
        let header = MessageHeader { number, length: body as u32, acked, granted, ..header };
        header.write(&shared.settings.checksum, bytes);
        number
    }

    /// Numbers a packet of this many bytes; it carries the current acknowledgement and credit. Without a load it arrives at once,
    /// and the driver returns nothing.
    #[inline]
    pub(super) fn number_packet(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        load: Option<PacketLoad>,
        bytes: usize,
    ) -> u64 {
        let number = match load {
            Some(load) => self.rails.launch(shared.now, rail, load, bytes),
            None => self.rails.number_immediate(rail),
        };
        if self.sent_ack != self.reorder.received() {
            (self.sent_ack, self.sent_ack_in) = (self.reorder.received(), Some((rail, number)));
        }
        self.sent_credit = self.allowed;
        self.owes_ack = false;
        shared.counters.packets += 1;
        number
    }

    /// The acknowledgement and the credit that the last packet carried.
    pub(super) fn sent_ack_and_credit(&self) -> (u64, u64) {
        (self.sent_ack, self.sent_credit)
    }

    /// Writes a packet's header, and hands it to the driver.
    pub(super) fn transmit(
        &mut self,
        shared: &mut EndpointShared,
        rail: RailIndex,
        (load, copied): (PacketLoad, usize),
        header: MessageHeader,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let body = bytes.len() - MESSAGE_HEADER_BYTES;
        let number = self.write_header(shared, rail, (Some(load), body), header, &mut bytes);
        shared.actions.push_back(MessagingAction::Transmit { to: self.rank, rail, bytes, copied: copied as u32 });
        number
    }

    /// Whether the peer should soon receive an acknowledgement or credit.
    #[inline]
    fn is_ack_due(&self, shared: &EndpointShared) -> bool {
        self.owes_ack
            || self.allowed - self.sent_credit >= shared.settings.credit_bytes / 4
            || self.reorder.received() - self.sent_ack >= CONTROL_WINDOW / 4
    }

    /// Sends a pure acknowledgement if one is due and no other packet carried it. False if none was needed.
    fn send_ack(&mut self, shared: &mut EndpointShared) -> bool {
        let is_due = self.is_ack_due(shared) || (self.is_draining && self.sent_ack != self.reorder.received());
        let requests_ack = self.is_draining && self.ack_requested < self.next_sequence && !self.log.is_empty();
        if !is_due && !requests_ack {
            return false;
        }
        let Some(rail) = self.rails.for_control(MAX_IN_FLIGHT_PACKETS, None) else { return false };
        let bytes = shared.buffer(MESSAGE_HEADER_BYTES);
        let choice = shared.settings.checksum.choice(0);
        let checksum = checksum_policy::value(choice, &[]);
        let header = MessageHeader { wants_ack: requests_ack, ..header_template(BodyKind::Ack, choice, checksum) };
        self.transmit(shared, rail, (PacketLoad::Ack, 0), header, bytes);
        if requests_ack {
            self.ack_requested = self.next_sequence;
        }
        true
    }

    /// The driver returns a packet.
    pub(super) fn handle_sent(&mut self, shared: &mut EndpointShared, rail: RailIndex, bytes: Vec<u8>) {
        let unneeded = match self.rails.complete(shared.now, rail) {
            Some((number, PacketLoad::Control(first))) => self.log.give_back(first, (rail, number), bytes),
            _ => Some(bytes),
        };
        unneeded.into_iter().for_each(|bytes| shared.recycle(bytes));
    }

    /// P-72: everything unacknowledged that was sent over a failed rail goes over another.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) -> Result<(), PeerLossCause> {
        if !self.rails.lose(rail) {
            return Ok(());
        }
        if !self.rails.any_live() {
            return Err(PeerLossCause::Unreachable);
        }
        self.log.lose_rail(rail);
        for (transfer, outgoing) in &mut self.outgoing {
            if outgoing.lose_rail(rail) {
                self.active.push_back(*transfer);
            }
        }
        self.replies.push_back(ControlMessage::RailClosed { rail });
        Ok(())
    }

    /// A packet arrived corrupt at the peer.
    pub(super) fn handle_nack(&mut self, rail: RailIndex, number: u64) -> Result<(), PeerLossCause> {
        self.rails.distrust(rail);
        let mut outcome = self.log.handle_nack((rail, number));
        if outcome == ResendOutcome::NotNeeded {
            for (transfer, outgoing) in &mut self.outgoing {
                outcome = outgoing.handle_nack((rail, number));
                if outcome != ResendOutcome::NotNeeded {
                    self.active.push_back(*transfer);
                    break;
                }
            }
        }
        match outcome {
            ResendOutcome::Scheduled => {}
            ResendOutcome::LimitReached => return Err(PeerLossCause::RetransmitLimit),
            // A pure acknowledgement, or a packet that meanwhile went over another rail: acknowledge again.
            ResendOutcome::NotNeeded => {
                self.owes_ack = true;
                self.ack_requested = 0;
            }
        }
        Ok(())
    }

    /// Resets the peer to lost; returns the sends and receives that were pending.
    pub(super) fn abandon(
        &mut self,
        cause: PeerLossCause,
    ) -> (impl Iterator<Item = (SendId, Vec<u8>)> + use<>, impl Iterator<Item = (ReceiveId, Vec<u8>)> + use<>) {
        let rails = std::mem::replace(&mut self.rails, Rails::new(0));
        let mut peer = std::mem::replace(self, Self::new(self.rank, 0, 0));
        self.lost = Some(cause);
        self.rails = rails;
        let queued = std::mem::take(&mut peer.queue).into_iter().map(|queued| (queued.id, queued.data.into_vec()));
        let outgoing = std::mem::take(&mut peer.outgoing).into_values();
        let outgoing = outgoing.map(|outgoing| (outgoing.id, outgoing.data.into_vec()));
        let incoming = std::mem::take(&mut peer.incoming)
            .into_values()
            .map(|incoming| (incoming.id, incoming.buffer.into_vec()));
        (outgoing.chain(queued), incoming)
    }
}

/// A header with a body's checksum; the other fields are filled in later.
pub(super) fn header_template(
    kind: BodyKind,
    choice: Option<checksum::tuning::ChecksumChoice>,
    checksum: u64,
) -> MessageHeader {
    MessageHeader {
        kind,
        algorithm: checksum_policy::algorithm_number(choice),
        wants_ack: false,
        number: 0,
        checksum,
        length: 0,
        messages: 0,
        sequence: 0,
        acked: 0,
        granted: 0,
        detail: 0,
    }
}
