//! What a port has with one peer, and how it sends: letters, then pieces, then bare answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use checksum::TargetCache;
use units::{Rank, Span};

use super::endpoint::{EndpointShared, InPlaceBuffers, MessageCompletion, MessagingAction, PeerLossCause};
use super::fragment_sizer::{FragmentRange, FragmentSizer, PipelineSpeeds};
use super::fragments::{FragmentChecksum, IncomingTransfer, NextFragment, OutgoingTransfer, PreparedFragment};
use super::matching::{MessageContents, ReceiveId, SendId};
use super::packet::{BodyKind, ControlMessage, MESSAGE_HEADER_BYTES, MessageHeader, is_inline};
use super::rails::{PacketLoad, RailIndex, RailPacketId, Rails};
use super::unacked_log::{BatchMessages, ReorderBuffer, ResendOutcome, UnackedLog};
use super::{CONTROL_MESSAGE_COST_BYTES, CONTROL_WINDOW, REPAIR_WINDOW, REPLY_WINDOW, checksum_policy};
use crate::BufferSlice;
use crate::connection::AckRequest;

/// A send of which nothing has gone out.
#[derive(Debug)]
pub(super) struct QueuedSend {
    pub(super) id: SendId,
    pub(super) tag: u64,
    pub(super) data: Vec<u8>,
}

/// Parcels under way on a rail beyond which not even answers go out.
const MAX_IN_FLIGHT_PACKETS: usize = 64;
/// Chunks to one peer that are sealed before they are asked for, where that takes no room.
const MAX_CHECKSUMMED_AHEAD: usize = 8;
/// Answers that may wait to be sent.
const MAX_QUEUED_REPLIES: usize = 4 * CONTROL_WINDOW as usize;

#[derive(Debug)]
pub(super) struct MessagingPeer {
    pub(super) rank: Rank,
    pub(super) lost: Option<PeerLossCause>,
    pub(super) rails: Rails,
    /// The peer is asked to confirm everything, and has been for letters below.
    pub(super) is_draining: bool,
    asked: u64,
    // Outwards.
    pub(super) queue: VecDeque<QueuedSend>,
    pub(super) urgent: VecDeque<ControlMessage<'static>>,
    pub(super) log: UnackedLog,
    pub(super) next_letter: u64,
    pub(super) confirmed: u64,
    /// What we may spend in all, and have spent.
    pub(super) granted: u64,
    pub(super) spent: u64,
    pub(super) outgoing: BTreeMap<u64, OutgoingTransfer>,
    /// Transfers that have something to send.
    pub(super) active: VecDeque<u64>,
    /// Transfers whose first chunk may be prepared, and how many are.
    unprepared: VecDeque<u64>,
    prepared: usize,
    /// From an announcement to its answer; none if not measured yet.
    round_trip: Option<Span>,
    // Inwards.
    pub(super) mailbox: ReorderBuffer,
    pub(super) incoming: BTreeMap<u64, IncomingTransfer>,
    /// What the peer may spend in all, and has spent.
    pub(super) allowed: u64,
    pub(super) used: u64,
    pub(super) owes_answer: bool,
    pub(super) spoiled_in_a_row: u32,
    told_taken: u64,
    told_allowed: u64,
    /// The parcel that was the first to tell `told_taken`.
    told_by: Option<RailPacketId>,
}

impl MessagingPeer {
    pub(super) fn new(rank: Rank, rails: u8, credit: u64) -> Self {
        Self {
            rank,
            lost: None,
            rails: Rails::new(rails),
            is_draining: false,
            asked: 0,
            queue: VecDeque::new(),
            urgent: VecDeque::new(),
            log: UnackedLog::default(),
            next_letter: 0,
            confirmed: 0,
            granted: credit,
            spent: 0,
            outgoing: BTreeMap::new(),
            active: VecDeque::new(),
            unprepared: VecDeque::new(),
            prepared: 0,
            round_trip: None,
            mailbox: ReorderBuffer::default(),
            incoming: BTreeMap::new(),
            allowed: credit,
            used: 0,
            owes_answer: false,
            spoiled_in_a_row: 0,
            told_taken: 0,
            told_allowed: credit,
            told_by: None,
        }
    }

