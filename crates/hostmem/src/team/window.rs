//! Which operations may be posted, which are under way, and which are settled.
//!
//! Operations are numbered from 1 on, alike by all ranks, since all start them in the same order. Operation `n` uses channel
//! `n mod channels` of every rank: a note, a post and a leaf. A rank *settles* an operation when it has read all that it wants of the
//! others' notes, posts, leaves and slots, and has compared its claim:
//!
//! - in a barrier and an allreduce, and as a root, with everyone's, or that of a rank that has ([`super::shared_result`]);
//! - otherwise with its root's.
//!
//! So if all ranks have settled an operation, all claimed the same: each agrees with its root, that root therefore takes itself
//! for the root, and has compared its claim with everyone's. Settled operations are counted in order, without gaps. `n` may be
//! posted when every rank has settled operation `n - channels`, the last user of the channel; a slot may be used again when the
//! others have settled its last user.
//!
//! Why nobody reads what is being overwritten: a rank's reads of channel `n mod channels` come before it publishes a count
//! of at least `n - channels` (its own tally, or the lag of a note; release), and the owner observes that count (acquire)
//! before it writes. Why nobody reads what is half written: all of a post, its leaf and its slot is written before its first word
//! is published (release), and that word is observed (acquire) before anything else is read. `models.rs` tries all orders.
//!
//! Why everyone hears of a disagreement: someone does not settle the operation, so that nobody overwrites a note of it, and
//! whoever has settled it comes to a standstill some operations later and looks back ([`OperationWindow::audit`]).

use std::collections::VecDeque;

use super::descriptor::CallSignature;
use super::shared_word::{SharedWord, TeamMemory};

/// Notes that are read at a time. A note that is read as soon as it is written makes its cache line travel for each.
const BATCH: usize = 16;

/// One rank's view of the operations of a team. Private to the rank; only what goes through a [`TeamMemory`] is shared.
pub(super) struct OperationWindow {
    rank: usize,
    channels: u64,
    /// The last operation that was started.
    started: u64,
    /// The last that was posted.
    posted: u64,
    /// All up to here are settled at this rank.
    settled: u64,
    /// Settled beyond that: bit 0 is operation `settled + 1`.
    ahead: u64,
    /// What each rank was last known to have settled.
    known: Box<[u64]>,
    /// The least of `known`, or less.
    floor: u64,
    /// Operations that are over for this rank, except that not every claim has been compared.
    unheard: VecDeque<UncheckedOperation>,
    /// Of the broadcasts and reductions that were posted.
    history: u64,
}

/// Whose claims are to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignatureScope {
    Everyones,
    Of(usize),
}

/// How hard to listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ComparisonEffort {
    /// Only if much has been said.
    ToBatches,
    ToEach,
}

#[derive(Clone, Copy)]
struct UncheckedOperation {
    number: u64,
    claim: CallSignature,
    whose: SignatureScope,
    /// If everyone's: the claims of ranks below have been seen, and one of them differs.
    seen: usize,
    differs: bool,
}

impl OperationWindow {
    pub(super) fn new(rank: usize, ranks: usize, channels: usize) -> Self {
        assert!(channels <= 64, "settled operations are kept in 64 bits");
        Self {
            rank,
            channels: channels as u64,
            started: 0,
            posted: 0,
            settled: 0,
            ahead: 0,
            known: vec![0; ranks].into_boxed_slice(),
            floor: 0,
            unheard: VecDeque::with_capacity(channels),
            history: 0,
        }
    }

    /// The number of the next operation.
    pub(super) fn start(&mut self) -> u64 {
        self.started += 1;
        self.started
    }

    pub(super) fn channel(&self, number: u64) -> usize {
        (number % self.channels) as usize
    }

    /// Time to hear: half of the channels are taken by operations that only wait to be compared, or the oldest of them is in the
    /// way of this one.
    #[inline]
    pub(super) fn must_hear(&self, number: u64) -> bool {
        self.unheard.len() as u64 * 2 >= self.channels || self.settled + self.channels < number
    }

