//! How a peer's parcels are taken: checked, put where they belong, asked for again if spoiled.

use std::sync::Arc;

use checksum::tuning::ChecksumChoice;

use super::endpoint::{EndpointShared, MessageCompletion, MessageFailure, PeerLossCause};
use super::fragments::{IncomingTransfer, RangeCoverage, ReceivedRanges};
use super::matching::{MessageContents, UnexpectedMessage, WaitingReceive};
use super::packet::{
    BodyKind, ControlMessage, MESSAGE_HEADER_BYTES, MessageHeader, MessageHeaderError, is_inline,
    parse_control_message,
};
use super::peer::{MessagingPeer, refunded_credit};
use super::rails::RailIndex;
use super::unacked_log::{EarlyMessage, SequencePosition};
use super::{MAX_CONSECUTIVE_CORRUPT, MAX_MESSAGE_BYTES, checksum_policy};

/// The body of a parcel, not checked yet.
#[derive(Clone, Copy)]
struct UncheckedBody<'a> {
    bytes: &'a [u8],
    choice: Option<ChecksumChoice>,
    seal: u64,
}

impl UncheckedBody<'_> {
    /// Copies it; true if what was copied is what was sealed.
    fn copy(&self, to: &mut [u8]) -> bool {
        checksum_policy::copy(self.choice, self.bytes, to) == self.seal
    }

    fn is_intact(&self) -> bool {
        checksum_policy::value(self.choice, self.bytes) == self.seal
    }
}

/// What became of a parcel.
pub(super) enum ReceiveOutcome {
    Well,
    Spoiled,
}

impl MessagingPeer {
    /// Takes a parcel.
    pub(super) fn take(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        parcel: &[u8],
    ) -> Result<(), PeerLossCause> {
        // A rail that was given up here may still bring what was sent before: it counts, and is as good as any.
        let number = self.rails.came(rail).ok_or(PeerLossCause::Senseless)?;
        let taken = if is_inline(parcel) {
            self.take_brief(common, number, parcel)?
        } else {
            self.take_full(common, number, parcel)?
        };
        match taken {
            ReceiveOutcome::Well => {
                self.spoiled_in_a_row = 0;
                self.rails.trust();
            }
            ReceiveOutcome::Spoiled => {
                self.rails.distrust(rail);
                common.counters.spoiled += 1;
                self.spoiled_in_a_row += 1;
                if self.spoiled_in_a_row > MAX_CONSECUTIVE_CORRUPT {
                    return Err(PeerLossCause::Garbage);
                }
                self.urgent.push_back(ControlMessage::Again { rail, number });
            }
        }
        Ok(())
    }

    fn take_full(
        &mut self,
        common: &mut EndpointShared,
        number: u64,
        parcel: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        match MessageHeader::read(&common.settings.sealing, parcel) {
            Err(MessageHeaderError::Spoiled) => Ok(ReceiveOutcome::Spoiled),
            Ok(header) if header.number == number => self.take_body(common, &header, &parcel[MESSAGE_HEADER_BYTES..]),
            Ok(_) | Err(MessageHeaderError::Senseless) => Err(PeerLossCause::Senseless),
        }
    }

    fn take_body(
        &mut self,
        common: &mut EndpointShared,
        header: &MessageHeader,
        bytes: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        self.hear(common, header)?;
        let choice = common.settings.sealing.check(header.algorithm).map_err(|_| PeerLossCause::Senseless)?;
        let body = UncheckedBody { bytes, choice, seal: header.seal };
        match header.kind {
            BodyKind::Bare if bytes.is_empty() && body.is_intact() => Ok(ReceiveOutcome::Well),
            BodyKind::Bare => Err(PeerLossCause::Senseless),
            BodyKind::Message => self.take_message(common, header, body),
            BodyKind::Letters => self.take_letters(common, header, body),
            BodyKind::Piece => self.take_piece(common, header, body),
        }
    }

    /// What every header tells: what the peer has had, and what it grants.
    fn hear(&mut self, common: &mut EndpointShared, header: &MessageHeader) -> Result<(), PeerLossCause> {
        self.owes_answer |= header.wants_answer;
        self.hear_counts(common, header.taken, header.granted)
    }

    #[inline]
    pub(super) fn hear_counts(
        &mut self,
        common: &EndpointShared,
        taken: u64,
        granted: u64,
    ) -> Result<(), PeerLossCause> {
        if taken > self.next_letter || granted > self.spent + common.settings.credit_bytes {
            return Err(PeerLossCause::Senseless);
        }
        if taken > self.confirmed {
            self.confirmed = taken;
            self.log.confirm(taken);
        }
        self.granted = self.granted.max(granted);
        Ok(())
    }

