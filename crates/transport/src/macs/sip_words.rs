//! SipHash-1-3 of 64-bit words: the MACs of every packet of a transfer.
//!
//! In: a key; words; the bytes that are left. Out: 64 bits. The same function as `siphasher::sip::SipHasher13`, with which a test compares it. That one
//! takes bytes in pieces of any length: to put them together takes as long as to hash so few words, and a megabyte has 3,000 MACs.

/// The state between two words. A copy continues from there.
#[derive(Clone, Copy, Debug)]
pub(super) struct SipWords {
    v: [u64; 4],
    bytes: u64,
}

impl SipWords {
    #[inline]
    pub(super) fn new(k0: u64, k1: u64) -> Self {
        let v = [
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        Self { v, bytes: 0 }
    }

    /// With a key of 16 bytes.
    pub(super) fn with_key(key: &[u8; 16]) -> Self {
        let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| key[at + index]));
        Self::new(half(0), half(8))
    }

    #[inline]
    pub(super) fn word(mut self, word: u64) -> Self {
        self.v[3] ^= word;
        self.round();
        self.v[0] ^= word;
        self.bytes += 8;
        self
    }

    /// The hash of all words and up to seven bytes after them, as a little-endian number.
    #[inline]
    pub(super) fn finish(self, rest: u64, rest_bytes: u64) -> u64 {
        debug_assert!(rest_bytes < 8 && rest >> (8 * rest_bytes) == 0, "fewer bytes than a word has");
        let length = (self.bytes + rest_bytes) & 0xff;
        let mut last = self.word(length << 56 | rest);
        last.v[2] ^= 0xff;
        (0..3).for_each(|_| last.round());
        last.v[0] ^ last.v[1] ^ last.v[2] ^ last.v[3]
    }

    #[inline]
    fn round(&mut self) {
        let [a, b, c, d] = &mut self.v;
        *a = a.wrapping_add(*b);
        *c = c.wrapping_add(*d);
        *b = b.rotate_left(13) ^ *a;
        *d = d.rotate_left(16) ^ *c;
        *a = a.rotate_left(32).wrapping_add(*d);
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *d = d.rotate_left(21) ^ *a;
        *c = c.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use siphasher::sip::SipHasher13;

    use super::*;

    #[test]
    fn hashes_are_those_of_the_crate_for_every_length() {
        let key: [u8; 16] = std::array::from_fn(|index| (index * 17 + 3) as u8);
        let message: Vec<u8> = (0..300_u32).map(|index| (index * 37 % 251) as u8).collect();
        for length in 0..message.len() {
            let mut theirs = SipHasher13::new_with_key(&key);
            theirs.write(&message[..length]);
            let (words, rest) = message[..length].as_chunks::<8>();
            let ours = words.iter().fold(SipWords::with_key(&key), |sip, word| sip.word(u64::from_le_bytes(*word)));
            let last = rest.iter().rev().fold(0, |last, byte| last << 8 | u64::from(*byte));
            assert_eq!(ours.finish(last, rest.len() as u64), theirs.finish(), "{length} bytes");
        }
    }
}
