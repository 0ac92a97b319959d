//! New communicators from existing ones.

use reduce::Operator;
use units::GroupId;

use crate::communicator::Communicator;
use crate::error::{Error, JoinError};
use crate::formation::form;

/// Colours have 31 bits.
const MAX_COLOUR: u32 = (1 << 31) - 1;

impl Communicator {
    /// A communicator of the same ranks, whose operations are separate from those of this one.
    ///
    /// # Errors
    /// If a rank is lost, or the new communicator cannot be formed.
    pub fn dup(&self) -> Result<Self, JoinError> {
        let split = self.split(Some(0), 0)?;
        Ok(split.expect("every rank passes the same colour"))
    }

    /// Splits the ranks by colour. Within a colour they are ordered by key, then by rank. Ranks without a colour get no
    /// communicator.
    ///
    /// # Errors
    /// If a rank is lost, or the new communicator cannot be formed.
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let inner = self.inner();
        let process = inner.process();
        // One slot per rank: whether it takes part, its colour, and its key in the order of unsigned numbers.
        let mut slots = vec![0_u64; self.size() as usize];
        let own =
            colour.map(|colour| 1 << 63 | u64::from(colour & MAX_COLOUR) << 32 | u64::from(key as u32 ^ 1 << 31));
        slots[self.rank() as usize] = own.unwrap_or_default();
        if colour.is_some_and(|colour| colour > MAX_COLOUR) {
            return Err(Error::invalid(format!("a colour is at most {MAX_COLOUR}")).into());
        }
        self.all_reduce(&mut slots, Operator::Or)?;
        // The new context exceeds those of all ranks.
        let mut context = [process.next_context()];
        self.all_reduce(&mut context, Operator::Max)?;
        process.reserve_context(context[0]);
        let Some(own) = own else { return Ok(None) };
        let colour_of = |slot: u64| slot >> 32;
        let mut members: Vec<(u32, u32)> = (0..)
            .zip(&slots)
            .filter_map(|(rank, slot)| (colour_of(*slot) == colour_of(own)).then_some((*slot as u32, rank)))
            .collect();
        members.sort_unstable();
        let world = inner.world_ranks();
        let ranks = members.into_iter().map(|(_, rank)| world[rank as usize]).collect();
        Ok(Some(Self::new(form(process, GroupId(context[0]), ranks)?)))
    }
}
