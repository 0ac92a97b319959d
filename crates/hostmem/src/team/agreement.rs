//! Checks that all ranks call the same operations, where an operation by itself does not show it.
//!
//! A barrier and an allreduce compare the signatures of all ranks before anything else. Broadcasts and reductions do not, to
//! be faster: their signatures are compared later ([`super::window`]), in a batch, by an audit, or when a rank waits in
//! vain. All ranks see the same signature records and so report the same mismatch.

use super::descriptor::TeamVerb;
use super::error::TeamError;
use super::local_team::Team;
use super::operation::{OperationStage, TeamOperation, TeamProgress};
use super::team_memory::TeamMemory;
use super::window::{ComparisonEffort, SignatureScope};

/// Polls of a blocked operation between two searches for a mismatch. Often enough to find a mismatch within a millisecond;
/// seldom enough that a rank that waits briefly does not disturb the ranks it waits for.
const LOOK_EVERY: u32 = 256;

impl Team {
    /// The operation is blocked. Searches for a mismatch from time to time.
    #[inline]
    pub(super) fn pause(&mut self, operation: &mut TeamOperation) -> Result<TeamProgress, TeamError> {
        self.pauses = self.pauses.wrapping_add(1);
        if self.pauses.is_multiple_of(LOOK_EVERY) {
            self.look_for_mismatch(operation)?;
        }
        Ok(TeamProgress::Pending)
    }

    /// Finds out whether this operation, or an earlier one, waits in vain because the ranks disagree.
    #[cold]
    pub(super) fn look_for_mismatch(&mut self, operation: &mut TeamOperation) -> Result<(), TeamError> {
        self.compare_unchecked(ComparisonEffort::Each)?;
        self.audit()?;
        if operation.stage != OperationStage::Posted || operation.differs && operation.verb == TeamVerb::Broadcast {
            return Ok(());
        }
        // A rank with another operation may never post the awaited descriptor. But it has recorded its signature.
        let number = operation.number;
        if operation.verb == TeamVerb::Broadcast {
            let signature = self.window.read_signature(&self.region, operation.root(), number);
            if signature.is_some_and(|signature| signature != operation.signature) {
                operation.differs = true;
                self.window.defer_comparison(number, operation.signature, SignatureScope::AllRanks);
                self.compare_unchecked(ComparisonEffort::Each)?;
            }
            return Ok(());
        }
        while usize::from(operation.seen) < self.ranks {
            if usize::from(operation.seen) != self.rank {
                match self.window.read_signature(&self.region, operation.seen.into(), number) {
                    Some(signature) if signature != operation.signature => operation.differs = true,
                    _ => break,
                }
            }
            operation.seen += 1;
        }
        Ok(())
    }

    /// All ranks have posted. Checks that they agreed on earlier operations, of which not every rank compared all signatures.
    #[inline]
    pub(super) fn check_history(&mut self, operation: &TeamOperation) -> Result<(), TeamError> {
        let (number, channel) = (operation.number, self.window.channel(operation.number));
        if !operation.carries_history() || !operation.posts_descriptor(self.rank) {
            return Ok(());
        }
        // Without reading this rank's own descriptor: its cache line is elsewhere by now.
        let agrees = |rank| self.region.descriptor(rank, channel).history() == operation.history;
        if (0..self.ranks).all(|rank| rank == self.rank || agrees(rank)) {
            self.window.accept_before(&self.region, number);
            return Ok(());
        }
        self.compare_unchecked(ComparisonEffort::Each)?;
        self.audit()
    }

    /// This rank abandons an operation.
    #[cold]
    pub(super) fn abandon(&mut self, operation: &TeamOperation) {
        self.broken.get_or_insert(TeamError::Abandoned { operation: operation.number });
        self.withdraw_buffers(operation);
    }

    /// Compares the signatures of operations that are over.
    pub(super) fn compare_unchecked(&mut self, effort: ComparisonEffort) -> Result<(), TeamError> {
        if !self.window.has_unchecked() {
            return Ok(());
        }
        match self.window.compare_unchecked(&self.region, effort) {
            Ok(any_settled) => {
                if any_settled {
                    self.region.futex(self.rank).wake();
                }
                Ok(())
            }
            Err(number) => Err(self.mismatch_error(number)),
        }
    }

    /// Compares the signatures of operations that this rank has settled without comparing all of them.
    fn audit(&mut self) -> Result<(), TeamError> {
        self.window.audit(&self.region).map_err(|number| self.mismatch_error(number))
    }

    /// The error for an operation that all ranks have posted with different signatures. Every rank sees the same signatures and
    /// so returns the same error.
    #[cold]
    pub(super) fn mismatch_error(&mut self, number: u64) -> TeamError {
        let channel = self.window.channel(number);
        let signatures: Vec<_> =
            (0..self.ranks).filter_map(|rank| self.region.signature_record(rank, channel).observe(number)).collect();
        let first = signatures.first().map(|(first, _)| *first);
        let odd = signatures.iter().position(|(signature, _)| Some(*signature) != first);
        let (Some(first), Some(rank), true) = (first, odd, signatures.len() == self.ranks) else {
            self.broken = Some(TeamError::CorruptMemory { operation: number });
            return TeamError::CorruptMemory { operation: number };
        };
        let error = TeamError::Mismatch { operation: number, first, rank: rank as u16, other: signatures[rank].0 };
        if signatures.iter().any(|(signature, _)| signature.is_rooted()) {
            self.broken = Some(error);
        } else {
            self.window.settle(&self.region, number);
        }
        self.region.futex(self.rank).wake();
        error
    }
}