    pub(super) fn has_unheard(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// Whether an operation may be posted; if not, the rank that must do something first.
    #[inline]
    pub(super) fn may_post(&mut self, board: &impl TeamMemory, number: u64) -> Result<(), usize> {
        if number != self.posted + 1 {
            return Err(self.rank); // In order: an earlier one waits for its channel.
        }
        if self.floor.saturating_add(self.channels) >= number {
            return Ok(());
        }
        if self.settled + self.channels < number {
            return Err(self.unheard.front().map_or(self.rank, |oldest| self.awaited(oldest)));
        }
        self.others_have_settled(board, number - self.channels)?;
        self.floor = self.known.iter().copied().min().unwrap_or(0);
        Ok(())
    }

    /// Whether all others have settled all operations up to this one; if not, a rank that has not.
    #[inline]
    pub(super) fn others_have_settled(&mut self, board: &impl TeamMemory, number: u64) -> Result<(), usize> {
        self.known[self.rank] = self.settled;
        for (rank, known) in self.known.iter_mut().enumerate().filter(|(rank, _)| *rank != self.rank) {
            if *known < number {
                *known = (*known).max(board.settled(rank).observe());
            }
            if *known < number {
                return Err(rank);
            }
        }
        Ok(())
    }

    /// Whether all are known to have settled all operations up to this one.
    #[inline]
    pub(super) fn knows_settled(&self, number: u64) -> bool {
        self.settled >= number && (0..self.known.len()).all(|rank| rank == self.rank || self.known[rank] >= number)
    }

    /// Notes an operation that may be posted, and shows a post if there is one: its payload. Its slot, if it uses one, has been
    /// written. The history of what was posted before.
    #[inline]
    pub(super) fn post(
        &mut self,
        board: &impl TeamMemory,
        number: u64,
        claim: CallSignature,
        payload: Option<&[u8]>,
    ) -> u64 {
        let history = self.history;
        debug_assert_eq!(number, self.posted + 1);
        let (channel, lag) = (self.channel(number), number - self.settled);
        // The note first: whoever sees the post may read it.
        board.note(self.rank, channel).publish(number, lag, claim);
        if let Some(payload) = payload {
            board.post(self.rank, channel).publish(number, lag, claim, payload, history);
        }
        if claim.is_rooted() {
            self.history = claim.after(history, number);
        }
        self.posted = number;
        history
    }

    /// What a rank claims about an operation, once it has posted it.
    #[inline]
    pub(super) fn observe(&mut self, board: &impl TeamMemory, rank: usize, number: u64) -> Option<CallSignature> {
        let (claim, lag) = board.post(rank, self.channel(number)).observe(number)?;
        self.learn(rank, number.saturating_sub(lag));
        Some(claim)
    }

    /// What a rank claims about an operation, once it has noted it.
    #[inline]
    pub(super) fn read_note(&mut self, board: &impl TeamMemory, rank: usize, number: u64) -> Option<CallSignature> {
        let (claim, lag) = board.note(rank, self.channel(number)).observe(number)?;
        self.learn(rank, number.saturating_sub(lag));
        Some(claim)
    }

    #[inline]
    fn learn(&mut self, rank: usize, settled: u64) {
        let known = &mut self.known[rank];
        *known = (*known).max(settled);
    }

    /// The operation is over for this rank, but some claims have not been compared.
    pub(super) fn leave(&mut self, number: u64, claim: CallSignature, whose: SignatureScope) {
        self.unheard.push_back(UncheckedOperation { number, claim, whose, seen: 0, differs: false });
    }

    /// The operation is over and all claims were compared that this rank must compare.
    #[inline]
    pub(super) fn settle(&mut self, board: &impl TeamMemory, number: u64) {
        debug_assert!(number > self.settled && number - self.settled <= 64);
        self.ahead |= 1 << (number - self.settled - 1);
        let run = self.ahead.trailing_ones();
        if run > 0 {
            self.ahead = self.ahead.checked_shr(run).unwrap_or(0);
            self.settled += u64::from(run);
            board.settled(self.rank).publish(self.settled);
        }
    }

    /// Compares claims of operations that are over, as far as they have come. True if any operation was settled.
    ///
    /// # Errors
    /// The number of an operation about which all have spoken and not all said the same.
    pub(super) fn hear(&mut self, board: &impl TeamMemory, listen: ComparisonEffort) -> Result<bool, u64> {
        if listen == ComparisonEffort::ToBatches && !self.is_batch_there(board) {
            return Ok(false);
        }
        let mut settled_any = false;
        while let Some(&oldest) = self.unheard.front() {
            let number = oldest.number;
            match self.compare(board, oldest) {
                Some(false) => {}
                Some(true) => return Err(number),
                None => break,
            }
            self.unheard.pop_front();
            self.settle(board, number);
            settled_any = true;
        }
        Ok(settled_any)
    }

    /// Many of the operations can probably be compared: the rank that the oldest waits for has noted one that is much younger.
    /// Or there are not many.
    fn is_batch_there(&mut self, board: &impl TeamMemory) -> bool {
        let Some((oldest, young)) = self.unheard.front().zip(self.unheard.get(BATCH - 1)) else { return true };
        let (rank, number) = (self.awaited(oldest), young.number);
        rank == self.rank || self.read_note(board, rank, number).is_some()
    }

    /// Whose claim is to be compared next. Our own if there is none left.
    fn awaited(&self, unheard: &UncheckedOperation) -> usize {
        match unheard.whose {
            SignatureScope::Of(rank) => rank,
            SignatureScope::Everyones => {
                (unheard.seen..self.known.len()).find(|&rank| rank != self.rank).unwrap_or(self.rank)
            }
        }
    }

    /// Whether anyone claims something else than this rank did in the oldest operation, if that is known yet.
    fn compare(&mut self, board: &impl TeamMemory, mut oldest: UncheckedOperation) -> Option<bool> {
        if let SignatureScope::Of(rank) = oldest.whose {
            if self.read_note(board, rank, oldest.number)? == oldest.claim {
                return Some(false);
            }
            oldest.whose = SignatureScope::Everyones; // So that all ranks can name the same two claims.
        }
        while oldest.seen < self.known.len() {
            if oldest.seen != self.rank {
                let Some(claim) = self.read_note(board, oldest.seen, oldest.number) else {
                    self.unheard[0] = oldest;
                    return None;
                };
                oldest.differs |= claim != oldest.claim;
            }
            oldest.seen += 1;
        }
        Some(oldest.differs)
    }

    /// All have posted this operation, and with the same history. So all earlier ones need not be compared.
    #[inline]
    pub(super) fn trust_before(&mut self, board: &impl TeamMemory, number: u64) {
        while let Some(oldest) = self.unheard.front().map(|oldest| oldest.number).filter(|&oldest| oldest < number) {
            self.unheard.pop_front();
            self.settle(board, oldest);
        }
    }

    /// Looks back at operations that this rank has settled and another has not: perhaps it claims something else.
    ///
    /// # Errors
    /// The number of an operation about which all have spoken and not all said the same.
    pub(super) fn audit(&mut self, board: &impl TeamMemory) -> Result<(), u64> {
        let _ = self.others_have_settled(board, self.posted);
        let floor = self.known.iter().copied().min().unwrap_or(0);
        for number in floor + 1..=self.posted.min(floor.saturating_add(self.channels)) {
            let is_settled = number <= self.settled || self.ahead >> (number - self.settled - 1) & 1 == 1;
            let Some((mine, _)) = board.note(self.rank, self.channel(number)).observe(number) else { continue };
            // Other disagreements are heard by all when they occur.
            if is_settled && mine.is_rooted() {
                let mut differs = false;
                let mut is_complete = true;
                for rank in 0..self.known.len() {
                    let claim = self.read_note(board, rank, number);
                    is_complete &= claim.is_some();
                    differs |= claim.is_some_and(|claim| claim != mine);
                }
                if is_complete && differs {
                    return Err(number);
                }
            }
        }
        Ok(())
    }
}
