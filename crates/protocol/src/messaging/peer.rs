//! What a port has with one peer, and how it sends: letters, then pieces, then bare answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use checksum::Target;
use units::{Rank, Span};

use super::letter::{Asked, Letters, Log, Mailbox};
use super::matching::{Contents, ReceiveId, SendId};
use super::parcel::{HEADER_BYTES, Header, Kind, Letter, is_brief};
use super::pieces::{Incoming, Next, Outgoing, Prepared, Sealed};
use super::pipeline::{Chunks, Speeds, Stretch};
use super::port::{Cause, Common, Completion, Duty, Rooms};
use super::rails::{At, Load, RailIndex, Rails};
use super::{ANSWER_WINDOW, LETTER_COST, REPAIR_WINDOW, WINDOW, seal};
use crate::Lent;
use crate::connection::Ask;

/// A send of which nothing has gone out.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) id: SendId,
    pub(super) tag: u64,
    pub(super) data: Vec<u8>,
}

/// Parcels under way on a rail beyond which not even answers go out.
const MOST_UNDER_WAY: usize = 64;
/// Chunks to one peer that are sealed before they are asked for, where that takes no room.
const MOST_SEALED: usize = 8;
/// Answers that may wait to be sent.
const MOST_URGENT: usize = 4 * WINDOW as usize;

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) lost: Option<Cause>,
    pub(super) rails: Rails,
    /// The peer is asked to confirm everything, and has been for letters below.
    pub(super) is_draining: bool,
    asked: u64,
    // Outwards.
    pub(super) queue: VecDeque<Queued>,
    pub(super) urgent: VecDeque<Letter<'static>>,
    pub(super) log: Log,
    pub(super) next_letter: u64,
    pub(super) confirmed: u64,
    /// What we may spend in all, and have spent.
    pub(super) granted: u64,
    pub(super) spent: u64,
    pub(super) outgoing: BTreeMap<u64, Outgoing>,
    /// Transfers that have something to send.
    pub(super) active: VecDeque<u64>,
    /// Transfers whose first chunk may be prepared, and how many are.
    unprepared: VecDeque<u64>,
    prepared: usize,
    /// From an announcement to its answer; none if not measured yet.
    round_trip: Option<Span>,
    // Inwards.
    pub(super) mailbox: Mailbox,
    pub(super) incoming: BTreeMap<u64, Incoming>,
    /// What the peer may spend in all, and has spent.
    pub(super) allowed: u64,
    pub(super) used: u64,
    pub(super) owes_answer: bool,
    pub(super) spoiled_in_a_row: u32,
    told_taken: u64,
    told_allowed: u64,
    /// The parcel that was the first to tell `told_taken`.
    told_by: Option<At>,
}