    /// Everything has been confirmed, and the peer knows that everything of it has come: it may be waiting for that, and we
    /// may be gone in a moment.
    pub(super) fn is_drained(&self) -> bool {
        let quiet =
            self.queue.is_empty() && self.urgent.is_empty() && self.outgoing.is_empty() && self.log.is_empty();
        let has_told =
            self.told_taken == self.mailbox.taken() && !self.told_by.is_some_and(|at| self.rails.flies(at));
        quiet && has_told
    }

    /// Nothing waits to be sent, and nothing must be told.
    #[inline]
    pub(super) fn is_calm(&self, common: &EndpointShared) -> bool {
        self.queue.is_empty()
            && self.urgent.is_empty()
            && !self.log.has_repeats()
            && !self.has_more()
            && !self.is_draining
            && !self.must_answer(common)
    }

    /// Sends everything that can be sent now, except pieces.
    pub(super) fn pump(&mut self, common: &mut EndpointShared) -> Result<(), PeerLossCause> {
        self.repeat_letters(common);
        self.send_letters(common)?;
        if !self.has_pieces() {
            self.answer(common);
        }
        Ok(())
    }

    /// Whether there are messages of which pieces may go out.
    pub(super) fn has_pieces(&self) -> bool {
        !self.active.is_empty()
    }

    /// Whether there is anything that is done when the driver asks for it.
    pub(super) fn has_more(&self) -> bool {
        self.has_pieces() || !self.unprepared.is_empty()
    }

    /// Sends one piece, or what comes after the last. False if nothing went out.
    pub(super) fn send_next(
        &mut self,
        common: &mut EndpointShared,
        rooms: &mut impl InPlaceBuffers,
    ) -> Result<bool, PeerLossCause> {
        while let Some(transfer) = self.active.front().copied() {
            let wanted =
                self.outgoing.get(&transfer).filter(|outgoing| outgoing.is_ready).and_then(OutgoingTransfer::wants);
            let Some(avoid) = wanted else {
                self.active.pop_front();
                continue;
            };
            let Some(rail) = self.rails.for_piece(common.settings.depth, avoid) else { break };
            self.send_piece(common, transfer, rail, rooms)?;
            return Ok(true);
        }
        if self.answer(common) {
            return Ok(true);
        }
        while let Some(transfer) = self.unprepared.pop_front() {
            self.prepare(common, transfer, rooms);
        }
        Ok(false)
    }

    /// Numbers a parcel with a body of so many bytes, and writes its header to the front.
    pub(super) fn stamp(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        (load, body): (Option<PacketLoad>, usize),
        header: MessageHeader,
        bytes: &mut [u8],
    ) -> u64 {
        let number = self.number(common, rail, load, MESSAGE_HEADER_BYTES + body);
        let (taken, granted) = self.told();
        let header = MessageHeader { number, length: body as u32, taken, granted, ..header };
        header.write(&common.settings.sealing, bytes);
        number
    }

    /// A parcel of so many bytes goes out, and tells what has been taken; its number. Without a load it is there at once, and the
    /// driver gives nothing back.
    #[inline]
    pub(super) fn number(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        load: Option<PacketLoad>,
        bytes: usize,
    ) -> u64 {
        let number = match load {
            Some(load) => self.rails.launch(common.now, rail, load, bytes),
            None => self.rails.pass(rail),
        };
        if self.told_taken != self.mailbox.taken() {
            (self.told_taken, self.told_by) = (self.mailbox.taken(), Some((rail, number)));
        }
        self.told_allowed = self.allowed;
        self.owes_answer = false;
        common.counters.parcels += 1;
        number
    }

    /// What the last parcel told: letters taken, bytes granted.
    pub(super) fn told(&self) -> (u64, u64) {
        (self.told_taken, self.told_allowed)
    }

    /// Gives a parcel its header and hands it to the driver.
    fn transmit(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        (load, copied): (PacketLoad, usize),
        header: MessageHeader,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let body = bytes.len() - MESSAGE_HEADER_BYTES;
        let number = self.stamp(common, rail, (Some(load), body), header, &mut bytes);
        common.duties.push_back(MessagingAction::Transmit { to: self.rank, rail, bytes, copied: copied as u32 });
        number
    }

