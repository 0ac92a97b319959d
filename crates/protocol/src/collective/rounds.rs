//! Counting rounds.

/// How many times groups of `radix` must merge until one group holds `size` ranks.
pub(super) const fn rounds_to_merge(size: u32, radix: u32) -> u32 {
    let (mut rounds, mut merged) = (0, 1_u64);
    while merged < size as u64 {
        merged *= radix as u64;
        rounds += 1;
    }
    rounds
}
