//! The blocks of a segment, one for each host, in operations whose hosts contribute or get different parts of a vector.
//!
//! A segment of any length has blocks: those of a reduce-scatter and an allgather are equal parts, rounded to elements. In an alltoall the
//! block of one host for another is as long as the other's for it, so the elements that are left over go to pairs of hosts.

use std::sync::Arc;

use protocol::collective::{BlockLayout, BlockLayoutError};
use units::Rank;

use super::{HostOperation, SegmentedParameters};

/// The layouts of one operation. All hosts share that of a segment of a reduce-scatter or an allgather: a copy for each would take
/// memory with the square of the hosts.
#[derive(Default)]
pub(super) struct SegmentBlocks {
    /// By the elements of the segment: all segments but the last have the same number.
    shared: Vec<(u32, Arc<BlockLayout>)>,
}

impl SegmentBlocks {
    /// The blocks of a rank's segment.
    pub(super) fn layout(
        &mut self,
        parameters: &SegmentedParameters,
        rank: Rank,
        segment: u32,
    ) -> Result<Arc<BlockLayout>, BlockLayoutError> {
        let elements = parameters.vector.elements_of(segment).len() as u32;
        let (members, size) = (parameters.members, parameters.vector.kind.element_size() as u32);
        if parameters.operation == HostOperation::AllToAll {
            let lengths = (0..members).map(|peer| size * pair_elements(elements, members, rank.0, peer));
            return BlockLayout::from_lengths(lengths).map(Arc::new);
        }
        if let Some((_, layout)) = self.shared.iter().find(|(of, _)| *of == elements) {
            return Ok(layout.clone());
        }
        let cut = |block: u32| (u64::from(elements) * u64::from(block) / u64::from(members.max(1))) as u32;
        let lengths = (0..members).map(|block| size * (cut(block + 1) - cut(block)));
        let layout = Arc::new(BlockLayout::from_lengths(lengths)?);
        self.shared.push((elements, layout.clone()));
        Ok(layout)
    }

    /// Forgets the layouts: the next operation has other vectors.
    pub(super) fn clear(&mut self) {
        self.shared.clear();
    }
}

/// The elements that two ranks of an alltoall have for each other.
fn pair_elements(elements: u32, members: u32, one: u32, other: u32) -> u32 {
    let sum = (u64::from(one) + u64::from(other)) % u64::from(members);
    elements / members + u32::from(sum < u64::from(elements % members))
}
