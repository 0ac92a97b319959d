//! Which operations may be posted, which are in progress, and which are settled.
//!
//! Operations are numbered from 1, alike by all ranks, because all start them in the same order. Operation `n` uses channel
//! `n mod channels` of every rank: a signature record, a descriptor and a leaf. A rank *settles* an operation when it has
//! read all that it needs of the others' records, descriptors, leaves and slots, and has compared its signature:
//!
//! - in a barrier and an allreduce, and as a root, with that of every rank, or of a rank that has done so
//!   ([`super::shared_result`]);
//! - otherwise with that of its root.
//!
//! So if all ranks have settled an operation, all signatures were equal: each agrees with its root, that root therefore
//! considers itself the root, and has compared its signature with all others. Settled operations are counted in order,
//! without gaps. `n` may be posted when every rank has settled operation `n - channels`, the last user of the channel; a slot
//! may be reused when the others have settled its last user.
//!
//! Why no rank reads what is being overwritten: a rank's reads of channel `n mod channels` come before it publishes a count
//! of at least `n - channels` (its own counter, or the lag of a record; release), and the owner observes that count
//! (acquire) before it writes. Why no rank reads what is half written: a descriptor, its leaf and its slot are written before
//! the first word of the descriptor is published (release), and that word is observed (acquire) before anything else is
//! read. `loom_tests.rs` tries all orders.
//!
//! Why every rank learns of a mismatch: some rank does not settle the operation, so that no record of it is overwritten, and
//! a rank that has settled it blocks some operations later and looks back ([`OperationWindow::audit`]).

use std::collections::VecDeque;

use super::descriptor::CallSignature;
use super::team_memory::TeamMemory;
use crate::shared_word::SharedWord;

/// Records that are read at a time. Reading each record as soon as it is written would transfer its cache line each time.
const BATCH: usize = 16;

/// One rank's view of the operations of a team. Private to the rank; only a [`TeamMemory`] is shared.
pub(super) struct OperationWindow {
    rank: usize,
    channels: u64,
    /// The last started operation.
    started: u64,
    /// The last posted operation.
    posted: u64,
    /// All operations up to here are settled at this rank.
    settled: u64,
    /// Settled operations beyond that: bit 0 is operation `settled + 1`.
    ahead: u64,
    /// What each rank is known to have settled.
    known: Box<[u64]>,
    /// At most the minimum of `known`.
    floor: u64,
    /// Operations that are over for this rank, but of which not all signatures were compared.
    unchecked: VecDeque<UncheckedOperation>,
    /// The history of the broadcasts and reductions posted so far.
    history: u64,
}

/// The ranks whose signatures are to be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SignatureScope {
    AllRanks,
    Rank(usize),
}

/// How eagerly to compare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ComparisonEffort {
    /// Only full batches.
    FullBatches,
    Each,
}

#[derive(Clone, Copy)]
struct UncheckedOperation {
    number: u64,
    signature: CallSignature,
    scope: SignatureScope,
    /// With [`SignatureScope::AllRanks`]: the ranks below were compared, and one of them differs.
    seen: usize,
    differs: bool,
}

