//! Finding out whether the ranks agree, where an operation by itself does not tell.
//!
//! A barrier and an allreduce compare everyone's claims before anything is done. Broadcasts and reductions do not, to be quicker:
//! their claims are compared later ([`super::window`]), when a rank hears of the others, looks back or waits in vain. All ranks
//! see the same notes and so come to the same verdict.

use super::descriptor::TeamVerb;
use super::error::TeamError;
use super::operation::{OperationStage, TeamOperation, TeamProgress};
use super::shared_word::TeamMemory;
use super::team::Team;
use super::window::{ComparisonEffort, SignatureScope};

/// How often an operation pauses before the reason is looked for. Often enough that a disagreement is found within a
/// millisecond; seldom enough that those who only have to wait a little do not disturb those they wait for.
const LOOK_EVERY: u32 = 256;

impl Team {
    /// The operation cannot go on. From time to time, looks around for the reason.
    #[inline]
    pub(super) fn pause(&mut self, operation: &mut TeamOperation) -> Result<TeamProgress, TeamError> {
        self.pauses = self.pauses.wrapping_add(1);
        if self.pauses.is_multiple_of(LOOK_EVERY) {
            self.look_around(operation)?;
        }
        Ok(TeamProgress::Pending)
    }

    /// Finds out whether this operation, or one before it, waits in vain because the ranks do not agree.
    #[cold]
    pub(super) fn look_around(&mut self, operation: &mut TeamOperation) -> Result<(), TeamError> {
        self.hear(ComparisonEffort::ToEach)?;
        self.audit()?;
        if operation.stage != OperationStage::Posted || operation.differs && operation.verb == TeamVerb::Broadcast {
            return Ok(());
        }
        // A rank that takes its part for another may never post what is waited for. But it has noted what it claims.
        let number = operation.number;
        if operation.verb == TeamVerb::Broadcast {
            let claim = self.window.read_note(&self.region, operation.root(), number);
            if claim.is_some_and(|claim| claim != operation.claim) {
                operation.differs = true;
                self.window.leave(number, operation.claim, SignatureScope::Everyones);
                self.hear(ComparisonEffort::ToEach)?;
            }
            return Ok(());
        }
        while usize::from(operation.seen) < self.ranks {
            if usize::from(operation.seen) != self.rank {
                match self.window.read_note(&self.region, operation.seen.into(), number) {
                    Some(claim) if claim != operation.claim => operation.differs = true,
                    _ => break,
                }
            }
            operation.seen += 1;
        }
        Ok(())
    }

    /// Everyone has come. Did all agree on what went before, where not everyone compared its claim with everyone's?
    #[inline]
    pub(super) fn look_back(&mut self, operation: &TeamOperation) -> Result<(), TeamError> {
        let (number, channel) = (operation.number, self.window.channel(operation.number));
        if !operation.tells_history() || !operation.shows(self.rank) {
            return Ok(());
        }
        // Not by reading our own post: its cache line is elsewhere by now.
        let agrees = |rank| self.region.post(rank, channel).history() == operation.history;
        if (0..self.ranks).all(|rank| rank == self.rank || agrees(rank)) {
            self.window.trust_before(&self.region, number);
            return Ok(());
        }
        self.hear(ComparisonEffort::ToEach)?;
        self.audit()
    }

    /// This rank gives up in the middle of an operation.
    #[cold]
    pub(super) fn abandon(&mut self, operation: &TeamOperation) {
        self.broken.get_or_insert(TeamError::Abandoned { operation: operation.number });
        self.retract(operation);
    }

    /// Compares what others said about operations that are over.
    pub(super) fn hear(&mut self, listen: ComparisonEffort) -> Result<(), TeamError> {
        if !self.window.has_unheard() {
            return Ok(());
        }
        match self.window.hear(&self.region, listen) {
            Ok(settled_any) => {
                if settled_any {
                    self.region.bell(self.rank).ring();
                }
                Ok(())
            }
            Err(number) => Err(self.judge(number)),
        }
    }

    /// Compares what all said about operations that are over, where this rank had no need to.
    fn audit(&mut self) -> Result<(), TeamError> {
        self.window.audit(&self.region).map_err(|number| self.judge(number))
    }

    /// All have posted this operation, and not all claim the same. Every rank sees the same claims and so says the same.
    #[cold]
    pub(super) fn judge(&mut self, number: u64) -> TeamError {
        let channel = self.window.channel(number);
        let claims: Vec<_> =
            (0..self.ranks).filter_map(|rank| self.region.note(rank, channel).observe(number)).collect();
        let first = claims.first().map(|(first, _)| *first);
        let odd = claims.iter().position(|(claim, _)| Some(*claim) != first);
        let (Some(first), Some(rank), true) = (first, odd, claims.len() == self.ranks) else {
            self.broken = Some(TeamError::Garbled { operation: number });
            return TeamError::Garbled { operation: number };
        };
        let error = TeamError::Mismatch { operation: number, first, rank: rank as u16, other: claims[rank].0 };
        if claims.iter().any(|(claim, _)| claim.is_rooted()) {
            self.broken = Some(error);
        } else {
            self.window.settle(&self.region, number);
        }
        self.region.bell(self.rank).ring();
        error
    }
}