    /// P-86: what came spoiled goes out again from the log. It is resealed only if it is still what was sealed, or can be
    /// written again.
    fn repeat_letters(&mut self, common: &mut EndpointShared) {
        while let Some(avoid) = self.log.next_repeat() {
            let Some(rail) = self.rails.for_letters(MAX_IN_FLIGHT_PACKETS, Some(avoid)) else { break };
            let Some((first, bytes)) = self.log.take_repeat() else { break };
            common.counters.repeated += 1;
            let number = if is_inline(&bytes) && Self::is_intact_brief(common, &bytes) {
                self.repeat_brief(common, rail, first, bytes)
            } else {
                let (header, bytes) = match verified_header(common, &bytes) {
                    Some(header) => (header, bytes),
                    None => self.write_again(common, first, bytes),
                };
                let copied = bytes.len() - MESSAGE_HEADER_BYTES;
                self.transmit(common, rail, (PacketLoad::Letters(first), copied), header, bytes)
            };
            self.log.moved(first, (rail, number));
        }
    }

    /// A parcel was spoiled where it waited. What it told is known from elsewhere; of a message it is known that it is lost.
    fn write_again(&self, common: &EndpointShared, first: u64, mut bytes: Vec<u8>) -> (MessageHeader, Vec<u8>) {
        let letters = self.log.letters(first);
        bytes.clear();
        bytes.resize(MESSAGE_HEADER_BYTES, 0);
        letters.iter().for_each(|letter| letter.append_to(&mut bytes));
        let choice = common.settings.sealing.choice(bytes.len() - MESSAGE_HEADER_BYTES);
        let seal = checksum_policy::value(choice, &bytes[MESSAGE_HEADER_BYTES..]);
        (
            MessageHeader {
                letter: first,
                letters: letters.len() as u32,
                ..header_template(BodyKind::Letters, choice, seal)
            },
            bytes,
        )
    }

    fn send_letters(&mut self, common: &mut EndpointShared) -> Result<(), PeerLossCause> {
        if self.urgent.len() > MAX_QUEUED_REPLIES {
            return Err(PeerLossCause::Garbage);
        }
        while !(self.urgent.is_empty() && self.queue.is_empty())
            && let Some(rail) = self.rails.for_letters(common.settings.letter_depth, None)
        {
            if self.may_answer() {
                self.gather(common, rail);
                continue;
            }
            if !self.may_send(&common.settings) {
                break;
            }
            let alone = self.queue.len() == 1 || self.queue[0].data.len() > common.settings.gather_bytes as usize;
            if alone && self.queue[0].data.len() <= common.settings.eager_bytes as usize {
                self.send_message(common, rail);
            } else {
                self.gather(common, rail);
            }
        }
        Ok(())
    }

    pub(super) fn unconfirmed(&self) -> u64 {
        self.next_letter - self.confirmed
    }

    /// Whether the first answer may be sent (P-85).
    fn may_answer(&self) -> bool {
        self.urgent.front().is_some_and(|letter| {
            let window = match letter {
                ControlMessage::Again { .. } | ControlMessage::Closed { .. } => REPAIR_WINDOW,
                _ => REPLY_WINDOW,
            };
            self.unconfirmed() < window
        })
    }

    /// Whether the first message may be sent: the peer has room for it (P-81).
    fn may_send(&self, settings: &super::MessagingSettings) -> bool {
        self.queue.front().is_some_and(|queued| {
            self.unconfirmed() < CONTROL_WINDOW
                && self.spent + credit_cost(queued.data.len(), settings) <= self.granted
        })
    }

