//! What a port has with one peer, and how it sends: letters, then pieces, then bare answers.

use std::collections::{BTreeMap, VecDeque};

use units::{Rank, Time};

use super::letter::{Asked, Log, Mailbox};
use super::matching::{Contents, ReceiveId, SendId};
use super::parcel::{HEADER_BYTES, Header, Kind, Letter};
use super::pieces::{Incoming, Next, Outgoing, Prepared};
use super::pipeline::{Chunks, Speeds, Stretch};
use super::port::{Cause, Common, Completion};
use super::rails::{Load, RailIndex, Rails};
use super::{ANSWER_WINDOW, LETTER_COST, REPAIR_WINDOW, WINDOW, seal};

/// A send of which nothing has gone out.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) id: SendId,
    pub(super) tag: u64,
    pub(super) data: Vec<u8>,
}

/// Transfers to one peer whose first chunk is copied before it is asked for.
const MOST_PREPARED: usize = 4;
/// Parcels under way on a rail beyond which not even answers go out.
const MOST_UNDER_WAY: usize = 64;
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
    prepared: usize,
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
            prepared: 0,
            mailbox: Mailbox::default(),
            incoming: BTreeMap::new(),
            allowed: credit,
            used: 0,
            owes_answer: false,
            spoiled_in_a_row: 0,
            told_taken: 0,
            told_allowed: credit,
        }
    }

    pub(super) fn is_drained(&self) -> bool {
        let quiet = self.queue.is_empty() && self.urgent.is_empty() && self.outgoing.is_empty();
        quiet && self.log.is_empty() && self.rails.is_quiet()
    }

    /// Sends everything that can be sent now.
    pub(super) fn pump(&mut self, now: Time, common: &mut Common) -> Result<(), Cause> {
        self.repeat_letters(now, common)?;
        self.send_letters(now, common)?;
        self.send_pieces(now, common);
        self.answer(now, common);
        Ok(())
    }

    /// Gives a parcel its header and hands it to the driver.
    fn transmit(
        &mut self,
        now: Time,
        common: &mut Common,
        rail: RailIndex,
        (load, copied): (Load, usize),
        header: Header,
        mut bytes: Vec<u8>,
    ) -> u64 {
        let number = self.rails.launch(now, rail, load, bytes.len());
        self.told_taken = self.mailbox.taken();
        self.told_allowed = self.allowed;
        self.owes_answer = false;
        let header = Header {
            number,
            length: (bytes.len() - HEADER_BYTES) as u32,
            taken: self.told_taken,
            granted: self.told_allowed,
            ..header
        };
        header.write(&common.settings.sealing, &mut bytes);
        common.counters.parcels += 1;
        common.duties.push_back(super::Duty::Transmit { to: self.rank, rail, bytes, copied: copied as u32 });
        number
    }

    /// P-86: what came spoiled goes out again from the log. It is resealed only if it is still what was sealed.
    fn repeat_letters(&mut self, now: Time, common: &mut Common) -> Result<(), Cause> {
        while let Some(avoid) = self.log.next_repeat() {
            let Some(rail) = self.rails.for_letters(MOST_UNDER_WAY, Some(avoid)) else { break };
            let Some((first, bytes)) = self.log.take_repeat() else { break };
            let sealing = &common.settings.sealing;
            let header = Header::read(sealing, &bytes).map_err(|_| Cause::SpoiledHere)?;
            let choice = sealing.check(header.algorithm).map_err(|_| Cause::SpoiledHere)?;
            if seal::value(choice, &bytes[HEADER_BYTES..]) != header.seal {
                return Err(Cause::SpoiledHere);
            }
            common.counters.repeated += 1;
            let copied = bytes.len() - HEADER_BYTES;
            let number = self.transmit(now, common, rail, (Load::Letters(first), copied), header, bytes);
            self.log.moved(first, (rail, number));
        }
        Ok(())
    }

    fn send_letters(&mut self, now: Time, common: &mut Common) -> Result<(), Cause> {
        if self.urgent.len() > MOST_URGENT {
            return Err(Cause::Garbage);
        }
        while let Some(rail) = self.rails.for_letters(common.settings.letter_depth, None) {
            if self.may_answer() {
                self.gather(now, common, rail);
                continue;
            }
            if !self.may_send(&common.settings) {
                break;
            }
            let alone = self.queue.len() == 1 || self.queue[0].data.len() > common.settings.gather_bytes as usize;
            if alone && self.queue[0].data.len() <= common.settings.eager_bytes as usize {
                self.send_message(now, common, rail);
            } else {
                self.gather(now, common, rail);
            }
        }
        Ok(())
    }

    fn unconfirmed(&self) -> u64 {
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
    fn send_message(&mut self, now: Time, common: &mut Common, rail: RailIndex) {
        let Some(Queued { id, tag, data }) = self.queue.pop_front() else { return };
        let choice = common.settings.sealing.choice(data.len());
        let mut bytes = common.buffer(HEADER_BYTES + data.len());
        let seal = seal::copy(choice, &data, &mut bytes[HEADER_BYTES..]);
        self.spent += cost(data.len(), &common.settings);
        common.completions.push_back(Completion::Sent { id, buffer: data });
        let header = Header { detail: tag, ..blank(Kind::Message, choice, seal) };
        self.send_batch(now, common, rail, Header { letters: 1, ..header }, bytes);
    }

    /// Answers, and small messages behind them, in one parcel.
    fn gather(&mut self, now: Time, common: &mut Common, rail: RailIndex) {
        let settings = common.settings;
        let most = HEADER_BYTES + settings.gathered_bytes as usize;
        let mut bytes = common.buffer(HEADER_BYTES);
        let mut letters = 0;
        let mut announced = Vec::new();
        while self.may_answer() && bytes.len() + self.urgent[0].size() <= most {
            let Some(letter) = self.urgent.pop_front() else { break };
            letter.append_to(&mut bytes);
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
            let Some(Queued { id, data, .. }) = self.queue.pop_front() else { break };
            if is_long {
                announced.push((self.next_letter, id, data));
            } else {
                common.completions.push_back(Completion::Sent { id, buffer: data });
                common.counters.gathered += 1;
            }
            self.next_letter += 1;
            letters += 1;
        }
        let choice = settings.sealing.choice(bytes.len() - HEADER_BYTES);
        let seal = seal::value(choice, &bytes[HEADER_BYTES..]);
        self.next_letter -= u64::from(letters); // They are counted where the parcel is.
        self.send_batch(now, common, rail, Header { letters, ..blank(Kind::Letters, choice, seal) }, bytes);
        for (transfer, id, data) in announced {
            self.begin(common, transfer, id, data);
        }
    }

    fn send_batch(&mut self, now: Time, common: &mut Common, rail: RailIndex, header: Header, bytes: Vec<u8>) {
        let (first, count) = (self.next_letter, u64::from(header.letters));
        self.next_letter += count;
        let header = Header { letter: first, ..header };
        let copied = bytes.len() - HEADER_BYTES;
        let number = self.transmit(now, common, rail, (Load::Letters(first), copied), header, bytes);
        self.log.add(first, count, (rail, number));
    }

    /// A long message has been announced. While its peer looks for a buffer, the first chunk is copied (CK-7).
    fn begin(&mut self, common: &mut Common, transfer: u64, id: SendId, data: Vec<u8>) {
        let settings = common.settings;
        let speeds = Speeds {
            copy: settings.copy_speed,
            network: self.rails.speed(),
            round_trip: self.rails.round_trip().unwrap_or(settings.first_round_trip),
        };
        let chunks = Chunks::new(&settings, &speeds, data.len() as u64);
        let mut outgoing = Outgoing::new(id, data, chunks);
        if self.prepared < MOST_PREPARED
            && let Some(stretch) = outgoing.chunks.next(&settings, 8)
        {
            self.prepared += 1;
            common.counters.prepared_bytes += u64::from(stretch.length);
            outgoing.prepared = Some(prepare(common, &outgoing.data, stretch));
        }
        self.outgoing.insert(transfer, outgoing);
    }

    /// A message was not wanted: what was copied of it goes back.
    pub(super) fn forget_prepared(&mut self, common: &mut Common, prepared: Option<Prepared>) {
        if let Some(prepared) = prepared {
            self.prepared -= 1;
            common.recycle(prepared.parcel);
        }
    }

    fn send_pieces(&mut self, now: Time, common: &mut Common) {
        while let Some(transfer) = self.active.front().copied() {
            let wanted = self.outgoing.get(&transfer).filter(|outgoing| outgoing.is_ready).and_then(Outgoing::wants);
            let Some(avoid) = wanted else {
                self.active.pop_front();
                continue;
            };
            let Some(rail) = self.rails.for_piece(common.settings.depth, avoid) else { break };
            self.send_piece(now, common, transfer, rail);
        }
    }

    fn send_piece(&mut self, now: Time, common: &mut Common, transfer: u64, rail: RailIndex) {
        let share = self.rails.share(rail);
        let Some(outgoing) = self.outgoing.get_mut(&transfer) else { return };
        let Some(next) = outgoing.next(&common.settings, share) else { return };
        let mut copied = 0;
        let (prepared, tries) = match next {
            Next::Prepared(prepared) => {
                self.prepared -= 1;
                (prepared, 0)
            }
            Next::Fresh(stretch) => {
                copied = stretch.length as usize;
                (prepare(common, &outgoing.data, stretch), 0)
            }
            Next::Again(stretch, tries) => {
                common.counters.repeated += 1;
                copied = stretch.length as usize;
                (prepare(common, &outgoing.data, stretch), tries)
            }
        };
        let Prepared { stretch, parcel, algorithm, seal } = prepared;
        let header = Header { letter: transfer, detail: stretch.offset, algorithm, ..blank(Kind::Piece, None, seal) };
        let number = self.transmit(now, common, rail, (Load::Piece, copied), header, parcel);
        if let Some(outgoing) = self.outgoing.get_mut(&transfer) {
            outgoing.fly((rail, number), stretch, tries);
        }
    }

    /// Tells what has been taken if the peer should know, and nothing else has told it.
    fn answer(&mut self, now: Time, common: &mut Common) {
        let is_due = self.owes_answer
            || self.allowed - self.told_allowed >= common.settings.credit_bytes / 4
            || self.mailbox.taken() - self.told_taken >= WINDOW / 4;
        let asks = self.is_draining && self.asked < self.next_letter && !self.log.is_empty();
        if !is_due && !asks {
            return;
        }
        if let Some(rail) = self.rails.for_letters(MOST_UNDER_WAY, None) {
            let bytes = common.buffer(HEADER_BYTES);
            let choice = common.settings.sealing.choice(0);
            let header = Header { wants_answer: asks, ..blank(Kind::Bare, choice, seal::value(choice, &[])) };
            self.transmit(now, common, rail, (Load::Bare, 0), header, bytes);
            if asks {
                self.asked = self.next_letter;
            }
        }
    }

    /// The driver gives a parcel back.
    pub(super) fn landed(&mut self, now: Time, common: &mut Common, rail: RailIndex, bytes: Vec<u8>) {
        let needless = match self.rails.land(now, rail) {
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
        let outgoing = std::mem::take(&mut peer.outgoing).into_values().map(|outgoing| (outgoing.id, outgoing.data));
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

fn prepare(common: &mut Common, data: &[u8], stretch: Stretch) -> Prepared {
    let choice = common.settings.sealing.choice(stretch.length as usize);
    let mut parcel = common.buffer(HEADER_BYTES + stretch.length as usize);
    let from = stretch.offset as usize;
    let seal = seal::copy(choice, &data[from..from + stretch.length as usize], &mut parcel[HEADER_BYTES..]);
    Prepared { stretch, parcel, algorithm: seal::number(choice), seal }
}

fn blank(kind: Kind, choice: Option<checksum::tuning::Choice>, seal: u64) -> Header {
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
