//! The rounds of a schedule, computed once for many operations.
//!
//! A pattern computes each step when it is asked for, so that the schedules of a million ranks need no memory. A process that runs the same short
//! operation over and over asks for the same steps each time; here they lie in a table.

use super::step::{ReceiveStep, RoundEnd, SendStep};

/// A table of more steps is not worth its memory: the vector is long then, or the group large.
const MAX_STEPS: usize = 1 << 10;

/// The steps of all rounds of one rank.
#[derive(Debug)]
pub(super) struct CompiledRounds {
    rounds: Vec<CompiledRound>,
    sends: Vec<SendStep>,
    receives: Vec<ReceiveStep>,
}

/// Where the steps of a round end in the lists; they begin where those of the round before end.
#[derive(Clone, Copy, Debug)]
struct CompiledRound {
    sends: usize,
    receives: usize,
    end: RoundEnd,
    /// The first round, from this one on, that may have steps.
    next: u32,
}

impl CompiledRounds {
    /// A table without rounds.
    pub(super) const fn new() -> Self {
        Self { rounds: Vec::new(), sends: Vec::new(), receives: Vec::new() }
    }

    /// Adds the next round; false if the table has too many steps.
    pub(super) fn add(
        &mut self,
        sends: impl Iterator<Item = SendStep>,
        receives: impl Iterator<Item = ReceiveStep>,
        end: RoundEnd,
        next: u32,
    ) -> bool {
        self.sends.extend(sends);
        self.receives.extend(receives);
        self.rounds.push(CompiledRound { sends: self.sends.len(), receives: self.receives.len(), end, next });
        self.rounds.len() + self.sends.len() + self.receives.len() <= MAX_STEPS
    }

    /// The first round, from this one on, that may have steps; the number of rounds if there is none.
    pub(super) fn next_round(&self, round: u32) -> u32 {
        self.rounds.get(round as usize).map_or(self.rounds.len() as u32, |found| found.next)
    }

    /// The steps of a round; none after the last.
    pub(super) fn round(&self, round: u32) -> Option<CompiledSteps<'_>> {
        let place = round as usize;
        let found = self.rounds.get(place)?;
        let begin = place.checked_sub(1).map_or((0, 0), |before| {
            let before = &self.rounds[before];
            (before.sends, before.receives)
        });
        Some(CompiledSteps {
            sends: &self.sends[begin.0..found.sends],
            receives: &self.receives[begin.1..found.receives],
            end: found.end,
        })
    }
}

/// The steps of a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompiledSteps<'a> {
    pub(super) sends: &'a [SendStep],
    pub(super) receives: &'a [ReceiveStep],
    pub(super) end: RoundEnd,
}
