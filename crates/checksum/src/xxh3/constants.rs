//! The primes of XXH3 (xxHash 0.8), and its initial lanes.

pub(super) const PRIME_32_1: u64 = 0x9e37_79b1;
const PRIME_32_2: u64 = 0x85eb_ca77;
const PRIME_32_3: u64 = 0xc2b2_ae3d;
pub(super) const PRIME_64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_64_5: u64 = 0x27d4_eb2f_1656_67c5;

/// The initial lanes.
pub(super) const START: [u64; 8] =
    [PRIME_32_3, PRIME_64_1, PRIME_64_2, PRIME_64_3, PRIME_64_4, PRIME_32_2, PRIME_64_5, PRIME_32_1];
