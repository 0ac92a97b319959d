//! How a peer's parcels are taken: checked, put where they belong, asked for again if spoiled.

use std::sync::Arc;

use checksum::tuning::Choice;

use super::letter::{Early, Turn};
use super::matching::{Contents, Posted, Unexpected};
use super::parcel::{HEADER_BYTES, Header, Kind, Letter, Unreadable, is_brief, split_letter};
use super::peer::{Peer, cost_of};
use super::pieces::{Incoming, Standing, Stretches};
use super::port::{Cause, Common, Completion, Failure};
use super::rails::RailIndex;
use super::{MAX_MESSAGE, MAX_SPOILED_IN_A_ROW, seal};

/// The body of a parcel, not checked yet.
#[derive(Clone, Copy)]
struct Body<'a> {
    bytes: &'a [u8],
    choice: Option<Choice>,
    seal: u64,
}

impl Body<'_> {
    /// Copies it; true if what was copied is what was sealed.
    fn copy(&self, to: &mut [u8]) -> bool {
        seal::copy(self.choice, self.bytes, to) == self.seal
    }

    fn is_intact(&self) -> bool {
        seal::value(self.choice, self.bytes) == self.seal
    }
}

/// What became of a parcel.
pub(super) enum Taken {
    Well,
    Spoiled,
}

impl Peer {
    /// Takes a parcel.
    pub(super) fn take(&mut self, common: &mut Common, rail: RailIndex, parcel: &[u8]) -> Result<(), Cause> {
        // A rail that was given up here may still bring what was sent before: it counts, and is as good as any.
        let number = self.rails.came(rail).ok_or(Cause::Senseless)?;
        let taken = if is_brief(parcel) {
            self.take_brief(common, number, parcel)?
        } else {
            self.take_full(common, number, parcel)?
        };
        match taken {
            Taken::Well => {
                self.spoiled_in_a_row = 0;
                self.rails.trust();
            }
            Taken::Spoiled => {
                self.rails.distrust(rail);
                common.counters.spoiled += 1;
                self.spoiled_in_a_row += 1;
                if self.spoiled_in_a_row > MAX_SPOILED_IN_A_ROW {
                    return Err(Cause::Garbage);
                }
                self.urgent.push_back(Letter::Again { rail, number });
            }
        }
        Ok(())
    }

    fn take_full(&mut self, common: &mut Common, number: u64, parcel: &[u8]) -> Result<Taken, Cause> {
        match Header::read(&common.settings.sealing, parcel) {
            Err(Unreadable::Spoiled) => Ok(Taken::Spoiled),
            Ok(header) if header.number == number => self.take_body(common, &header, &parcel[HEADER_BYTES..]),
            Ok(_) | Err(Unreadable::Senseless) => Err(Cause::Senseless),
        }
    }

    fn take_body(&mut self, common: &mut Common, header: &Header, bytes: &[u8]) -> Result<Taken, Cause> {
        self.hear(common, header)?;
        let choice = common.settings.sealing.check(header.algorithm).map_err(|_| Cause::Senseless)?;
        let body = Body { bytes, choice, seal: header.seal };
        match header.kind {
            Kind::Bare if bytes.is_empty() && body.is_intact() => Ok(Taken::Well),
            Kind::Bare => Err(Cause::Senseless),
            Kind::Message => self.take_message(common, header, body),
            Kind::Letters => self.take_letters(common, header, body),
            Kind::Piece => self.take_piece(common, header, body),
        }
    }

    /// What every header tells: what the peer has had, and what it grants.
    fn hear(&mut self, common: &mut Common, header: &Header) -> Result<(), Cause> {
        self.owes_answer |= header.wants_answer;
        self.hear_counts(common, header.taken, header.granted)
    }

    #[inline]
    pub(super) fn hear_counts(&mut self, common: &Common, taken: u64, granted: u64) -> Result<(), Cause> {
        if taken > self.next_letter || granted > self.spent + common.settings.credit_bytes {
            return Err(Cause::Senseless);
        }
        if taken > self.confirmed {
            self.confirmed = taken;
            self.log.confirm(taken);
        }
        self.granted = self.granted.max(granted);
        Ok(())
    }

    /// P-81: a peer that sends more than it was granted is dropped.
    pub(super) fn charge(&mut self, cost: u64) -> Result<(), Cause> {
        self.used += cost;
        if self.used > self.allowed { Err(Cause::Overdrawn) } else { Ok(()) }
    }

