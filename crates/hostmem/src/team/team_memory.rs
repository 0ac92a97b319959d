//! The shared memory of a team, as the protocols see it: mapped memory, or that of a model checker.

use super::block_claims::BlockClaims;
use super::descriptor::{OperationDescriptor, SignatureRecord};
use crate::shared_word::SharedWord;

/// The shared memory of a team, as the protocols see it.
pub(super) trait TeamMemory {
    /// The words of this memory.
    type Word: SharedWord;
    /// The number of shared descriptors.
    const RESULT_SLOTS: usize;

    /// Where `rank` records its signature for the operation in `channel`.
    fn signature_record(&self, rank: usize, channel: usize) -> &SignatureRecord<Self::Word>;
    /// Where `rank` posts its descriptor for the operation in `channel`.
    fn descriptor(&self, rank: usize, channel: usize) -> &OperationDescriptor<Self::Word>;
    /// Where any rank may publish the result of an operation.
    fn shared_descriptor(&self, place: usize) -> &OperationDescriptor<Self::Word>;
    /// The number of operations that `rank` has settled.
    fn settled(&self, rank: usize) -> &Self::Word;
    /// The number of pipeline steps that `rank` has filled.
    fn filled(&self, rank: usize) -> &Self::Word;
    /// The number of pipeline steps of which `rank` has folded its slice.
    fn folded(&self, rank: usize) -> &Self::Word;
    /// The number of pipeline steps that `rank` has finished reading.
    fn drained(&self, rank: usize) -> &Self::Word;
    /// The block claims of `rank` as a receiver of large broadcasts.
    fn block_claims(&self, rank: usize) -> &BlockClaims<Self::Word>;
}
