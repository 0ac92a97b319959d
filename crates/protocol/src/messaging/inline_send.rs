//! Messages that go out at once, and the shortest of them, alone in a parcel of a cache line or two, under one code (P-82).
//!
//! Between the parcel that came and the message that answers it nothing is done that can be done later. So what goes out is written
//! first where the other end reads it, if the driver lends room there, and then into the log.
//!
//! A message that is so short that it is brief can be looked at before it is put where it belongs; so header and body need no codes of
//! their own.

use checksum::TargetCache;
use units::Rank;

use super::checksum_policy::{self, ChecksumPolicy};
use super::endpoint::{EndpointShared, InPlaceBuffers, MessageCompletion, MessagingAction, PeerLossCause};
use super::matching::{MessageContents, WaitingReceive};
use super::packet::{
    BodyKind, ControlMessage, INLINE_HEADER_BYTES, InlineHeader, MAX_INLINE_BYTES, MESSAGE_HEADER_BYTES,
    MessageHeader, MessageHeaderError, expand_count,
};
use super::peer::{MessagingPeer, QueuedSend, credit_cost, header_template};
use super::rails::{PacketLoad, RailIndex};
use super::receive_path::ReceiveOutcome;
use super::unacked_log::{BatchMessages, SequencePosition};
use super::{CONTROL_MESSAGE_COST_BYTES, CONTROL_WINDOW};

/// The header of a brief parcel, as words.
type InlineHeaderWords = [u64; INLINE_HEADER_BYTES / 8];

impl ChecksumPolicy {
    /// Whether CRC-32C, which brief parcels have, is a code that was agreed on.
    #[inline]
    pub(super) fn allows_brief(&self) -> bool {
        match self {
            Self::Off | Self::Tuned(_) => true,
            Self::Named(algorithm) => *algorithm == checksum::Algorithm::Crc32c,
        }
    }
}

impl MessagingPeer {
    /// Whether a message may go in a brief parcel.
    #[inline]
    pub(super) fn is_brief(common: &EndpointShared, length: usize) -> bool {
        length <= MAX_INLINE_BYTES && common.settings.sealing.allows_brief()
    }

