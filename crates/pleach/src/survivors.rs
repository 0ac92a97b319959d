//! Going on after ranks are lost: revoking a communicator, agreement of those that are left, and a communicator of them.

use std::time::Duration;

use units::GroupId;

use crate::communicator::Communicator;
use crate::error::{Error, JoinError};
use crate::failure_agreement::MAX_REASON_CHARS;
use crate::formation::form;
use crate::survivor_agreement::AgreementOutcome;

/// How often a rank looks whether all others have voted.
const VOTE_POLL: Duration = Duration::from_micros(200);
/// A communicator of survivors is formed again if another rank is lost meanwhile, at most so often.
const MAX_SHRINK_ATTEMPTS: u32 = 16;

impl Communicator {
    /// Revokes this communicator: every operation that a rank has in flight in it, or starts later, fails with this reason.
    /// [`Self::agree`] and [`Self::shrink`] still work. Not collective, and returns at once.
    pub fn revoke(&self, why: &str) {
        self.inner().announce_failure(&Error::Revoked { why: why.chars().take(MAX_REASON_CHARS).collect() });
    }

    /// Agrees with all ranks of this communicator that are not lost, also if it has failed: returns the bits that all of them have set.
    /// Blocks until every rank that is left has called it. All ranks that are left get the same bits, whoever is lost meanwhile.
    ///
    /// # Errors
    /// If this process is cut off from most of its job.
    pub fn agree(&self, bits: u64) -> Result<u64, Error> {
        self.vote(bits).map(|outcome| outcome.bits)
    }

    /// A communicator of those ranks of this one that are not lost, in the same order. Collective over them, also if this one has failed.
    ///
    /// ```
    /// use pleach::{Error, Operator};
    ///
    /// let mut world = pleach::join()?;
    /// loop {
    ///     let mut sum = [1.0_f64];
    ///     match world.all_reduce(&mut sum, Operator::Sum) {
    ///         Err(Error::RanksLost { ranks }) => {
    ///             eprintln!("going on without {ranks:?}");
    ///             world = world.shrink()?;
    ///         }
    ///         result => break result?,
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If this process is cut off from most of its job, or the new communicator cannot be formed.
    pub fn shrink(&self) -> Result<Self, JoinError> {
        let process = self.inner().process();
        let mut last = None;
        for _ in 0..MAX_SHRINK_ATTEMPTS {
            let outcome = self.vote(u64::MAX)?;
            process.reserve_context(outcome.context);
            let ranks = self.inner().world_ranks().iter().copied();
            let survivors = ranks.filter(|rank| outcome.includes(*rank)).collect();
            let formed = form(process, GroupId(outcome.context), survivors);
            // Another rank may be lost meanwhile: either all get the communicator, or all try again.
            if self.agree(u64::from(formed.is_ok()))? == 1 {
                return formed.map(Self::new);
            }
            last = formed.err();
        }
        Err(last.unwrap_or_else(|| Error::internal("the ranks that are left could not form a communicator").into()))
    }

    fn vote(&self, bits: u64) -> Result<AgreementOutcome, Error> {
        let inner = self.inner();
        let process = inner.process();
        let _in_library = process.activity.enter();
        let ranks = inner.world_ranks();
        let number = process.shared.engine().vote((inner.context(), ranks), bits, process.next_context());
        loop {
            let mut engine = process.shared.engine();
            engine.progress();
            engine.poll_events();
            if let Some(outcome) = engine.agreement_outcome(inner.context(), number) {
                return outcome;
            }
            drop(engine);
            process.shared.call_progress_callback();
            std::thread::sleep(VOTE_POLL);
        }
    }
}