    /// One message by itself, copied and sealed in one pass.
    fn send_message(&mut self, common: &mut EndpointShared, rail: RailIndex) {
        let Some(queued) = self.queue.pop_front() else { return };
        if Self::is_brief(common, queued.data.len()) {
            return self.send_brief(common, rail, queued);
        }
        let QueuedSend { id, tag, data } = queued;
        let length = data.len() as u64;
        let choice = common.settings.sealing.choice(data.len());
        let mut bytes = common.buffer(MESSAGE_HEADER_BYTES + data.len());
        let seal = checksum_policy::copy(choice, &data, &mut bytes[MESSAGE_HEADER_BYTES..]);
        self.spent += credit_cost(data.len(), &common.settings);
        common.completions.push_back(MessageCompletion::Sent { id, buffer: data });
        let header = MessageHeader { detail: tag, ..header_template(BodyKind::Message, choice, seal) };
        let letters = BatchMessages::One(ControlMessage::Lost { tag, length });
        self.send_batch(common, rail, MessageHeader { letters: 1, ..header }, bytes, letters);
    }

    /// Answers, and small messages behind them, in one parcel.
    fn gather(&mut self, common: &mut EndpointShared, rail: RailIndex) {
        let settings = common.settings;
        let most = MESSAGE_HEADER_BYTES + settings.gathered_bytes as usize;
        let mut bytes = common.buffer(MESSAGE_HEADER_BYTES);
        let mut letters = 0;
        let mut announced = Vec::new();
        let mut kept = Vec::new();
        while self.may_answer() && bytes.len() + self.urgent[0].size() <= most {
            let Some(letter) = self.urgent.pop_front() else { break };
            letter.append_to(&mut bytes);
            kept.push(letter);
            self.next_letter += 1;
            letters += 1;
        }
        while self.may_send(&settings) {
            let queued = &self.queue[0];
            let is_long = queued.data.len() > settings.eager_bytes as usize;
            let letter = if is_long {
                ControlMessage::Announce { tag: queued.tag, length: queued.data.len() as u64 }
            } else {
                ControlMessage::Message { tag: queued.tag, data: &queued.data }
            };
            let is_large = !is_long && queued.data.len() > settings.gather_bytes as usize;
            if is_large || bytes.len() + letter.size() > most {
                break;
            }
            letter.append_to(&mut bytes);
            self.spent += credit_cost(queued.data.len(), &settings);
            let Some(QueuedSend { id, tag, data }) = self.queue.pop_front() else { break };
            if is_long {
                kept.push(ControlMessage::Announce { tag, length: data.len() as u64 });
                announced.push((self.next_letter, id, data));
            } else {
                kept.push(ControlMessage::Lost { tag, length: data.len() as u64 });
                common.completions.push_back(MessageCompletion::Sent { id, buffer: data });
                common.counters.gathered += 1;
            }
            self.next_letter += 1;
            letters += 1;
        }
        let choice = settings.sealing.choice(bytes.len() - MESSAGE_HEADER_BYTES);
        let seal = checksum_policy::value(choice, &bytes[MESSAGE_HEADER_BYTES..]);
        self.next_letter -= u64::from(letters); // They are counted where the parcel is.
        let header = MessageHeader { letters, ..header_template(BodyKind::Letters, choice, seal) };
        self.send_batch(common, rail, header, bytes, BatchMessages::Several(kept));
        for (transfer, id, data) in announced {
            self.begin(common, transfer, id, data);
        }
    }

    fn send_batch(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        header: MessageHeader,
        bytes: Vec<u8>,
        letters: BatchMessages,
    ) {
        let (first, count) = (self.next_letter, u64::from(header.letters));
        self.next_letter += count;
        let header = MessageHeader { letter: first, ..header };
        let copied = bytes.len() - MESSAGE_HEADER_BYTES;
        let number = self.transmit(common, rail, (PacketLoad::Letters(first), copied), header, bytes);
        self.log.sweep(|bytes| common.recycle(bytes));
        self.log.add(first, (rail, number), letters);
    }

    /// A long message has been announced.
    fn begin(&mut self, common: &mut EndpointShared, transfer: u64, id: SendId, data: Vec<u8>) {
        let settings = common.settings;
        let speeds = PipelineSpeeds {
            copy: settings.copy_speed,
            network: self.rails.speed(),
            round_trip: self.round_trip.unwrap_or(settings.first_round_trip),
        };
        let chunks = FragmentSizer::new(&settings, &speeds, data.len() as u64);
        self.outgoing.insert(transfer, OutgoingTransfer::new(common.now, id, data, chunks));
        if settings.prepared > 0 {
            self.unprepared.push_back(transfer);
        }
    }