impl OperationWindow {
    pub(super) fn new(rank: usize, ranks: usize, channels: usize) -> Self {
        assert!(channels <= 64, "settled operations are tracked in 64 bits");
        Self {
            rank,
            channels: channels as u64,
            started: 0,
            posted: 0,
            settled: 0,
            ahead: 0,
            known: vec![0; ranks].into_boxed_slice(),
            floor: 0,
            unchecked: VecDeque::with_capacity(channels),
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

    /// Time to compare: half of the channels are held by operations that only wait for the comparison, or the oldest of them
    /// blocks this one.
    #[inline]
    pub(super) fn must_compare(&self, number: u64) -> bool {
        self.unchecked.len() as u64 * 2 >= self.channels || self.settled + self.channels < number
    }

    pub(super) fn has_unchecked(&self) -> bool {
        !self.unchecked.is_empty()
    }

    /// Whether an operation may be posted; if not, the rank that must act first.
    #[inline]
    pub(super) fn may_post(&mut self, memory: &impl TeamMemory, number: u64) -> Result<(), usize> {
        if number != self.posted + 1 {
            return Err(self.rank); // In order: an earlier operation waits for its channel.
        }
        if self.floor.saturating_add(self.channels) >= number {
            return Ok(());
        }
        if self.settled + self.channels < number {
            return Err(self.unchecked.front().map_or(self.rank, |oldest| self.awaited(oldest)));
        }
        self.others_have_settled(memory, number - self.channels)?;
        self.floor = self.known.iter().copied().min().unwrap_or(0);
        Ok(())
    }

    /// Whether all other ranks have settled all operations up to this one; if not, a rank that has not.
    #[inline]
    pub(super) fn others_have_settled(&mut self, memory: &impl TeamMemory, number: u64) -> Result<(), usize> {
        self.known[self.rank] = self.settled;
        for (rank, known) in self.known.iter_mut().enumerate().filter(|(rank, _)| *rank != self.rank) {
            if *known < number {
                *known = (*known).max(memory.settled(rank).observe());
            }
            if *known < number {
                return Err(rank);
            }
        }
        Ok(())
    }

    /// Whether all ranks are known to have settled all operations up to this one.
    #[inline]
    pub(super) fn knows_all_settled(&self, number: u64) -> bool {
        self.settled >= number && (0..self.known.len()).all(|rank| rank == self.rank || self.known[rank] >= number)
    }

    /// Records an operation that may be posted, and posts its descriptor if it has a payload. Its slot, if it uses one, is
    /// written before. Returns the history of earlier operations.
    #[inline]
    pub(super) fn post(
        &mut self,
        memory: &impl TeamMemory,
        number: u64,
        signature: CallSignature,
        payload: Option<&[u8]>,
    ) -> u64 {
        let history = self.history;
        debug_assert_eq!(number, self.posted + 1);
        let (channel, lag) = (self.channel(number), number - self.settled);
        // The record first: a rank that sees the descriptor may read it.
        memory.signature_record(self.rank, channel).publish(number, lag, signature);
        if let Some(payload) = payload {
            memory.descriptor(self.rank, channel).publish(number, lag, signature, payload, history);
        }
        if signature.is_rooted() {
            self.history = signature.after(history, number);
        }
        self.posted = number;
        history
    }

    /// The signature of a rank's operation, once it has posted the descriptor.
    #[inline]
    pub(super) fn observe(&mut self, memory: &impl TeamMemory, rank: usize, number: u64) -> Option<CallSignature> {
        let (signature, lag) = memory.descriptor(rank, self.channel(number)).observe(number)?;
        self.learn(rank, number.saturating_sub(lag));
        Some(signature)
    }

    /// The signature of a rank's operation, once it has recorded it.
    #[inline]
    pub(super) fn read_signature(
        &mut self,
        memory: &impl TeamMemory,
        rank: usize,
        number: u64,
    ) -> Option<CallSignature> {
        let (signature, lag) = memory.signature_record(rank, self.channel(number)).observe(number)?;
        self.learn(rank, number.saturating_sub(lag));
        Some(signature)
    }

    #[inline]
    fn learn(&mut self, rank: usize, settled: u64) {
        let known = &mut self.known[rank];
        *known = (*known).max(settled);
    }

    /// The operation is over for this rank, but some signatures are still to be compared.
    pub(super) fn defer_comparison(&mut self, number: u64, signature: CallSignature, scope: SignatureScope) {
        self.unchecked.push_back(UncheckedOperation { number, signature, scope, seen: 0, differs: false });
    }

    /// The operation is over, and this rank has compared all signatures it must.
    #[inline]
    pub(super) fn settle(&mut self, memory: &impl TeamMemory, number: u64) {
        debug_assert!(number > self.settled && number - self.settled <= 64);
        self.ahead |= 1 << (number - self.settled - 1);
        let run = self.ahead.trailing_ones();
        if run > 0 {
            self.ahead = self.ahead.checked_shr(run).unwrap_or(0);
            self.settled += u64::from(run);
            memory.settled(self.rank).publish(self.settled);
        }
    }

    /// Compares the signatures of operations that are over, as far as they are recorded. True if any operation was settled.
    ///
    /// # Errors
    /// The number of an operation that all ranks have recorded with different signatures.
    pub(super) fn compare_unchecked(
        &mut self,
        memory: &impl TeamMemory,
        effort: ComparisonEffort,
    ) -> Result<bool, u64> {
        if effort == ComparisonEffort::FullBatches && !self.has_full_batch(memory) {
            return Ok(false);
        }
        let mut any_settled = false;
        while let Some(&oldest) = self.unchecked.front() {
            let number = oldest.number;
            match self.compare(memory, oldest) {
                Some(false) => {}
                Some(true) => return Err(number),
                None => break,
            }
            self.unchecked.pop_front();
            self.settle(memory, number);
            any_settled = true;
        }
        Ok(any_settled)
    }

    /// Many operations can probably be compared: the rank that the oldest waits for has recorded a much younger one. Also true
    /// if there are few.
    fn has_full_batch(&mut self, memory: &impl TeamMemory) -> bool {
        let Some((oldest, young)) = self.unchecked.front().zip(self.unchecked.get(BATCH - 1)) else { return true };
        let (rank, number) = (self.awaited(oldest), young.number);
        rank == self.rank || self.read_signature(memory, rank, number).is_some()
    }

    /// The rank whose signature is compared next; this rank if none is left.
    fn awaited(&self, unchecked: &UncheckedOperation) -> usize {
        match unchecked.scope {
            SignatureScope::Rank(rank) => rank,
            SignatureScope::AllRanks => {
                (unchecked.seen..self.known.len()).find(|&rank| rank != self.rank).unwrap_or(self.rank)
            }
        }
    }

    /// Whether the signature of any rank differs from that of this rank in the oldest operation; none if not all are recorded.
    fn compare(&mut self, memory: &impl TeamMemory, mut oldest: UncheckedOperation) -> Option<bool> {
        if let SignatureScope::Rank(rank) = oldest.scope {
            if self.read_signature(memory, rank, oldest.number)? == oldest.signature {
                return Some(false);
            }
            oldest.scope = SignatureScope::AllRanks; // So that all ranks report the same two signatures.
        }
        while oldest.seen < self.known.len() {
            if oldest.seen != self.rank {
                let Some(signature) = self.read_signature(memory, oldest.seen, oldest.number) else {
                    self.unchecked[0] = oldest;
                    return None;
                };
                oldest.differs |= signature != oldest.signature;
            }
            oldest.seen += 1;
        }
        Some(oldest.differs)
    }

    /// All ranks have posted this operation with the same history: the earlier ones need no comparison.
    #[inline]
    pub(super) fn accept_before(&mut self, memory: &impl TeamMemory, number: u64) {
        while let Some(oldest) = self.unchecked.front().map(|oldest| oldest.number).filter(|&oldest| oldest < number)
        {
            self.unchecked.pop_front();
            self.settle(memory, oldest);
        }
    }

    /// Looks back at operations that this rank has settled and another has not: its signature may differ.
    ///
    /// # Errors
    /// The number of an operation that all ranks have recorded with different signatures.
    pub(super) fn audit(&mut self, memory: &impl TeamMemory) -> Result<(), u64> {
        let _ = self.others_have_settled(memory, self.posted);
        let floor = self.known.iter().copied().min().unwrap_or(0);
        for number in floor + 1..=self.posted.min(floor.saturating_add(self.channels)) {
            let is_settled = number <= self.settled || self.ahead >> (number - self.settled - 1) & 1 == 1;
            let Some((mine, _)) = memory.signature_record(self.rank, self.channel(number)).observe(number) else {
                continue;
            };
            // All ranks learn of other mismatches when they occur.
            if is_settled && mine.is_rooted() {
                let mut differs = false;
                let mut is_complete = true;
                for rank in 0..self.known.len() {
                    let signature = self.read_signature(memory, rank, number);
                    is_complete &= signature.is_some();
                    differs |= signature.is_some_and(|signature| signature != mine);
                }
                if is_complete && differs {
                    return Err(number);
                }
            }
        }
        Ok(())
    }
}
