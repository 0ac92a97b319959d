//! Short messages, alone in a parcel of a cache line or two, under one code (P-82).
//!
//! A message that is so short can be looked at before it is put where it belongs; so header and body need no codes of their own.

use units::Rank;

use super::matching::{Contents, Posted};
use super::parcel::{BRIEF_BYTES, BRIEF_HEADER, Brief, Header, Kind, Unreadable, expand};
use super::peer::{Peer, Queued, blank};
use super::port::{Cause, Common, Completion, Duty, Rooms};
use super::rails::{Load, RailIndex};
use super::seal::{self, Sealing};
use super::taking::Taken;
use super::{LETTER_COST, WINDOW, letter::Turn};

impl Sealing {
    /// Whether CRC-32C, which brief parcels have, is a code that was agreed on.
    pub(super) fn allows_brief(&self) -> bool {
        match self {
            Self::Off | Self::Tuned(_) => true,
            Self::Named(algorithm) => *algorithm == checksum::Algorithm::Crc32c,
        }
    }
}

impl Peer {
    /// Whether a message may go in a brief parcel.
    #[inline]
    pub(super) fn is_brief(common: &Common, length: usize) -> bool {
        length <= BRIEF_BYTES && common.settings.sealing.allows_brief()
    }

    /// Sends a short message if nothing is before it and there is room; else it comes back.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        common: &mut Common,
        queued: Queued,
        rooms: &mut impl Rooms,
    ) -> Option<Queued> {
        let cost = LETTER_COST + queued.data.len() as u64;
        let may = Self::is_brief(common, queued.data.len())
            && self.is_calm(common)
            && self.unconfirmed() < WINDOW
            && self.spent + cost <= self.granted;
        let rail = if may { self.rails.for_letters(common.settings.letter_depth, None) } else { None };
        match rail {
            Some(rail) => {
                // What is in a room goes at once, so nothing may be on its way there.
                let bytes = BRIEF_HEADER + queued.data.len();
                let room = if common.duties.is_empty() { rooms.room(self.rank, rail, bytes) } else { None };
                match room {
                    Some(room) => {
                        // Nothing comes back that the log would wait for: it has the parcel.
                        let (first, number, bytes) = self.write_brief(common, (rail, Load::Bare), &queued);
                        room.copy_from_slice(&bytes);
                        rooms.send_room(self.rank, rail);
                        self.log.add_kept(first, (rail, number), bytes);
                        common.completions.push_back(Completion::Sent { id: queued.id, buffer: queued.data });
                    }
                    None => self.send_brief(common, rail, queued),
                }
                None
            }
            None => Some(queued),
        }
    }

    /// One message by itself.
    pub(super) fn send_brief(&mut self, common: &mut Common, rail: RailIndex, queued: Queued) {
        let load = Load::Letters(self.next_letter);
        let (first, number, bytes) = self.write_brief(common, (rail, load), &queued);
        common.duties.push_back(transmission(self.rank, rail, bytes));
        common.completions.push_back(Completion::Sent { id: queued.id, buffer: queued.data });
        self.log.add(first, 1, (rail, number), Vec::new());
    }

    /// Puts a message into a parcel; its letter, the parcel's number, and the parcel.
    fn write_brief(&mut self, common: &mut Common, way: (RailIndex, Load), queued: &Queued) -> (u64, u64, Vec<u8>) {
        let mut bytes = common.buffer(BRIEF_HEADER + queued.data.len());
        bytes[BRIEF_HEADER..].copy_from_slice(&queued.data);
        self.spent += LETTER_COST + queued.data.len() as u64;
        let first = self.next_letter;
        self.next_letter += 1;
        let number = self.stamp_brief(common, way, first, queued.tag, &mut bytes);
        (first, number, bytes)
    }

    /// Numbers a parcel, and writes its header to the front.
    fn stamp_brief(
        &mut self,
        common: &mut Common,
        (rail, load): (RailIndex, Load),
        letter: u64,
        tag: u64,
        bytes: &mut [u8],
    ) -> u64 {
        let number = self.number(common, rail, load, bytes.len());
        let (taken, granted) = self.told();
        let [low, letter, taken, granted] = [number, letter, taken, granted].map(|count| count as u32);
        Brief { number: low, letter, taken, granted, tag }.write(&common.settings.sealing, bytes);
        number
    }

    /// P-86: the same again, if it is still what was sealed.
    pub(super) fn repeat_brief(
        &mut self,
        common: &mut Common,
        rail: RailIndex,
        first: u64,
        mut bytes: Vec<u8>,
    ) -> Result<u64, Unreadable> {
        let brief = Brief::read(&common.settings.sealing, &bytes)?;
        let number = self.stamp_brief(common, (rail, Load::Letters(first)), first, brief.tag, &mut bytes);
        common.duties.push_back(transmission(self.rank, rail, bytes));
        Ok(number)
    }

    /// Takes a parcel that says it is brief, the `number`-th of its rail.
    pub(super) fn take_brief(&mut self, common: &mut Common, number: u64, parcel: &[u8]) -> Result<Taken, Cause> {
        // What is looked at must be what is kept, whatever happens to the place where the parcel lies.
        let mut copy = [0; BRIEF_HEADER + BRIEF_BYTES];
        let Some(copy) = copy.get_mut(..parcel.len()) else { return Ok(Taken::Spoiled) };
        copy.copy_from_slice(parcel);
        let sealing = common.settings.sealing;
        let brief = match Brief::read(&sealing, copy) {
            Ok(brief) => brief,
            Err(Unreadable::Spoiled) => return Ok(Taken::Spoiled),
            Err(Unreadable::Senseless) => return Err(Cause::Senseless),
        };
        if brief.number != number as u32 || !sealing.allows_brief() {
            return Err(Cause::Senseless);
        }
        let header = Header {
            taken: expand(brief.taken, self.confirmed),
            granted: expand(brief.granted, self.granted),
            ..blank(Kind::Message, None, 0)
        };
        self.hear(common, &header)?;
        let (letter, tag, data) = (expand(brief.letter, self.mailbox.taken()), brief.tag, &copy[BRIEF_HEADER..]);
        let Some(turn) = self.turn_of(common, letter)? else { return Ok(Taken::Well) };
        let cost = LETTER_COST + data.len() as u64;
        self.charge(cost)?;
        if turn == Turn::Now
            && let Some(index) = common.matching.find(self.rank, tag)
            && let Some(room) = common.matching.buffer(index).get_mut(..data.len())
        {
            room.copy_from_slice(data);
            self.allowed += cost;
            let Posted { id, buffer, .. } = common.matching.take(index);
            let (source, length) = (self.rank, data.len());
            common.completions.push_back(Completion::Received { id, source, tag, length, buffer });
            self.mailbox.advance();
        } else {
            let choice = sealing.choice(data.len());
            let mut bytes = vec![0; data.len()];
            let seal = seal::copy(choice, data, &mut bytes);
            self.take_contents(common, letter, tag, Contents::Whole { bytes, choice, seal });
        }
        self.catch_up(common);
        Ok(Taken::Well)
    }
}

