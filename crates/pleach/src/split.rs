//! New communicators from old ones.

use std::sync::Arc;

use reduce::Operator;
use units::GroupId;

use crate::communicator_inner::CommunicatorInner;
use crate::{Communicator, Error, JoinError};

impl Communicator {
    /// The same ranks, apart from this one: operations of the two do not meet.
    ///
    /// # Errors
    /// If a rank is lost, or the new one cannot be formed.
    pub fn dup(&self) -> Result<Self, JoinError> {
        let split = self.split(Some(0), 0)?;
        Ok(split.expect("everyone has the same colour"))
    }

    /// Splits the ranks by colour; within one, they are ordered by key, then by rank. Who has no colour gets none.
    ///
    /// # Errors
    /// If a rank is lost, or the new one cannot be formed.
    pub fn split(&self, colour: Option<u32>, key: i32) -> Result<Option<Self>, JoinError> {
        let comm = self.comm();
        let process = comm.process();
        // A slot per rank: whether it takes part, its colour and key. And what all must exceed.
        let mut slots = vec![0_u64; self.size() as usize];
        // The key goes in the order of unsigned numbers.
        let wish = colour.map(|colour| 1 << 63 | u64::from(colour & COLOURS) << 32 | u64::from(key as u32 ^ 1 << 31));
        slots[self.rank() as usize] = wish.unwrap_or_default();
        if colour.is_some_and(|colour| colour > COLOURS) {
            return Err(Error::argument(format!("colours are at most {COLOURS}")).into());
        }
        self.all_reduce(&mut slots, Operator::Or)?;
        let mut context = [process.next_context()];
        self.all_reduce(&mut context, Operator::Max)?;
        process.note_context(context[0]);
        let Some(wish) = wish else { return Ok(None) };
        let colour_of = |slot: u64| slot >> 32;
        let mut members: Vec<(u32, u32)> = (0..)
            .zip(&slots)
            .filter_map(|(rank, slot)| (colour_of(*slot) == colour_of(wish)).then_some((*slot as u32, rank)))
            .collect();
        members.sort_unstable();
        let world = comm.world_ranks();
        let ranks = members.into_iter().map(|(_, rank)| world[rank as usize]).collect();
        let comm = CommunicatorInner::form(Arc::clone(process), GroupId(context[0]), ranks)?;
        Ok(Some(Self::new(comm)))
    }
}

/// Colours have 31 bits.
const COLOURS: u32 = (1 << 31) - 1;
