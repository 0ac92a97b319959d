//! Sums and hashes of a few lines each.
//!
//! All words are little-endian. Each function documents how it treats the last, incomplete word.

use crate::pass::Pass;

const FNV_PRIME_32: u32 = 0x0100_0193;
const FNV_PRIME_64: u64 = 0x0000_0100_0000_01b3;
/// The prime next to 2^32 divided by the golden ratio (The Art of Computer Programming, volume 3, 6.4).
const KNUTH: u32 = 2_654_435_761;
const MURMUR: u32 = 0x5bd1_e995;
/// The initial value of MurmurHash2A; from zero, leading zeros would leave it at zero.
pub(crate) const MURMUR_SEED: u32 = 0x9747_b28c;

/// Fewer than four bytes as a word, padded with zeros.
fn padded(tail: &[u8]) -> u32 {
    tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

#[inline(always)]
pub(crate) fn sum(mut sum: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|word| sum = sum.wrapping_add(u32::from_le_bytes(*word)));
    sum
}

/// The last word is padded with zeros.
pub(crate) fn sum_end(sum: u32, tail: &[u8]) -> u32 {
    sum.wrapping_add(padded(tail))
}

#[inline(always)]
pub(crate) fn xor(mut sum: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|word| sum ^= u32::from_le_bytes(*word));
    sum
}

/// The last word is padded with zeros.
pub(crate) fn xor_end(sum: u32, tail: &[u8]) -> u32 {
    sum ^ padded(tail)
}

/// Jenkins' one-at-a-time (Dr. Dobb's Journal, September 1997).
#[inline(always)]
pub(crate) fn jenkins(mut hash: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|[byte]: &[u8; 1]| {
        hash = hash.wrapping_add(u32::from(*byte));
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    });
    hash
}

pub(crate) fn jenkins_end(mut hash: u32) -> u32 {
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

#[inline(always)]
pub(crate) fn fnv1a(mut hash: u64, pass: &mut impl Pass) -> u64 {
    pass.for_each_chunk(|[byte]: &[u8; 1]| hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME_64));
    hash
}

#[inline(always)]
pub(crate) fn fnv1a_words(mut hash: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|word| hash = (hash ^ u32::from_le_bytes(*word)).wrapping_mul(FNV_PRIME_32));
    hash
}

/// The last bytes are added one by one, as in FNV-1a.
pub(crate) fn fnv1a_words_end(hash: u32, tail: &[u8]) -> u32 {
    tail.iter().fold(hash, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME_32))
}

#[inline(always)]
pub(crate) fn knuth(mut hash: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|word| hash = hash.wrapping_add(u32::from_le_bytes(*word)).wrapping_mul(KNUTH));
    hash
}

/// The last word is padded with zeros.
pub(crate) fn knuth_end(hash: u32, tail: &[u8]) -> u32 {
    if tail.is_empty() { hash } else { hash.wrapping_add(padded(tail)).wrapping_mul(KNUTH) }
}

#[inline(always)]
fn murmur_step(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(MURMUR);
    hash.wrapping_mul(MURMUR) ^ (word ^ (word >> 24)).wrapping_mul(MURMUR)
}

#[inline(always)]
pub(crate) fn murmur2a(mut hash: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|word| hash = murmur_step(hash, u32::from_le_bytes(*word)));
    hash
}

/// Mixes in the last word, padded with zeros, and then the length.
pub(crate) fn murmur2a_end(hash: u32, tail: &[u8], length: u64) -> u32 {
    let mut hash = murmur_step(murmur_step(hash, padded(tail)), length as u32);
    hash = (hash ^ (hash >> 13)).wrapping_mul(MURMUR);
    hash ^ (hash >> 15)
}

/// Hsieh's hash starts with the length of the whole message.
#[inline(always)]
pub(crate) fn superfast(mut hash: u32, pass: &mut impl Pass) -> u32 {
    pass.for_each_chunk(|[a, b, c, d]: &[u8; 4]| {
        hash = hash.wrapping_add(u32::from(u16::from_le_bytes([*a, *b])));
        hash = (hash << 16) ^ (u32::from(u16::from_le_bytes([*c, *d])) << 11) ^ hash;
        hash = hash.wrapping_add(hash >> 11);
    });
    hash
}

