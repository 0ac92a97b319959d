//! Which operations may be posted, which are under way, and which are settled.
//!
//! Operations are numbered from 1 on, alike by all ranks, since all start them in the same order. Operation `n` uses channel
//! `n mod channels` of every rank: a post and a slot for payload. A rank *settles* an operation when it has read all that it
//! wants of the others' posts and slots, and has compared every claim with its own. Settled operations are counted in order,
//! without gaps; `n` may be posted when every rank has settled operation `n - channels`, the last user of the channel.
//!
//! Why nobody reads what is being overwritten: a rank's reads of channel `n mod channels` come before it publishes a count
//! of at least `n - channels` (its own tally, or the lag of a post; release), and the owner observes that count (acquire)
//! before it writes. Why nobody reads what is half written: all of a post and its slot is written before its first word
//! is published (release), and that word is observed (acquire) before anything else is read. `models.rs` tries all orders.

use super::post::Claim;
use super::word::{Board, Word};

/// One rank's view of the operations of a team. Private to the rank; only what goes through a [`Board`] is shared.
pub(super) struct Window {
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
    unheard: Vec<Unheard>,
}

struct Unheard {
    number: u64,
    claim: Claim,
    /// The claims of ranks below have been seen.
    seen: usize,
    differs: bool,
}

impl Window {
    pub(super) fn new(rank: usize, ranks: usize, channels: usize) -> Self {
        assert!(channels <= 64, "settled operations are kept in 64 bits");
        let known = vec![0; ranks].into_boxed_slice();
        let unheard = Vec::with_capacity(channels);
        Self {
            rank,
            channels: channels as u64,
            started: 0,
            posted: 0,
            settled: 0,
            ahead: 0,
            known,
            floor: 0,
            unheard,
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

    /// Half of the channels are taken by operations that only wait to be compared: time to do it.
    pub(super) fn is_crowded(&self) -> bool {
        self.unheard.len() as u64 * 2 >= self.channels
    }

    pub(super) fn has_unheard(&self) -> bool {
        !self.unheard.is_empty()
    }

    /// Whether an operation may be posted; if not, the rank that must do something first.
    #[inline]
    pub(super) fn may_post(&mut self, board: &impl Board, number: u64) -> Result<(), usize> {
        if number != self.posted + 1 {
            return Err(self.rank); // In order: an earlier one waits for its channel.
        }
        if self.floor.saturating_add(self.channels) >= number {
            return Ok(());
        }
        self.known[self.rank] = self.settled;
        for (rank, known) in self.known.iter_mut().enumerate() {
            if known.saturating_add(self.channels) < number && rank != self.rank {
                *known = (*known).max(board.settled(rank).observe());
            }
            if known.saturating_add(self.channels) < number {
                return Err(rank);
            }
        }
        self.floor = self.known.iter().copied().min().unwrap_or(0);
        Ok(())
    }

    /// Posts an operation that may be posted. Its slot, if it uses one, has been written.
    #[inline]
    pub(super) fn post(&mut self, board: &impl Board, number: u64, claim: Claim, payload: &[u8]) {
        debug_assert_eq!(number, self.posted + 1);
        board.post(self.rank, self.channel(number)).publish(number, number - self.settled, claim, payload);
        self.posted = number;
    }

    /// What a rank claims about an operation, once it has posted it.
    #[inline]
    pub(super) fn observe(&mut self, board: &impl Board, rank: usize, number: u64) -> Option<Claim> {
        let (claim, lag) = board.post(rank, self.channel(number)).observe(number)?;
        let known = &mut self.known[rank];
        *known = (*known).max(number.saturating_sub(lag));
        Some(claim)
    }

    /// The operation is over for this rank, but some ranks have not been heard.
    pub(super) fn leave(&mut self, number: u64, claim: Claim) {
        self.unheard.push(Unheard { number, claim, seen: 0, differs: false });
    }

    /// The operation is over and all claims were compared.
    #[inline]
    pub(super) fn settle(&mut self, board: &impl Board, number: u64) {
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
    pub(super) fn hear(&mut self, board: &impl Board) -> Result<bool, u64> {
        let mut settled_any = false;
        while let Some(oldest) = self.unheard.first() {
            let (number, claim, mut seen, mut differs) = (oldest.number, oldest.claim, oldest.seen, oldest.differs);
            while seen < self.known.len() {
                if seen != self.rank {
                    let Some(other) = self.observe(board, seen, number) else { break };
                    differs |= other != claim;
                }
                seen += 1;
            }
            if seen < self.known.len() {
                (self.unheard[0].seen, self.unheard[0].differs) = (seen, differs);
                break;
            }
            if differs {
                return Err(number);
            }
            self.unheard.remove(0);
            self.settle(board, number);
            settled_any = true;
        }
        Ok(settled_any)
    }
}