    /// While the peer looks for a buffer, the first chunk is copied (CK-7). Chunks that are sent from where they lie are only looked
    /// at, which takes no room: as many as there is time for.
    fn prepare(&mut self, common: &mut EndpointShared, transfer: u64, rooms: &impl InPlaceBuffers) {
        let settings = common.settings;
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return };
        let (most, most_of_one) =
            if rooms.borrows() { (MAX_CHECKSUMMED_AHEAD, MAX_CHECKSUMMED_AHEAD) } else { (settings.prepared, 1) };
        while !outgoing.is_ready
            && self.prepared < most
            && outgoing.prepared.len() < most_of_one
            && let Some(stretch) = outgoing.chunks.next_ahead(&settings)
        {
            self.prepared += 1;
            common.counters.prepared_bytes += u64::from(stretch.length);
            outgoing.prepared.push_back(prepare_fragment(common, &outgoing.data, stretch, rooms.borrows()));
        }
    }

    /// The peer has a buffer for a message. Its answer is as late as its user was, so a long round trip is believed slowly.
    pub(super) fn make_ready(&mut self, common: &EndpointShared, transfer: u64) -> Result<(), PeerLossCause> {
        let outgoing = self.outgoing.get_mut(&transfer).ok_or(PeerLossCause::Senseless)?;
        outgoing.is_ready = true;
        let sample = common.now.since(outgoing.announced);
        let longest = |old: Span| old + old.divided_by(8);
        self.round_trip = Some(self.round_trip.map_or(sample, |old| sample.min(longest(old))));
        self.active.push_back(transfer);
        Ok(())
    }

    /// A message was not wanted: what was copied of it goes back.
    pub(super) fn forget_prepared(&mut self, common: &mut EndpointShared, prepared: VecDeque<PreparedFragment>) {
        self.prepared -= prepared.len();
        prepared.into_iter().for_each(|prepared| common.recycle(prepared.parcel));
    }

    fn send_piece(
        &mut self,
        common: &mut EndpointShared,
        transfer: u64,
        rail: RailIndex,
        rooms: &mut impl InPlaceBuffers,
    ) -> Result<(), PeerLossCause> {
        let share = self.rails.share(rail);
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return Ok(()) };
        let Some(next) = outgoing.next(&common.settings, share) else { return Ok(()) };
        let (stretch, tries) = match &next {
            NextFragment::Prepared(prepared) => (prepared.stretch, 0),
            NextFragment::Fresh(stretch) => (*stretch, 0),
            NextFragment::Again(stretch, tries, _) => (*stretch, *tries),
        };
        let data = Arc::clone(&outgoing.data);
        let (from, length) = (stretch.offset as usize, stretch.length as usize);
        let bytes = &data[from..from + length];
        if let NextFragment::Again(.., sealed) = &next {
            // It would be sealed anew: if the buffer itself was spoiled meanwhile, wrong data would look right.
            if fragment_checksum(common, bytes) != *sealed {
                return Err(PeerLossCause::SpoiledHere);
            }
            common.counters.repeated += 1;
        }
        let header = |sealed: FragmentChecksum| MessageHeader {
            letter: transfer,
            detail: stretch.offset,
            algorithm: sealed.algorithm,
            ..header_template(BodyKind::Piece, None, sealed.value)
        };
        let (number, sealed) = if !matches!(next, NextFragment::Prepared(_))
            && let Some(room) = rooms.room(self.rank, rail, MESSAGE_HEADER_BYTES + length)
        {
            let choice = common.settings.sealing.choice(length);
            let value =
                checksum_policy::copy_to(choice, bytes, &mut room[MESSAGE_HEADER_BYTES..], TargetCache::Others);
            let sealed = FragmentChecksum { algorithm: checksum_policy::algorithm_number(choice), value };
            let number = self.stamp(common, rail, (Some(PacketLoad::Piece), length), header(sealed), room);
            common.duties.push_back(MessagingAction::Written {
                to: self.rank,
                rail,
                length: MESSAGE_HEADER_BYTES + length,
            });
            (number, sealed)
        } else {
            let (prepared, copied) = match next {
                NextFragment::Prepared(prepared) => {
                    self.prepared -= 1;
                    (prepared, 0)
                }
                NextFragment::Fresh(_) | NextFragment::Again(..) => {
                    (prepare_fragment(common, &data, stretch, rooms.borrows()), length)
                }
            };
            let PreparedFragment { parcel: mut head, sealed, .. } = prepared;
            if head.len() > MESSAGE_HEADER_BYTES {
                (self.transmit(common, rail, (PacketLoad::Piece, copied), header(sealed), head), sealed)
            } else {
                let number = self.stamp(common, rail, (Some(PacketLoad::Piece), length), header(sealed), &mut head);
                let body = BufferSlice::new(&data, from..from + length);
                // Before it must stop for that; and at the end, when the user wants the bytes back.
                let is_last = self.outgoing.get(&transfer).is_none_or(|outgoing| outgoing.wants().is_none());
                let is_half_full = self.rails.pieces(rail).is_multiple_of(common.settings.depth.div_ceil(2));
                let ask = if is_last || is_half_full { AckRequest::Now } else { AckRequest::Later };
                common.duties.push_back(MessagingAction::Lend { to: self.rank, rail, head, body, ask });
                (number, sealed)
            }
        };
        if let Some(outgoing) = self.outgoing.get_mut(&transfer) {
            outgoing.fly((rail, number), stretch, tries, sealed);
        }
        Ok(())
    }

    /// Whether the peer should soon know what has been taken.
    #[inline]
    fn must_answer(&self, common: &EndpointShared) -> bool {
        self.owes_answer
            || self.allowed - self.told_allowed >= common.settings.credit_bytes / 4
            || self.mailbox.taken() - self.told_taken >= CONTROL_WINDOW / 4
    }

    /// Tells what has been taken if the peer should know, and nothing else has told it. False if there was no need.
    fn answer(&mut self, common: &mut EndpointShared) -> bool {
        let is_due = self.must_answer(common) || (self.is_draining && self.told_taken != self.mailbox.taken());
        let asks = self.is_draining && self.asked < self.next_letter && !self.log.is_empty();
        if !is_due && !asks {
            return false;
        }
        let Some(rail) = self.rails.for_letters(MAX_IN_FLIGHT_PACKETS, None) else { return false };
        let bytes = common.buffer(MESSAGE_HEADER_BYTES);
        let choice = common.settings.sealing.choice(0);
        let header = MessageHeader {
            wants_answer: asks,
            ..header_template(BodyKind::Bare, choice, checksum_policy::value(choice, &[]))
        };
        self.transmit(common, rail, (PacketLoad::Bare, 0), header, bytes);
        if asks {
            self.asked = self.next_letter;
        }
        true
    }

    /// The driver gives a parcel back.
    pub(super) fn landed(&mut self, common: &mut EndpointShared, rail: RailIndex, bytes: Vec<u8>) {
        let needless = match self.rails.land(common.now, rail) {
            Some((number, PacketLoad::Letters(first))) => self.log.give_back(first, (rail, number), bytes),
            _ => Some(bytes),
        };
        needless.into_iter().for_each(|bytes| common.recycle(bytes));
    }

    /// P-90: everything that went by a lost rail and is not confirmed goes by another.
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
        self.urgent.push_back(ControlMessage::Closed { rail });
        Ok(())
    }

    /// A parcel of ours came spoiled.
    pub(super) fn ask_again(&mut self, rail: RailIndex, number: u64) -> Result<(), PeerLossCause> {
        self.rails.distrust(rail);
        let mut asked = self.log.ask_again((rail, number));
        if asked == ResendOutcome::Needless {
            for (transfer, outgoing) in &mut self.outgoing {
                asked = outgoing.ask_again((rail, number));
                if asked != ResendOutcome::Needless {
                    self.active.push_back(*transfer);
                    break;
                }
            }
        }
        match asked {
            ResendOutcome::Noted => {}
            ResendOutcome::TooOften => return Err(PeerLossCause::SpoiledTooOften),
            // A bare one, or one that went by another rail meanwhile: what it told is told again.
            ResendOutcome::Needless => {
                self.owes_answer = true;
                self.asked = 0;
            }
        }
        Ok(())
    }

    /// Ends everything; what was waited for.
    pub(super) fn give_up(
        &mut self,
        cause: PeerLossCause,
    ) -> (impl Iterator<Item = (SendId, Vec<u8>)> + use<>, impl Iterator<Item = (ReceiveId, Vec<u8>)> + use<>) {
        let rails = std::mem::replace(&mut self.rails, Rails::new(0));
        let mut peer = std::mem::replace(self, Self::new(self.rank, 0, 0));
        self.lost = Some(cause);
        self.rails = rails;
        let queued = std::mem::take(&mut peer.queue).into_iter().map(|queued| (queued.id, queued.data));
        let outgoing = std::mem::take(&mut peer.outgoing).into_values();
        let outgoing = outgoing.map(|outgoing| (outgoing.id, Arc::unwrap_or_clone(outgoing.data)));
        let incoming =
            std::mem::take(&mut peer.incoming).into_values().map(|incoming| (incoming.id, incoming.buffer));
        (outgoing.chain(queued), incoming)
    }
}

