//! Vectors of blocks in rank order and in host order.
//!
//! In rank order a vector has the block of rank 0 first. In host order it has the blocks of the first host's ranks first, so that what a
//! host sends or receives is one range. Both are the same if the ranks of every host are contiguous.

use std::ops::Range;

use super::BlockLengths;
use crate::communicator_layout::CommunicatorLayout;

impl CommunicatorLayout {
    /// The ranks, host by host.
    fn in_host_order(&self) -> impl Iterator<Item = u32> + '_ {
        self.hosts.iter().flatten().copied()
    }

    /// True if host order is rank order.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.in_host_order().eq(0..self.ranks.len() as u32)
    }

    /// The bytes of all blocks of a host's ranks.
    pub(super) fn host_bytes(&self, host: usize, lengths: &BlockLengths) -> usize {
        self.hosts[host].iter().map(|rank| lengths.of(*rank)).sum()
    }

    /// Where the blocks of this host are in host order.
    pub(super) fn own_host_range(&self, lengths: &BlockLengths) -> Range<usize> {
        let start = (0..self.host).map(|host| self.host_bytes(host, lengths)).sum();
        start..start + self.host_bytes(self.host, lengths)
    }

    /// Where this rank's block is among those of its host.
    pub(super) fn own_range_in_host(&self, lengths: &BlockLengths) -> Range<usize> {
        let before = &self.hosts[self.host][..usize::from(self.local_rank)];
        let start = before.iter().map(|rank| lengths.of(*rank)).sum();
        start..start + lengths.of(self.rank)
    }

    /// A vector in rank order, brought to host order.
    pub(super) fn to_host_order(&self, vector: Vec<u8>, lengths: &BlockLengths) -> Vec<u8> {
        if self.is_contiguous() {
            return vector;
        }
        let mut ordered = Vec::with_capacity(vector.len());
        for rank in self.in_host_order() {
            ordered.extend_from_slice(&vector[lengths.range(rank)]);
        }
        ordered
    }

    /// A vector in host order, brought to rank order.
    pub(super) fn to_rank_order(&self, vector: Vec<u8>, lengths: &BlockLengths) -> Vec<u8> {
        if self.is_contiguous() {
            return vector;
        }
        let mut ordered = vec![0; vector.len()];
        let mut rest = &vector[..];
        for rank in self.in_host_order() {
            let (block, after) = rest.split_at(lengths.of(rank));
            ordered[lengths.range(rank)].copy_from_slice(block);
            rest = after;
        }
        ordered
    }

    /// What the ranks of this host have for all ranks (by source, then by destination in rank order), brought to the order of an alltoall
    /// among hosts: by destination's host, then by source, then by destination.
    pub(super) fn to_host_pairs(&self, vector: &[u8], block: usize) -> Vec<u8> {
        let row = block * self.ranks.len();
        let mut ordered = Vec::with_capacity(vector.len());
        for host in &self.hosts {
            for source in 0..self.hosts[self.host].len() {
                for to in host {
                    ordered.extend_from_slice(&vector[source * row + *to as usize * block..][..block]);
                }
            }
        }
        ordered
    }

    /// What came from all hosts (by source's host, then by source, then by destination), brought to the order of this host's ranks: by
    /// destination, then by source in rank order.
    pub(super) fn to_local_rows(&self, vector: &[u8], block: usize) -> Vec<u8> {
        let row = block * self.ranks.len();
        let mut ordered = vec![0; vector.len()];
        let mut at = 0;
        for source in self.in_host_order() {
            for destination in 0..self.hosts[self.host].len() {
                let target = &mut ordered[destination * row + source as usize * block..][..block];
                target.copy_from_slice(&vector[at..at + block]);
                at += block;
            }
        }
        ordered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five ranks on two hosts, seen by the second rank of the first.
    fn layout() -> CommunicatorLayout {
        let hosts = vec![vec![0, 2, 3], vec![1, 4]];
        CommunicatorLayout { ranks: (0..5).collect(), rank: 2, hosts, host: 0, local_rank: 1 }
    }

    #[test]
    fn rank_order_and_host_order_are_each_others_reverse() {
        let lengths = BlockLengths::Each([2, 1, 3, 0, 1].into());
        let vector = vec![0, 0, 1, 2, 2, 2, 4];
        let ordered = layout().to_host_order(vector.clone(), &lengths);
        assert_eq!(ordered, [0, 0, 2, 2, 2, 1, 4]);
        assert_eq!(layout().to_rank_order(ordered, &lengths), vector);
        assert_eq!(layout().own_host_range(&lengths), 0..5);
        assert_eq!(layout().own_range_in_host(&lengths), 2..5);
    }

    #[test]
    fn pairs_go_from_rows_to_hosts_and_back() {
        // Block (source, destination) is one byte: ten times the source plus the destination.
        let sources = [0_u8, 2, 3];
        let rows: Vec<u8> = sources.iter().flat_map(|source| (0..5).map(move |to| source * 10 + to)).collect();
        let pairs = layout().to_host_pairs(&rows, 1);
        assert_eq!(pairs, [0, 2, 3, 20, 22, 23, 30, 32, 33, 1, 4, 21, 24, 31, 34]);
        // What the hosts have for ranks 0, 2 and 3.
        let arrived = [0, 2, 3, 20, 22, 23, 30, 32, 33, 10, 12, 13, 40, 42, 43];
        let expected: Vec<u8> = sources.iter().flat_map(|to| (0..5).map(move |source| source * 10 + to)).collect();
        assert_eq!(layout().to_local_rows(&arrived, 1), expected);
    }
}
