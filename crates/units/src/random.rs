//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): the one generator of the workspace.
//!
//! `checksum` keeps a copy of its own, because it depends on no other crate of the workspace.

/// What the state grows by at every step: 2^64 divided by the golden ratio, odd.
pub const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The mixing function: every bit of the input changes about half of the output's bits.
#[inline]
pub const fn mix64(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The next number of the sequence whose state this is. The seed is the first state.
#[inline]
pub const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(GOLDEN_GAMMA);
    mix64(*state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference_implementation() {
        let mut state = 1_234_567;
        let numbers = std::array::from_fn(|_| splitmix64(&mut state));
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }
}