    /// P-81: a peer that sends more than it was granted is dropped.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), PeerLossCause> {
        self.used += cost;
        if self.used > self.allowed { Err(PeerLossCause::Overdrawn) } else { Ok(()) }
    }

    /// When a letter is due; none if it has been here.
    pub(super) fn turn_of(
        &self,
        common: &mut EndpointShared,
        number: u64,
    ) -> Result<Option<SequencePosition>, PeerLossCause> {
        match self.mailbox.turn(number) {
            SequencePosition::Past => {
                common.counters.repeats_seen += 1;
                Ok(None)
            }
            SequencePosition::Beyond => Err(PeerLossCause::Senseless),
            turn @ (SequencePosition::Now | SequencePosition::Later) => Ok(Some(turn)),
        }
    }

    fn take_message(
        &mut self,
        common: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        if header.letters != 1 || body.bytes.len() > common.settings.eager_bytes as usize {
            return Err(PeerLossCause::Senseless);
        }
        let (tag, number) = (header.detail, header.letter);
        let cost = super::CONTROL_MESSAGE_COST_BYTES + body.bytes.len() as u64;
        let Some(turn) = self.turn_of(common, number)? else { return Ok(ReceiveOutcome::Well) };
        // Straight into the buffer of whoever waits for it. If it is spoiled, the receive goes on waiting.
        if turn == SequencePosition::Now
            && let Some(index) = common.matching.find(self.rank, tag)
            && let Some(room) = common.matching.buffer(index).get_mut(..body.bytes.len())
        {
            if !body.copy(room) {
                return Ok(ReceiveOutcome::Spoiled);
            }
            self.charge(cost)?;
            self.allowed += cost;
            let WaitingReceive { id, buffer, .. } = common.matching.take(index);
            let length = body.bytes.len();
            common.completions.push_back(MessageCompletion::Received { id, source: self.rank, tag, length, buffer });
            self.mailbox.advance();
        } else {
            let mut bytes = vec![0; body.bytes.len()];
            if !body.copy(&mut bytes) {
                return Ok(ReceiveOutcome::Spoiled);
            }
            self.charge(cost)?;
            self.take_contents(
                common,
                number,
                tag,
                MessageContents::Whole { bytes, choice: body.choice, seal: body.seal },
            );
        }
        self.catch_up(common);
        Ok(ReceiveOutcome::Well)
    }

    fn take_letters(
        &mut self,
        common: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        if !body.is_intact() {
            return Ok(ReceiveOutcome::Spoiled);
        }
        let mut rest = body.bytes;
        for index in 0..u64::from(header.letters) {
            let letter = parse_control_message(&mut rest).map_err(|_| PeerLossCause::Senseless)?;
            let number = header.letter.checked_add(index).ok_or(PeerLossCause::Senseless)?;
            if self.turn_of(common, number)?.is_some() {
                self.take_letter(common, number, letter)?;
            }
            self.catch_up(common);
        }
        if rest.is_empty() { Ok(ReceiveOutcome::Well) } else { Err(PeerLossCause::Senseless) }
    }

    fn take_letter(
        &mut self,
        common: &mut EndpointShared,
        number: u64,
        letter: ControlMessage<'_>,
    ) -> Result<(), PeerLossCause> {
        match letter {
            ControlMessage::Message { tag, data } => {
                if data.len() > common.settings.gather_bytes as usize {
                    return Err(PeerLossCause::Senseless);
                }
                self.charge(super::CONTROL_MESSAGE_COST_BYTES + data.len() as u64)?;
                let choice = common.settings.sealing.choice(data.len());
                let mut bytes = vec![0; data.len()];
                let seal = checksum_policy::copy(choice, data, &mut bytes);
                self.take_contents(common, number, tag, MessageContents::Whole { bytes, choice, seal });
                return Ok(());
            }
            ControlMessage::Announce { tag, length } => {
                if length > MAX_MESSAGE_BYTES {
                    return Err(PeerLossCause::Senseless);
                }
                self.charge(super::CONTROL_MESSAGE_COST_BYTES)?;
                self.take_contents(common, number, tag, MessageContents::Announced { transfer: number, length });
                return Ok(());
            }
            ControlMessage::Lost { tag, length } => {
                if length > common.settings.eager_bytes.into() {
                    return Err(PeerLossCause::Senseless);
                }
                self.charge(super::CONTROL_MESSAGE_COST_BYTES + length)?;
                self.take_contents(common, number, tag, MessageContents::Lost { length });
                return Ok(());
            }
            ControlMessage::Ready { transfer } => self.make_ready(common, transfer)?,
            ControlMessage::Done { transfer } => {
                let outgoing = self.outgoing.remove(&transfer).ok_or(PeerLossCause::Senseless)?;
                self.forget_prepared(common, outgoing.prepared);
                // The driver holds none of it any more, unless the acknowledgement of what came was lost.
                let buffer = Arc::unwrap_or_clone(outgoing.data);
                common.completions.push_back(MessageCompletion::Sent { id: outgoing.id, buffer });
            }
            ControlMessage::Again { rail, number } => self.ask_again(rail, number)?,
            ControlMessage::Closed { rail } => {
                if self.rails.is_live(rail) {
                    self.lose_rail(rail)?;
                }
            }
        }
        // These count when they come: waiting for their turn they could wait for each other (P-85).
        if self.mailbox.turn(number) == SequencePosition::Now {
            self.mailbox.advance();
        } else {
            self.mailbox.keep(number, EarlyMessage::DealtWith);
        }
        Ok(())
    }

    /// A message or an announcement, now or when its turn comes.
    pub(super) fn take_contents(
        &mut self,
        common: &mut EndpointShared,
        number: u64,
        tag: u64,
        contents: MessageContents,
    ) {
        if self.mailbox.turn(number) == SequencePosition::Now {
            self.mailbox.advance();
            self.deliver(common, tag, contents);
        } else {
            self.mailbox.keep(number, EarlyMessage::Message(tag, contents));
        }
    }

    /// Deals with letters that came before their turn.
    pub(super) fn catch_up(&mut self, common: &mut EndpointShared) {
        while let Some(early) = self.mailbox.next() {
            if let EarlyMessage::Message(tag, contents) = early {
                self.deliver(common, tag, contents);
            }
        }
    }

    fn deliver(&mut self, common: &mut EndpointShared, tag: u64, contents: MessageContents) {
        match common.matching.find(self.rank, tag) {
            Some(index) => {
                let posted = common.matching.take(index);
                self.give(common, posted, tag, contents);
            }
            None => common.matching.keep(UnexpectedMessage { source: self.rank, tag, contents }),
        }
    }

    /// A receive gets its message, or the buffer for it is there.
    pub(super) fn give(
        &mut self,
        common: &mut EndpointShared,
        posted: WaitingReceive,
        tag: u64,
        contents: MessageContents,
    ) {
        let WaitingReceive { id, mut buffer, .. } = posted;
        let source = self.rank;
        self.allowed += refunded_credit(&contents);
        match contents {
            MessageContents::Whole { bytes, choice, seal } => {
                let length = bytes.len();
                let found = buffer.get_mut(..length).map(|room| checksum_policy::copy(choice, &bytes, room));
                common.completions.push_back(match found {
                    Some(found) if found == seal => MessageCompletion::Received { id, source, tag, length, buffer },
                    Some(_) => MessageCompletion::ReceiveFailed {
                        id,
                        failure: MessageFailure::Spoiled { source, tag },
                        buffer,
                    },
                    None => {
                        let failure = MessageFailure::Truncated { source, tag, length: length as u64 };
                        MessageCompletion::ReceiveFailed { id, failure, buffer }
                    }
                });
            }
            MessageContents::Lost { .. } => {
                let failure = MessageFailure::Spoiled { source, tag };
                common.completions.push_back(MessageCompletion::ReceiveFailed { id, failure, buffer });
            }
            MessageContents::Announced { transfer, length } if length > buffer.len() as u64 || length == 0 => {
                self.urgent.push_back(ControlMessage::Done { transfer });
                common.completions.push_back(if length == 0 {
                    MessageCompletion::Received { id, source, tag, length: 0, buffer }
                } else {
                    MessageCompletion::ReceiveFailed {
                        id,
                        failure: MessageFailure::Truncated { source, tag, length },
                        buffer,
                    }
                });
            }
            MessageContents::Announced { transfer, length } => {
                let here = ReceivedRanges::default();
                self.incoming.insert(transfer, IncomingTransfer { id, source, tag, length, buffer, here });
                self.urgent.push_back(ControlMessage::Ready { transfer });
            }
        }
    }

    fn take_piece(
        &mut self,
        common: &mut EndpointShared,
        header: &MessageHeader,
        body: UncheckedBody<'_>,
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        let Some(incoming) = self.incoming.get_mut(&header.letter) else {
            common.counters.repeats_seen += 1; // Of a message that is complete: a lost rail made it come twice.
            return Ok(ReceiveOutcome::Well);
        };
        let length = body.bytes.len() as u64;
        let end = header
            .detail
            .checked_add(length)
            .filter(|end| *end <= incoming.length)
            .ok_or(PeerLossCause::Senseless)?;
        // Crumbs would make the list of what is here as long as the message.
        let is_crumb = length < common.settings.sub_block.into() && end != incoming.length;
        if length == 0 || is_crumb || header.letters != 0 {
            return Err(PeerLossCause::Senseless);
        }
        let range = header.detail..end;
        match incoming.here.standing(&range) {
            RangeCoverage::Here => {
                common.counters.repeats_seen += 1;
                return Ok(ReceiveOutcome::Well);
            }
            RangeCoverage::Straddling => return Err(PeerLossCause::Senseless),
            RangeCoverage::Missing => {}
        }
        if !body.copy(&mut incoming.buffer[range.start as usize..range.end as usize]) {
            return Ok(ReceiveOutcome::Spoiled);
        }
        incoming.here.add(range);
        if incoming.here.is_all(incoming.length)
            && let Some(IncomingTransfer { id, source, tag, length, buffer, .. }) =
                self.incoming.remove(&header.letter)
        {
            let length = length as usize;
            common.completions.push_back(MessageCompletion::Received { id, source, tag, length, buffer });
            self.urgent.push_back(ControlMessage::Done { transfer: header.letter });
        }
        Ok(ReceiveOutcome::Well)
    }
}