impl Peer {
    pub(super) fn new(rank: Rank, rails: u8, credit: u64) -> Self {
        Self {
            rank,
            lost: None,
            rails: Rails::new(rails),
            is_draining: false,
            asked: 0,
            queue: VecDeque::new(),
            urgent: VecDeque::new(),
            log: Log::default(),
            next_letter: 0,
            confirmed: 0,
            granted: credit,
            spent: 0,
            outgoing: BTreeMap::new(),
            active: VecDeque::new(),
            unprepared: VecDeque::new(),
            prepared: 0,
            round_trip: None,
            mailbox: Mailbox::default(),
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
    pub(super) fn is_calm(&self, common: &Common) -> bool {
        self.queue.is_empty()
            && self.urgent.is_empty()
            && !self.log.has_repeats()
            && !self.has_more()
            && !self.is_draining
            && !self.must_answer(common)
    }

    /// Sends everything that can be sent now, except pieces.
    pub(super) fn pump(&mut self, common: &mut Common) -> Result<(), Cause> {
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
    pub(super) fn send_next(&mut self, common: &mut Common, rooms: &mut impl Rooms) -> Result<bool, Cause> {
        while let Some(transfer) = self.active.front().copied() {
            let wanted = self.outgoing.get(&transfer).filter(|outgoing| outgoing.is_ready).and_then(Outgoing::wants);
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
        common: &mut Common,
        rail: RailIndex,
        (load, body): (Option<Load>, usize),
        header: Header,
        bytes: &mut [u8],
    ) -> u64 {
        let number = self.number(common, rail, load, HEADER_BYTES + body);
        let (taken, granted) = self.told();
        let header = Header { number, length: body as u32, taken, granted, ..header };
        header.write(&common.settings.sealing, bytes);
        number
    }

    /// A parcel of so many bytes goes out, and tells what has been taken; its number. Without a load it is there at once, and the
    /// driver gives nothing back.
    #[inline]
    pub(super) fn number(&mut self, common: &mut Common, rail: RailIndex, load: Option<Load>, bytes: usize) -> u64 {
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
        common: &mut Common,
        rail: RailIndex,
        (load, copied): (Load, usize),
        header: Header,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let body = bytes.len() - HEADER_BYTES;
        let number = self.stamp(common, rail, (Some(load), body), header, &mut bytes);
        common.duties.push_back(Duty::Transmit { to: self.rank, rail, bytes, copied: copied as u32 });
        number
    }

    /// P-86: what came spoiled goes out again from the log. It is resealed only if it is still what was sealed, or can be
    /// written again.
    fn repeat_letters(&mut self, common: &mut Common) {
        while let Some(avoid) = self.log.next_repeat() {
            let Some(rail) = self.rails.for_letters(MOST_UNDER_WAY, Some(avoid)) else { break };
            let Some((first, bytes)) = self.log.take_repeat() else { break };
            common.counters.repeated += 1;
            let number = if is_brief(&bytes) && Self::is_intact_brief(common, &bytes) {
                self.repeat_brief(common, rail, first, bytes)
            } else {
                let (header, bytes) = match intact(common, &bytes) {
                    Some(header) => (header, bytes),
                    None => self.write_again(common, first, bytes),
                };
                let copied = bytes.len() - HEADER_BYTES;
                self.transmit(common, rail, (Load::Letters(first), copied), header, bytes)
            };
            self.log.moved(first, (rail, number));
        }
    }

    /// A parcel was spoiled where it waited. What it told is known from elsewhere; of a message it is known that it is lost.
    fn write_again(&self, common: &Common, first: u64, mut bytes: Vec<u8>) -> (Header, Vec<u8>) {
        let letters = self.log.letters(first);
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        letters.iter().for_each(|letter| letter.append_to(&mut bytes));
        let choice = common.settings.sealing.choice(bytes.len() - HEADER_BYTES);
        let seal = seal::value(choice, &bytes[HEADER_BYTES..]);
        (Header { letter: first, letters: letters.len() as u32, ..blank(Kind::Letters, choice, seal) }, bytes)
    }

    fn send_letters(&mut self, common: &mut Common) -> Result<(), Cause> {
        if self.urgent.len() > MOST_URGENT {
            return Err(Cause::Garbage);
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
                Letter::Again { .. } | Letter::Closed { .. } => REPAIR_WINDOW,
                _ => ANSWER_WINDOW,
            };
            self.unconfirmed() < window
        })
    }

    /// Whether the first message may be sent: the peer has room for it (P-81).
    fn may_send(&self, settings: &super::Settings) -> bool {
        self.queue.front().is_some_and(|queued| {
            self.unconfirmed() < WINDOW && self.spent + cost(queued.data.len(), settings) <= self.granted
        })
    }

    /// One message by itself, copied and sealed in one pass.
    fn send_message(&mut self, common: &mut Common, rail: RailIndex) {
        let Some(queued) = self.queue.pop_front() else { return };
        if Self::is_brief(common, queued.data.len()) {
            return self.send_brief(common, rail, queued);
        }
        let Queued { id, tag, data } = queued;
        let length = data.len() as u64;
        let choice = common.settings.sealing.choice(data.len());
        let mut bytes = common.buffer(HEADER_BYTES + data.len());
        let seal = seal::copy(choice, &data, &mut bytes[HEADER_BYTES..]);
        self.spent += cost(data.len(), &common.settings);
        common.completions.push_back(Completion::Sent { id, buffer: data });
        let header = Header { detail: tag, ..blank(Kind::Message, choice, seal) };
        let letters = Letters::One(Letter::Lost { tag, length });
        self.send_batch(common, rail, Header { letters: 1, ..header }, bytes, letters);
    }

    /// Answers, and small messages behind them, in one parcel.
    fn gather(&mut self, common: &mut Common, rail: RailIndex) {
        let settings = common.settings;
        let most = HEADER_BYTES + settings.gathered_bytes as usize;
        let mut bytes = common.buffer(HEADER_BYTES);
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
                Letter::Announce { tag: queued.tag, length: queued.data.len() as u64 }
            } else {
                Letter::Message { tag: queued.tag, data: &queued.data }
            };
            let is_large = !is_long && queued.data.len() > settings.gather_bytes as usize;
            if is_large || bytes.len() + letter.size() > most {
                break;
            }
            letter.append_to(&mut bytes);
            self.spent += cost(queued.data.len(), &settings);
            let Some(Queued { id, tag, data }) = self.queue.pop_front() else { break };
            if is_long {
                kept.push(Letter::Announce { tag, length: data.len() as u64 });
                announced.push((self.next_letter, id, data));
            } else {
                kept.push(Letter::Lost { tag, length: data.len() as u64 });
                common.completions.push_back(Completion::Sent { id, buffer: data });
                common.counters.gathered += 1;
            }
            self.next_letter += 1;
            letters += 1;
        }
        let choice = settings.sealing.choice(bytes.len() - HEADER_BYTES);
        let seal = seal::value(choice, &bytes[HEADER_BYTES..]);
        self.next_letter -= u64::from(letters); // They are counted where the parcel is.
        let header = Header { letters, ..blank(Kind::Letters, choice, seal) };
        self.send_batch(common, rail, header, bytes, Letters::Several(kept));
        for (transfer, id, data) in announced {
            self.begin(common, transfer, id, data);
        }
    }