fn transmission(to: Rank, rail: RailIndex, bytes: Vec<u8>) -> Duty {
    let copied = (bytes.len() - BRIEF_HEADER) as u32;
    Duty::Transmit { to, rail, bytes, copied }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_brief_parcel_reads_back_and_no_bit_of_it_may_flip() {
        let sealing = Sealing::default();
        let brief = Brief { number: 1, letter: 2, taken: 3, granted: u32::MAX, tag: 1 << 60 };
        for length in [0, 1, 24, BRIEF_BYTES] {
            let mut parcel = vec![0x5a; BRIEF_HEADER + length];
            brief.write(&sealing, &mut parcel);
            assert_eq!(Brief::read(&sealing, &parcel), Ok(brief));
            for bit in 0..parcel.len() * 8 {
                parcel[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Brief::read(&sealing, &parcel), Err(Unreadable::Spoiled), "bit {bit}");
                parcel[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(Brief::read(&sealing, &parcel[..parcel.len() - 1]).is_err());
        }
    }

    #[test]
    fn the_low_bits_of_a_count_say_which_it_is() {
        for near in [0u64, 5, u64::from(u32::MAX) - 1, (7 << 32) + 3, 1 << 40] {
            for offset in [-3i64, 0, 1, 2_000, 1 << 30] {
                if let Some(count) = near.checked_add_signed(offset) {
                    assert_eq!(expand(count as u32, near), count, "{offset} from {near}");
                }
            }
        }
    }
}
