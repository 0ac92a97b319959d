//! Operations on blocks inside another communication library: on bytes that the caller gives up, blocking or started.

use protocol::collective::CollectiveOperation;
use reduce::ReductionKind;
use units::Rank;

use crate::block_operation::{BlockCall, BlockLengths};
use crate::communicator::Communicator;
use crate::embedded::OwnedRequest;
use crate::error::Error;

/// An operation on the blocks of all ranks. Roots are ranks of the communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockCollective {
    /// Input: a vector of the blocks of all ranks. Result: this rank's block of the reduction.
    ReduceScatter(ReductionKind),
    /// Input: this rank's block. Result: the blocks of all ranks.
    AllGather,
    /// Input: this rank's block. Result: the blocks of all ranks at the root, nothing at the others.
    Gather {
        /// The rank that gets the blocks.
        root: u32,
    },
    /// Input: the blocks of all ranks at the root, nothing at the others. Result: this rank's block.
    Scatter {
        /// The rank that has the blocks.
        root: u32,
    },
    /// Input: a block for each rank, of equal lengths. Result: the blocks of all ranks for this one.
    AllToAll,
}

impl Communicator {
    /// Runs an operation on bytes that the caller gives up; this rank's result. The lengths are the same at all ranks.
    ///
    /// # Errors
    /// If the input is not as long as the operation requires, a rank is lost, or the ranks call different operations.
    pub fn run_owned_blocks(
        &self,
        collective: BlockCollective,
        lengths: BlockLengths,
        bytes: Vec<u8>,
    ) -> Result<Vec<u8>, Error> {
        self.inner().run_blocks(self.owned_call(collective, lengths, &bytes)?, bytes)
    }

    /// Starts an operation as [`Self::run_owned_blocks`].
    ///
    /// # Errors
    /// As [`Self::run_owned_blocks`].
    pub fn start_owned_blocks(
        &self,
        collective: BlockCollective,
        lengths: BlockLengths,
        bytes: Vec<u8>,
    ) -> Result<OwnedRequest, Error> {
        self.start_owned_call(self.owned_call(collective, lengths, &bytes)?, bytes)
    }

    /// The operation, after its arguments were checked.
    fn owned_call(
        &self,
        collective: BlockCollective,
        lengths: BlockLengths,
        input: &[u8],
    ) -> Result<BlockCall, Error> {
        let (rank, ranks) = (self.rank(), self.size() as usize);
        match &lengths {
            BlockLengths::Each(lengths) if lengths.len() != ranks => {
                return Err(Error::invalid(format!("{} lengths for {ranks} ranks", lengths.len())));
            }
            BlockLengths::Each(_) if collective == BlockCollective::AllToAll => {
                return Err(Error::invalid("the blocks of an alltoall have equal lengths"));
            }
            _ => {}
        }
        // The blocks of a host's ranks are side by side, sometimes those of all ranks for each of them.
        let most = lengths.checked_total(ranks).and_then(|total| total.checked_mul(ranks));
        if most.is_none_or(|most| most > isize::MAX as usize) {
            return Err(Error::invalid("the lengths are too large"));
        }
        let (collective, expected) = match collective {
            BlockCollective::ReduceScatter(kind) => return self.reduce_scatter_call(input, lengths, kind),
            BlockCollective::AllGather => (CollectiveOperation::AllGather, lengths.of(rank)),
            BlockCollective::Gather { root } => (CollectiveOperation::Gather { root: Rank(root) }, lengths.of(rank)),
            BlockCollective::Scatter { root } => {
                let expected = if root == rank { lengths.total(ranks) } else { 0 };
                (CollectiveOperation::Scatter { root: Rank(root) }, expected)
            }
            BlockCollective::AllToAll => (CollectiveOperation::AllToAll, lengths.total(ranks)),
        };
        self.expect("input", input.len(), expected)?;
        Ok(BlockCall { collective, lengths })
    }
}