/// What a message counts against the credit: a long one only its announcement.
pub(super) fn credit_cost(length: usize, settings: &super::MessagingSettings) -> u64 {
    let is_long = length > settings.eager_bytes as usize;
    CONTROL_MESSAGE_COST_BYTES + if is_long { 0 } else { length as u64 }
}

/// What a message that is received gives back.
pub(super) fn refunded_credit(contents: &MessageContents) -> u64 {
    CONTROL_MESSAGE_COST_BYTES + contents.kept()
}

/// The header of a parcel that is still what was sealed.
fn verified_header(common: &EndpointShared, parcel: &[u8]) -> Option<MessageHeader> {
    let sealing = &common.settings.sealing;
    let header = MessageHeader::read(sealing, parcel).ok()?;
    let choice = sealing.check(header.algorithm).ok()?;
    (checksum_policy::value(choice, &parcel[MESSAGE_HEADER_BYTES..]) == header.seal).then_some(header)
}

/// What bytes of this machine's memory are sealed with.
fn fragment_checksum(common: &EndpointShared, bytes: &[u8]) -> FragmentChecksum {
    let choice = common.settings.sealing.choice(bytes.len());
    FragmentChecksum {
        algorithm: checksum_policy::algorithm_number(choice),
        value: checksum_policy::value(choice, bytes),
    }
}