    /// Sends a message if nothing is before it and there is room; else it comes back.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        common: &mut EndpointShared,
        queued: QueuedSend,
        rooms: &mut impl InPlaceBuffers,
    ) -> Option<QueuedSend> {
        let length = queued.data.len();
        let may = length <= common.settings.eager_bytes as usize
            && self.is_calm(common)
            && self.unconfirmed() < CONTROL_WINDOW
            && self.spent + credit_cost(length, &common.settings) <= self.granted;
        let rail = if may { self.rails.for_letters(common.settings.letter_depth, None) } else { None };
        let Some(rail) = rail else { return Some(queued) };
        let is_brief = Self::is_brief(common, length);
        let bytes = if is_brief { INLINE_HEADER_BYTES } else { MESSAGE_HEADER_BYTES } + length;
        // What is in a room goes at once, so nothing may be on its way there.
        let room = if common.duties.is_empty() { rooms.room(self.rank, rail, bytes) } else { None };
        let (first, number, kept) = match room {
            Some(room) if is_brief => {
                let (first, number, words) = self.brief(common, (rail, None), &queued);
                put_brief(&words, &queued.data, room);
                rooms.send_room(self.rank, rail);
                let mut kept = self.empty_log(common, bytes);
                put_brief(&words, &queued.data, &mut kept);
                (first, number, kept)
            }
            Some(room) => {
                let (first, number) = self.put_message(common, rail, &queued, room);
                let (head, _) = room.split_first_chunk::<MESSAGE_HEADER_BYTES>().expect("it has a header");
                let head = *head;
                rooms.send_room(self.rank, rail);
                let mut kept = self.empty_log(common, bytes);
                kept[..MESSAGE_HEADER_BYTES].copy_from_slice(&head);
                kept[MESSAGE_HEADER_BYTES..].copy_from_slice(&queued.data);
                (first, number, kept)
            }
            None if is_brief => {
                self.send_brief(common, rail, queued);
                return None;
            }
            None => return Some(queued),
        };
        self.log.add_kept(first, (rail, number), lost(&queued), kept);
        common.completions.push_back(MessageCompletion::Sent { id: queued.id, buffer: queued.data });
        None
    }

    /// Makes room in the log for a parcel that has gone out.
    fn empty_log(&mut self, common: &mut EndpointShared, bytes: usize) -> Vec<u8> {
        self.log.sweep(|bytes| common.recycle(bytes));
        common.buffer(bytes)
    }

    /// One message by itself, copied and sealed in one pass; its letter and the parcel's number.
    fn put_message(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        queued: &QueuedSend,
        room: &mut [u8],
    ) -> (u64, u64) {
        let length = queued.data.len();
        let choice = common.settings.sealing.choice(length);
        let seal =
            checksum_policy::copy_to(choice, &queued.data, &mut room[MESSAGE_HEADER_BYTES..], TargetCache::Others);
        self.spent += credit_cost(length, &common.settings);
        let first = self.next_letter;
        self.next_letter += 1;
        let header = MessageHeader {
            detail: queued.tag,
            letter: first,
            letters: 1,
            ..header_template(BodyKind::Message, choice, seal)
        };
        (first, self.stamp(common, rail, (None, length), header, room))
    }

    /// One short message by itself.
    pub(super) fn send_brief(&mut self, common: &mut EndpointShared, rail: RailIndex, queued: QueuedSend) {
        let load = PacketLoad::Letters(self.next_letter);
        let (first, number, words) = self.brief(common, (rail, Some(load)), &queued);
        let mut bytes = self.empty_log(common, INLINE_HEADER_BYTES + queued.data.len());
        put_brief(&words, &queued.data, &mut bytes);
        common.duties.push_back(transmission(self.rank, rail, bytes));
        self.log.add(first, (rail, number), BatchMessages::One(lost(&queued)));
        common.completions.push_back(MessageCompletion::Sent { id: queued.id, buffer: queued.data });
    }

    /// The header for a message: its letter, the parcel's number, the words.
    #[inline]
    fn brief(
        &mut self,
        common: &mut EndpointShared,
        way: (RailIndex, Option<PacketLoad>),
        queued: &QueuedSend,
    ) -> (u64, u64, InlineHeaderWords) {
        self.spent += CONTROL_MESSAGE_COST_BYTES + queued.data.len() as u64;
        let first = self.next_letter;
        self.next_letter += 1;
        let (number, words) = self.brief_words(common, way, (first, queued.tag), &queued.data);
        (first, number, words)
    }

    /// Numbers a parcel; its header.
    #[inline]
    fn brief_words(
        &mut self,
        common: &mut EndpointShared,
        (rail, load): (RailIndex, Option<PacketLoad>),
        (letter, tag): (u64, u64),
        message: &[u8],
    ) -> (u64, InlineHeaderWords) {
        let number = self.number(common, rail, load, INLINE_HEADER_BYTES + message.len());
        let (taken, granted) = self.told();
        let [low, letter, taken, granted] = [number, letter, taken, granted].map(|count| count as u32);
        let brief = InlineHeader { number: low, letter, taken, granted, tag };
        (number, brief.words(&common.settings.sealing, message))
    }

    /// P-86: whether a parcel is still what was sealed.
    pub(super) fn is_intact_brief(common: &EndpointShared, bytes: &[u8]) -> bool {
        split(bytes)
            .is_some_and(|(words, message)| InlineHeader::read(&common.settings.sealing, words, message).is_ok())
    }

    /// The same again.
    pub(super) fn repeat_brief(
        &mut self,
        common: &mut EndpointShared,
        rail: RailIndex,
        first: u64,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let way = (rail, Some(PacketLoad::Letters(first)));
        let (words, message) = split(&bytes).expect("it is intact");
        let (number, words) = self.brief_words(common, way, (first, words[3]), message);
        put_words(&words, &mut bytes);
        common.duties.push_back(transmission(self.rank, rail, bytes));
        number
    }

    /// Takes a parcel that says it is brief, the `number`-th of its rail.
    #[inline]
    pub(super) fn take_brief(
        &mut self,
        common: &mut EndpointShared,
        number: u64,
        parcel: &[u8],
    ) -> Result<ReceiveOutcome, PeerLossCause> {
        // What is looked at must be what is kept, whatever happens to the place where the parcel lies.
        let Some((words, message)) = split(parcel) else { return Ok(ReceiveOutcome::Spoiled) };
        let mut copy = [0; MAX_INLINE_BYTES];
        let Some(data) = copy.get_mut(..message.len()) else { return Ok(ReceiveOutcome::Spoiled) };
        data.copy_from_slice(message);
        let data = &*data;
        let brief = match InlineHeader::read(&common.settings.sealing, words, data) {
            Ok(brief) => brief,
            Err(MessageHeaderError::Spoiled) => return Ok(ReceiveOutcome::Spoiled),
            Err(MessageHeaderError::Senseless) => return Err(PeerLossCause::Senseless),
        };
        if brief.number != number as u32 || !common.settings.sealing.allows_brief() {
            return Err(PeerLossCause::Senseless);
        }
        self.hear_counts(
            common,
            expand_count(brief.taken, self.confirmed),
            expand_count(brief.granted, self.granted),
        )?;
        let (letter, tag) = (expand_count(brief.letter, self.mailbox.taken()), brief.tag);
        let Some(turn) = self.turn_of(common, letter)? else { return Ok(ReceiveOutcome::Well) };
        let cost = CONTROL_MESSAGE_COST_BYTES + data.len() as u64;
        self.charge(cost)?;
        if turn == SequencePosition::Now
            && let Some(index) = common.matching.find(self.rank, tag)
            && let Some(room) = common.matching.buffer(index).get_mut(..data.len())
        {
            room.copy_from_slice(data);
            self.allowed += cost;
            let WaitingReceive { id, buffer, .. } = common.matching.take(index);
            let (source, length) = (self.rank, data.len());
            common.completions.push_back(MessageCompletion::Received { id, source, tag, length, buffer });
            self.mailbox.advance();
        } else {
            let choice = common.settings.sealing.choice(data.len());
            let mut bytes = vec![0; data.len()];
            let seal = checksum_policy::copy(choice, data, &mut bytes);
            self.take_contents(common, letter, tag, MessageContents::Whole { bytes, choice, seal });
        }
        self.catch_up(common);
        Ok(ReceiveOutcome::Well)
    }
}

