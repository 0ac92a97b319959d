//! A naive description of the fold orders of all algorithms: lists that are split into groups until one is left.

use oracle::{Reduction, ReferenceOrder, reference_of};
use units::Rank;

use super::harness::contribution;

/// Merges adjacent sums, `radix` at a time, until one is left.
fn merge(mut sums: Vec<ReferenceOrder>, radix: usize) -> ReferenceOrder {
    while sums.len() > 1 {
        sums = sums.chunks(radix).map(|group| ReferenceOrder::node(group.to_vec())).collect();
    }
    sums.remove(0)
}

fn ranks(range: std::ops::Range<u32>) -> Vec<ReferenceOrder> {
    range.map(|rank| ReferenceOrder::rank(Rank(rank))).collect()
}

/// A tree of groups; the last one of each level may be smaller.
pub(super) fn tree(size: u32, radix: u32) -> ReferenceOrder {
    merge(ranks(0..size), radix as usize)
}

/// As a tree, after the first ranks have paired up so that all groups are full.
pub(super) fn recursive(size: u32, radix: u32) -> ReferenceOrder {
    let fits = |mut count: u32| {
        while count.is_multiple_of(radix) {
            count /= radix;
        }
        count < radix
    };
    let participants = (1..=size).rev().find(|count| fits(*count)).expect("one fits");
    let joining = size - participants;
    let pairs = (0..joining).map(|pair| ReferenceOrder::node(ranks(2 * pair..2 * pair + 2)));
    merge(pairs.chain(ranks(2 * joining..size)).collect(), radix as usize)
}

/// The recursive halving: after the first ranks have paired up, the two halves merge position by position.
pub(super) fn halving(size: u32) -> ReferenceOrder {
    let joining = size - (1 << size.ilog2());
    let pairs = (0..joining).map(|pair| ReferenceOrder::node(ranks(2 * pair..2 * pair + 2)));
    let mut sums: Vec<ReferenceOrder> = pairs.chain(ranks(2 * joining..size)).collect();
    while sums.len() > 1 {
        let upper = sums.split_off(sums.len() / 2);
        sums = sums.into_iter().zip(upper).map(|(low, high)| ReferenceOrder::node(vec![low, high])).collect();
    }
    sums.remove(0)
}

/// The first ranks, one after the other.
pub(super) fn serial(count: u32) -> ReferenceOrder {
    ReferenceOrder::node(ranks(0..count))
}

/// The first ranks as a scan by recursive doubling folds them for the last: the nearest power of two on the right.
pub(super) fn doubling_prefix(count: u32) -> ReferenceOrder {
    fold_at(count - 1, u32::BITS - (count - 1).leading_zeros())
}

/// What a rank holds after so many rounds: what the rank `2^(rounds - 1)` before it held, then its own.
fn fold_at(rank: u32, rounds: u32) -> ReferenceOrder {
    if rounds == 0 {
        return ReferenceOrder::rank(Rank(rank));
    }
    match rank.checked_sub(1 << (rounds - 1)) {
        Some(before) => ReferenceOrder::node(vec![fold_at(before, rounds - 1), fold_at(rank, rounds - 1)]),
        None => fold_at(rank, rounds - 1),
    }
}

/// One rank after the other around the ring, ending at this one.
pub(super) fn ring(size: u32, last: u32) -> ReferenceOrder {
    ReferenceOrder::node((1..=size).map(|step| ReferenceOrder::rank(Rank((last + step) % size))))
}

/// The expected result of folding in an order.
pub(super) fn folded(seed: u64, operation: &Reduction, order: &ReferenceOrder) -> Vec<u8> {
    reference_of(operation, order, |rank| contribution(seed, rank.0, operation))
}

/// The expected result of the ring: each block has its own order.
pub(super) fn folded_by_ring(seed: u64, operation: &Reduction, size: u32) -> Vec<u8> {
    let mut result = Vec::new();
    for block in 0..size as usize {
        let cut = |index: usize| operation.count * index / size as usize * operation.element_bytes();
        result.extend_from_slice(&folded(seed, operation, &ring(size, block as u32))[cut(block)..cut(block + 1)]);
    }
    result
}