    /// When a letter is due; none if it has been here.
    pub(super) fn turn_of(&self, common: &mut Common, number: u64) -> Result<Option<Turn>, Cause> {
        match self.mailbox.turn(number) {
            Turn::Past => {
                common.counters.repeats_seen += 1;
                Ok(None)
            }
            Turn::Beyond => Err(Cause::Senseless),
            turn @ (Turn::Now | Turn::Later) => Ok(Some(turn)),
        }
    }

    fn take_message(&mut self, common: &mut Common, header: &Header, body: Body<'_>) -> Result<Taken, Cause> {
        if header.letters != 1 || body.bytes.len() > common.settings.eager_bytes as usize {
            return Err(Cause::Senseless);
        }
        let (tag, number) = (header.detail, header.letter);
        let cost = super::LETTER_COST + body.bytes.len() as u64;
        let Some(turn) = self.turn_of(common, number)? else { return Ok(Taken::Well) };
        // Straight into the buffer of whoever waits for it. If it is spoiled, the receive goes on waiting.
        if turn == Turn::Now
            && let Some(index) = common.matching.find(self.rank, tag)
            && let Some(room) = common.matching.buffer(index).get_mut(..body.bytes.len())
        {
            if !body.copy(room) {
                return Ok(Taken::Spoiled);
            }
            self.charge(cost)?;
            self.allowed += cost;
            let Posted { id, buffer, .. } = common.matching.take(index);
            let length = body.bytes.len();
            common.completions.push_back(Completion::Received { id, source: self.rank, tag, length, buffer });
            self.mailbox.advance();
        } else {
            let mut bytes = vec![0; body.bytes.len()];
            if !body.copy(&mut bytes) {
                return Ok(Taken::Spoiled);
            }
            self.charge(cost)?;
            self.take_contents(common, number, tag, Contents::Whole { bytes, choice: body.choice, seal: body.seal });
        }
        self.catch_up(common);
        Ok(Taken::Well)
    }

    fn take_letters(&mut self, common: &mut Common, header: &Header, body: Body<'_>) -> Result<Taken, Cause> {
        if !body.is_intact() {
            return Ok(Taken::Spoiled);
        }
        let mut rest = body.bytes;
        for index in 0..u64::from(header.letters) {
            let letter = split_letter(&mut rest).map_err(|_| Cause::Senseless)?;
            let number = header.letter.checked_add(index).ok_or(Cause::Senseless)?;
            if self.turn_of(common, number)?.is_some() {
                self.take_letter(common, number, letter)?;
            }
            self.catch_up(common);
        }
        if rest.is_empty() { Ok(Taken::Well) } else { Err(Cause::Senseless) }
    }

    fn take_letter(&mut self, common: &mut Common, number: u64, letter: Letter<'_>) -> Result<(), Cause> {
        match letter {
            Letter::Message { tag, data } => {
                if data.len() > common.settings.gather_bytes as usize {
                    return Err(Cause::Senseless);
                }
                self.charge(super::LETTER_COST + data.len() as u64)?;
                let choice = common.settings.sealing.choice(data.len());
                let mut bytes = vec![0; data.len()];
                let seal = seal::copy(choice, data, &mut bytes);
                self.take_contents(common, number, tag, Contents::Whole { bytes, choice, seal });
                return Ok(());
            }
            Letter::Announce { tag, length } => {
                if length > MAX_MESSAGE {
                    return Err(Cause::Senseless);
                }
                self.charge(super::LETTER_COST)?;
                self.take_contents(common, number, tag, Contents::Announced { transfer: number, length });
                return Ok(());
            }
            Letter::Lost { tag, length } => {
                if length > common.settings.eager_bytes.into() {
                    return Err(Cause::Senseless);
                }
                self.charge(super::LETTER_COST + length)?;
                self.take_contents(common, number, tag, Contents::Lost { length });
                return Ok(());
            }
            Letter::Ready { transfer } => self.make_ready(common, transfer)?,
            Letter::Done { transfer } => {
                let outgoing = self.outgoing.remove(&transfer).ok_or(Cause::Senseless)?;
                self.forget_prepared(common, outgoing.prepared);
                // The driver holds none of it any more, unless the acknowledgement of what came was lost.
                let buffer = Arc::unwrap_or_clone(outgoing.data);
                common.completions.push_back(Completion::Sent { id: outgoing.id, buffer });
            }
            Letter::Again { rail, number } => self.ask_again(rail, number)?,
            Letter::Closed { rail } => {
                if self.rails.is_live(rail) {
                    self.lose_rail(rail)?;
                }
            }
        }
        // These count when they come: waiting for their turn they could wait for each other (P-85).
        if self.mailbox.turn(number) == Turn::Now {
            self.mailbox.advance();
        } else {
            self.mailbox.keep(number, Early::DealtWith);
        }
        Ok(())
    }