/// Copies and seals a piece; where the driver borrows, only seals it.
fn prepare_fragment(
    common: &mut EndpointShared,
    data: &[u8],
    stretch: FragmentRange,
    borrows: bool,
) -> PreparedFragment {
    let (from, length) = (stretch.offset as usize, stretch.length as usize);
    let bytes = &data[from..from + length];
    if borrows {
        return PreparedFragment {
            stretch,
            sealed: fragment_checksum(common, bytes),
            parcel: common.buffer(MESSAGE_HEADER_BYTES),
        };
    }
    let choice = common.settings.sealing.choice(length);
    let mut parcel = common.buffer(MESSAGE_HEADER_BYTES + length);
    let value = checksum_policy::copy(choice, bytes, &mut parcel[MESSAGE_HEADER_BYTES..]);
    PreparedFragment {
        stretch,
        parcel,
        sealed: FragmentChecksum { algorithm: checksum_policy::algorithm_number(choice), value },
    }
}

pub(super) fn header_template(
    kind: BodyKind,
    choice: Option<checksum::tuning::ChecksumChoice>,
    seal: u64,
) -> MessageHeader {
    MessageHeader {
        kind,
        algorithm: checksum_policy::algorithm_number(choice),
        wants_answer: false,
        number: 0,
        seal,
        length: 0,
        letters: 0,
        letter: 0,
        taken: 0,
        granted: 0,
        detail: 0,
    }
}