/// The last one to three bytes have steps of their own; a single byte counts as signed.
pub(crate) fn superfast_end(mut hash: u32, tail: &[u8]) -> u32 {
    let signed = |byte: u8| byte as i8 as u32;
    match *tail {
        [a, b, c] => {
            hash = hash.wrapping_add(u32::from(u16::from_le_bytes([a, b])));
            hash ^= hash << 16;
            hash ^= signed(c) << 18;
            hash = hash.wrapping_add(hash >> 11);
        }
        [a, b] => {
            hash = hash.wrapping_add(u32::from(u16::from_le_bytes([a, b])));
            hash ^= hash << 11;
            hash = hash.wrapping_add(hash >> 17);
        }
        [a] => {
            hash = hash.wrapping_add(signed(a));
            hash ^= hash << 10;
            hash = hash.wrapping_add(hash >> 1);
        }
        _ => {}
    }
    hash ^= hash << 3;
    hash = hash.wrapping_add(hash >> 5);
    hash ^= hash << 4;
    hash = hash.wrapping_add(hash >> 17);
    hash ^= hash << 25;
    hash.wrapping_add(hash >> 6)
}

/// Two sums: of the parts, and of the first sum after each part.
///
/// Several parts are processed at a time, each in a column of its own: a column sums its parts, and its sums before each part. The two
/// sums follow from these, because a part counts in the second sum once for every part from it to the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FletcherSums {
    pub(crate) first: u64,
    pub(crate) second: u64,
}

const ADLER: u64 = 65_521;
const FLETCHER: u64 = u32::MAX as u64;

impl FletcherSums {
    /// Adler-32 (RFC 1950).
    #[inline(always)]
    pub(crate) fn adler(&mut self, pass: &mut impl Pass) {
        while pass.remaining() > 0 {
            // Short enough for columns of 32 bits: at most 512 groups.
            let mut stretch = pass.split(1 << 14);
            let groups = stretch.remaining() / 32;
            let (mut plain, mut before) = ([0u32; 32], [0u32; 32]);
            stretch.for_each_chunk(|bytes: &[u8; 32]| {
                for ((plain, before), byte) in plain.iter_mut().zip(&mut before).zip(bytes) {
                    *before += *plain;
                    *plain += u32::from(*byte);
                }
            });
            self.columns(groups, plain.map(u64::from), before.map(u64::from));
            stretch.for_each_chunk(|[byte]: &[u8; 1]| {
                self.first += u64::from(*byte);
                self.second += self.first;
            });
            (self.first, self.second) = (self.first % ADLER, self.second % ADLER);
        }
    }

    /// Fletcher-64 (IEEE Transactions on Communications 30(1), 1982) over 32-bit words.
    #[inline(always)]
    pub(crate) fn fletcher(&mut self, pass: &mut impl Pass) {
        while pass.remaining() > 0 {
            // 64 bits hold at most 92,681 words.
            let mut stretch = pass.split(1 << 15);
            let groups = stretch.remaining() / 64;
            let (mut plain, mut before) = ([0u64; 16], [0u64; 16]);
            stretch.for_each_chunk(|bytes: &[u8; 64]| {
                let (words, _) = bytes.as_chunks::<4>();
                for ((plain, before), word) in plain.iter_mut().zip(&mut before).zip(words) {
                    *before += *plain;
                    *plain += u64::from(u32::from_le_bytes(*word));
                }
            });
            self.columns(groups, plain, before);
            stretch.for_each_chunk(|word| self.word(u32::from_le_bytes(*word)));
            (self.first, self.second) = (self.first % FLETCHER, self.second % FLETCHER);
        }
    }

    /// Adds `groups` groups of `N` parts, given as columns.
    #[inline(always)]
    fn columns<const N: usize>(&mut self, groups: usize, plain: [u64; N], before: [u64; N]) {
        self.second += (N * groups) as u64 * self.first;
        for (place, (plain, before)) in plain.iter().zip(before).enumerate() {
            self.first += plain;
            self.second += N as u64 * before + (N - place) as u64 * plain;
        }
    }

    #[inline(always)]
    fn word(&mut self, word: u32) {
        self.first += u64::from(word);
        self.second += self.first;
    }

    pub(crate) fn adler_end(self) -> u64 {
        self.second << 16 | self.first
    }

    /// The last word is padded with zeros.
    pub(crate) fn fletcher_end(mut self, tail: &[u8]) -> u64 {
        if !tail.is_empty() {
            self.word(padded(tail));
        }
        ((self.second % FLETCHER) << 32) | (self.first % FLETCHER)
    }
}