    /// A message or an announcement, now or when its turn comes.
    pub(super) fn take_contents(&mut self, common: &mut Common, number: u64, tag: u64, contents: Contents) {
        if self.mailbox.turn(number) == Turn::Now {
            self.mailbox.advance();
            self.deliver(common, tag, contents);
        } else {
            self.mailbox.keep(number, Early::Message(tag, contents));
        }
    }

    /// Deals with letters that came before their turn.
    pub(super) fn catch_up(&mut self, common: &mut Common) {
        while let Some(early) = self.mailbox.next() {
            if let Early::Message(tag, contents) = early {
                self.deliver(common, tag, contents);
            }
        }
    }

    fn deliver(&mut self, common: &mut Common, tag: u64, contents: Contents) {
        match common.matching.find(self.rank, tag) {
            Some(index) => {
                let posted = common.matching.take(index);
                self.give(common, posted, tag, contents);
            }
            None => common.matching.keep(Unexpected { source: self.rank, tag, contents }),
        }
    }

    /// A receive gets its message, or the buffer for it is there.
    pub(super) fn give(&mut self, common: &mut Common, posted: Posted, tag: u64, contents: Contents) {
        let Posted { id, mut buffer, .. } = posted;
        let source = self.rank;
        self.allowed += cost_of(&contents);
        match contents {
            Contents::Whole { bytes, choice, seal } => {
                let length = bytes.len();
                let found = buffer.get_mut(..length).map(|room| seal::copy(choice, &bytes, room));
                common.completions.push_back(match found {
                    Some(found) if found == seal => Completion::Received { id, source, tag, length, buffer },
                    Some(_) => Completion::ReceiveFailed { id, failure: Failure::Spoiled { source, tag }, buffer },
                    None => {
                        let failure = Failure::Truncated { source, tag, length: length as u64 };
                        Completion::ReceiveFailed { id, failure, buffer }
                    }
                });
            }
            Contents::Lost { .. } => {
                let failure = Failure::Spoiled { source, tag };
                common.completions.push_back(Completion::ReceiveFailed { id, failure, buffer });
            }
            Contents::Announced { transfer, length } if length > buffer.len() as u64 || length == 0 => {
                self.urgent.push_back(Letter::Done { transfer });
                common.completions.push_back(if length == 0 {
                    Completion::Received { id, source, tag, length: 0, buffer }
                } else {
                    Completion::ReceiveFailed { id, failure: Failure::Truncated { source, tag, length }, buffer }
                });
            }
            Contents::Announced { transfer, length } => {
                let here = Stretches::default();
                self.incoming.insert(transfer, Incoming { id, source, tag, length, buffer, here });
                self.urgent.push_back(Letter::Ready { transfer });
            }
        }
    }

    fn take_piece(&mut self, common: &mut Common, header: &Header, body: Body<'_>) -> Result<Taken, Cause> {
        let Some(incoming) = self.incoming.get_mut(&header.letter) else {
            common.counters.repeats_seen += 1; // Of a message that is complete: a lost rail made it come twice.
            return Ok(Taken::Well);
        };
        let length = body.bytes.len() as u64;
        let end = header.detail.checked_add(length).filter(|end| *end <= incoming.length).ok_or(Cause::Senseless)?;
        // Crumbs would make the list of what is here as long as the message.
        let is_crumb = length < common.settings.sub_block.into() && end != incoming.length;
        if length == 0 || is_crumb || header.letters != 0 {
            return Err(Cause::Senseless);
        }
        let range = header.detail..end;
        match incoming.here.standing(&range) {
            Standing::Here => {
                common.counters.repeats_seen += 1;
                return Ok(Taken::Well);
            }
            Standing::Straddling => return Err(Cause::Senseless),
            Standing::Missing => {}
        }
        if !body.copy(&mut incoming.buffer[range.start as usize..range.end as usize]) {
            return Ok(Taken::Spoiled);
        }
        incoming.here.add(range);
        if incoming.here.is_all(incoming.length)
            && let Some(Incoming { id, source, tag, length, buffer, .. }) = self.incoming.remove(&header.letter)
        {
            let length = length as usize;
            common.completions.push_back(Completion::Received { id, source, tag, length, buffer });
            self.urgent.push_back(Letter::Done { transfer: header.letter });
        }
        Ok(Taken::Well)
    }
}