    fn send_batch(&mut self, common: &mut Common, rail: RailIndex, header: Header, bytes: Vec<u8>, letters: Letters) {
        let (first, count) = (self.next_letter, u64::from(header.letters));
        self.next_letter += count;
        let header = Header { letter: first, ..header };
        let copied = bytes.len() - HEADER_BYTES;
        let number = self.transmit(common, rail, (Load::Letters(first), copied), header, bytes);
        self.log.sweep(|bytes| common.recycle(bytes));
        self.log.add(first, (rail, number), letters);
    }

    /// A long message has been announced.
    fn begin(&mut self, common: &mut Common, transfer: u64, id: SendId, data: Vec<u8>) {
        let settings = common.settings;
        let speeds = Speeds {
            copy: settings.copy_speed,
            network: self.rails.speed(),
            round_trip: self.round_trip.unwrap_or(settings.first_round_trip),
        };
        let chunks = Chunks::new(&settings, &speeds, data.len() as u64);
        self.outgoing.insert(transfer, Outgoing::new(common.now, id, data, chunks));
        if settings.prepared > 0 {
            self.unprepared.push_back(transfer);
        }
    }

    /// While the peer looks for a buffer, the first chunk is copied (CK-7). Chunks that are sent from where they lie are only looked
    /// at, which takes no room: as many as there is time for.
    fn prepare(&mut self, common: &mut Common, transfer: u64, rooms: &impl Rooms) {
        let settings = common.settings;
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return };
        let (most, most_of_one) = if rooms.borrows() { (MOST_SEALED, MOST_SEALED) } else { (settings.prepared, 1) };
        while !outgoing.is_ready
            && self.prepared < most
            && outgoing.prepared.len() < most_of_one
            && let Some(stretch) = outgoing.chunks.next_ahead(&settings)
        {
            self.prepared += 1;
            common.counters.prepared_bytes += u64::from(stretch.length);
            outgoing.prepared.push_back(prepare(common, &outgoing.data, stretch, rooms.borrows()));
        }
    }

    /// The peer has a buffer for a message. Its answer is as late as its user was, so a long round trip is believed slowly.
    pub(super) fn make_ready(&mut self, common: &Common, transfer: u64) -> Result<(), Cause> {
        let outgoing = self.outgoing.get_mut(&transfer).ok_or(Cause::Senseless)?;
        outgoing.is_ready = true;
        let sample = common.now.since(outgoing.announced);
        let longest = |old: Span| old + old.divided_by(8);
        self.round_trip = Some(self.round_trip.map_or(sample, |old| sample.min(longest(old))));
        self.active.push_back(transfer);
        Ok(())
    }

    /// A message was not wanted: what was copied of it goes back.
    pub(super) fn forget_prepared(&mut self, common: &mut Common, prepared: VecDeque<Prepared>) {
        self.prepared -= prepared.len();
        prepared.into_iter().for_each(|prepared| common.recycle(prepared.parcel));
    }

    fn send_piece(
        &mut self,
        common: &mut Common,
        transfer: u64,
        rail: RailIndex,
        rooms: &mut impl Rooms,
    ) -> Result<(), Cause> {
        let share = self.rails.share(rail);
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return Ok(()) };
        let Some(next) = outgoing.next(&common.settings, share) else { return Ok(()) };
        let (stretch, tries) = match &next {
            Next::Prepared(prepared) => (prepared.stretch, 0),
            Next::Fresh(stretch) => (*stretch, 0),
            Next::Again(stretch, tries, _) => (*stretch, *tries),
        };
        let data = Arc::clone(&outgoing.data);
        let (from, length) = (stretch.offset as usize, stretch.length as usize);
        let bytes = &data[from..from + length];
        if let Next::Again(.., sealed) = &next {
            // It would be sealed anew: if the buffer itself was spoiled meanwhile, wrong data would look right.
            if value_of(common, bytes) != *sealed {
                return Err(Cause::SpoiledHere);
            }
            common.counters.repeated += 1;
        }
        let header = |sealed: Sealed| Header {
            letter: transfer,
            detail: stretch.offset,
            algorithm: sealed.algorithm,
            ..blank(Kind::Piece, None, sealed.value)
        };
        let (number, sealed) = if !matches!(next, Next::Prepared(_))
            && let Some(room) = rooms.room(self.rank, rail, HEADER_BYTES + length)
        {
            let choice = common.settings.sealing.choice(length);
            let value = seal::copy_to(choice, bytes, &mut room[HEADER_BYTES..], Target::Others);
            let sealed = Sealed { algorithm: seal::number(choice), value };
            let number = self.stamp(common, rail, (Some(Load::Piece), length), header(sealed), room);
            common.duties.push_back(Duty::Written { to: self.rank, rail, length: HEADER_BYTES + length });
            (number, sealed)
        } else {
            let (prepared, copied) = match next {
                Next::Prepared(prepared) => {
                    self.prepared -= 1;
                    (prepared, 0)
                }
                Next::Fresh(_) | Next::Again(..) => (prepare(common, &data, stretch, rooms.borrows()), length),
            };
            let Prepared { parcel: mut head, sealed, .. } = prepared;
            if head.len() > HEADER_BYTES {
                (self.transmit(common, rail, (Load::Piece, copied), header(sealed), head), sealed)
            } else {
                let number = self.stamp(common, rail, (Some(Load::Piece), length), header(sealed), &mut head);
                let body = Lent::new(&data, from..from + length);
                // Before it must stop for that; and at the end, when the user wants the bytes back.
                let is_last = self.outgoing.get(&transfer).is_none_or(|outgoing| outgoing.wants().is_none());
                let is_half_full = self.rails.pieces(rail).is_multiple_of(common.settings.depth.div_ceil(2));
                let ask = if is_last || is_half_full { Ask::Now } else { Ask::Later };
                common.duties.push_back(Duty::Lend { to: self.rank, rail, head, body, ask });
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
    fn must_answer(&self, common: &Common) -> bool {
        self.owes_answer
            || self.allowed - self.told_allowed >= common.settings.credit_bytes / 4
            || self.mailbox.taken() - self.told_taken >= WINDOW / 4
    }

    /// Tells what has been taken if the peer should know, and nothing else has told it. False if there was no need.
    fn answer(&mut self, common: &mut Common) -> bool {
        let is_due = self.must_answer(common) || (self.is_draining && self.told_taken != self.mailbox.taken());
        let asks = self.is_draining && self.asked < self.next_letter && !self.log.is_empty();
        if !is_due && !asks {
            return false;
        }
        let Some(rail) = self.rails.for_letters(MOST_UNDER_WAY, None) else { return false };
        let bytes = common.buffer(HEADER_BYTES);
        let choice = common.settings.sealing.choice(0);
        let header = Header { wants_answer: asks, ..blank(Kind::Bare, choice, seal::value(choice, &[])) };
        self.transmit(common, rail, (Load::Bare, 0), header, bytes);
        if asks {
            self.asked = self.next_letter;
        }
        true
    }

    /// The driver gives a parcel back.
    pub(super) fn landed(&mut self, common: &mut Common, rail: RailIndex, bytes: Vec<u8>) {
        let needless = match self.rails.land(common.now, rail) {
            Some((number, Load::Letters(first))) => self.log.give_back(first, (rail, number), bytes),
            _ => Some(bytes),
        };
        needless.into_iter().for_each(|bytes| common.recycle(bytes));
    }

    /// P-90: everything that went by a lost rail and is not confirmed goes by another.
    pub(super) fn lose_rail(&mut self, rail: RailIndex) -> Result<(), Cause> {
        if !self.rails.lose(rail) {
            return Ok(());
        }
        if !self.rails.any_live() {
            return Err(Cause::Unreachable);
        }
        self.log.lose_rail(rail);
        for (transfer, outgoing) in &mut self.outgoing {
            if outgoing.lose_rail(rail) {
                self.active.push_back(*transfer);
            }
        }
        self.urgent.push_back(Letter::Closed { rail });
        Ok(())
    }

    /// A parcel of ours came spoiled.
    pub(super) fn ask_again(&mut self, rail: RailIndex, number: u64) -> Result<(), Cause> {
        self.rails.distrust(rail);
        let mut asked = self.log.ask_again((rail, number));
        if asked == Asked::Needless {
            for (transfer, outgoing) in &mut self.outgoing {
                asked = outgoing.ask_again((rail, number));
                if asked != Asked::Needless {
                    self.active.push_back(*transfer);
                    break;
                }
            }
        }
        match asked {
            Asked::Noted => {}
            Asked::TooOften => return Err(Cause::SpoiledTooOften),
            // A bare one, or one that went by another rail meanwhile: what it told is told again.
            Asked::Needless => {
                self.owes_answer = true;
                self.asked = 0;
            }
        }
        Ok(())
    }

    /// Ends everything; what was waited for.
    pub(super) fn give_up(
        &mut self,
        cause: Cause,
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
pub(super) fn cost(length: usize, settings: &super::Settings) -> u64 {
    let is_long = length > settings.eager_bytes as usize;
    LETTER_COST + if is_long { 0 } else { length as u64 }
}

/// What a message that is received gives back.
pub(super) fn cost_of(contents: &Contents) -> u64 {
    LETTER_COST + contents.kept()
}

/// The header of a parcel that is still what was sealed.
fn intact(common: &Common, parcel: &[u8]) -> Option<Header> {
    let sealing = &common.settings.sealing;
    let header = Header::read(sealing, parcel).ok()?;
    let choice = sealing.check(header.algorithm).ok()?;
    (seal::value(choice, &parcel[HEADER_BYTES..]) == header.seal).then_some(header)
}

/// What bytes of this machine's memory are sealed with.
fn value_of(common: &Common, bytes: &[u8]) -> Sealed {
    let choice = common.settings.sealing.choice(bytes.len());
    Sealed { algorithm: seal::number(choice), value: seal::value(choice, bytes) }
}

/// Copies and seals a piece; where the driver borrows, only seals it.
fn prepare(common: &mut Common, data: &[u8], stretch: Stretch, borrows: bool) -> Prepared {
    let (from, length) = (stretch.offset as usize, stretch.length as usize);
    let bytes = &data[from..from + length];
    if borrows {
        return Prepared { stretch, sealed: value_of(common, bytes), parcel: common.buffer(HEADER_BYTES) };
    }
    let choice = common.settings.sealing.choice(length);
    let mut parcel = common.buffer(HEADER_BYTES + length);
    let value = seal::copy(choice, bytes, &mut parcel[HEADER_BYTES..]);
    Prepared { stretch, parcel, sealed: Sealed { algorithm: seal::number(choice), value } }
}

pub(super) fn blank(kind: Kind, choice: Option<checksum::tuning::Choice>, seal: u64) -> Header {
    Header {
        kind,
        algorithm: seal::number(choice),
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