/// What can be told of a message whose bytes are spoiled.
fn lost(queued: &QueuedSend) -> ControlMessage<'static> {
    ControlMessage::Lost { tag: queued.tag, length: queued.data.len() as u64 }
}

/// The header's words and the message of a brief parcel; none if it is too short for one.
#[inline]
fn split(parcel: &[u8]) -> Option<(InlineHeaderWords, &[u8])> {
    let (head, message) = parcel.split_first_chunk::<INLINE_HEADER_BYTES>()?;
    let (words, _) = head.as_chunks::<8>();
    Some((std::array::from_fn(|index| u64::from_le_bytes(words[index])), message))
}

#[inline]
fn put_brief(words: &InlineHeaderWords, message: &[u8], parcel: &mut [u8]) {
    put_words(words, parcel);
    parcel[INLINE_HEADER_BYTES..].copy_from_slice(message);
}

#[inline]
fn put_words(words: &InlineHeaderWords, parcel: &mut [u8]) {
    let (places, _) = parcel[..INLINE_HEADER_BYTES].as_chunks_mut::<8>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
}

fn transmission(to: Rank, rail: RailIndex, bytes: Vec<u8>) -> MessagingAction {
    let copied = (bytes.len() - INLINE_HEADER_BYTES) as u32;
    MessagingAction::Transmit { to, rail, bytes, copied }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_parcel_reads_back_and_no_bit_of_it_may_flip() {
        let sealing = ChecksumPolicy::default();
        let brief = InlineHeader { number: 1, letter: 2, taken: 3, granted: u32::MAX, tag: 1 << 60 };
        let read = |parcel: &[u8]| {
            let (words, message) = split(parcel).ok_or(MessageHeaderError::Spoiled)?;
            InlineHeader::read(&sealing, words, message)
        };
        for length in [0, 1, 24, MAX_INLINE_BYTES] {
            let message = vec![0x5a; length];
            let mut parcel = vec![0; INLINE_HEADER_BYTES + length];
            put_brief(&brief.words(&sealing, &message), &message, &mut parcel);
            assert_eq!(read(&parcel), Ok(brief));
            for bit in 0..parcel.len() * 8 {
                parcel[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read(&parcel), Err(MessageHeaderError::Spoiled), "bit {bit}");
                parcel[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(read(&parcel[..parcel.len() - 1]).is_err());
        }
    }

    #[test]
    fn the_low_bits_of_a_count_say_which_it_is() {
        for near in [0u64, 5, u64::from(u32::MAX) - 1, (7 << 32) + 3, 1 << 40] {
            for offset in [-3i64, 0, 1, 2_000, 1 << 30] {
                if let Some(count) = near.checked_add_signed(offset) {
                    assert_eq!(expand_count(count as u32, near), count, "{offset} from {near}");
                }
            }
        }
    }
}
