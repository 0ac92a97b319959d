//! Which errors an algorithm detects, measured with the shipped implementation.
//!
//! In: an algorithm, a number of trials and a seed. Out: for each error pattern, how many errors were tried and how many went
//! undetected. The same seed gives the same table. docs/checksums.md shows it; [`classify_strength`] reduces it to a [`Strength`].
//!
//! Messages are random bytes, zeros, and small numbers in 64-bit words, in turn: sums miss different errors in each.

use std::fmt;

use crate::algorithm::{Algorithm, Strength};
use crate::oneshot::value;

/// A kind of error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ErrorPattern {
    /// Any one bit flips.
    OneBit,
    /// Any two bits flip.
    TwoBits,
    /// Every pair of bits of 64-byte messages flips, one pair after the other.
    EveryPair,
    /// The same bit of two 64-bit words flips: a bad line of a bus, a bad column of a memory.
    Column,
    /// A burst of 2 to 64 bits: its first and last bit flip, those between at random.
    Burst,
    /// A run of 1 to 8 bytes is inverted.
    Inverted,
    /// Two words of 4 or 8 bytes are swapped.
    Swapped,
    /// A run of 1 to 64 zero bytes is inserted or lost, and the message grows or shrinks.
    Zeros,
    /// A run of 1 to 64 zero bytes is inserted, and the message is cut to its old length.
    Shifted,
}

impl ErrorPattern {
    /// In the order of the table.
    pub const ALL: [Self; 9] = [
        Self::OneBit,
        Self::TwoBits,
        Self::EveryPair,
        Self::Column,
        Self::Burst,
        Self::Inverted,
        Self::Swapped,
        Self::Zeros,
        Self::Shifted,
    ];

    /// The name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneBit => "one bit",
            Self::TwoBits => "two bits",
            Self::EveryPair => "every pair of bits",
            Self::Column => "one bit of two words",
            Self::Burst => "burst of 2 to 64 bits",
            Self::Inverted => "inverted bytes",
            Self::Swapped => "swapped words",
            Self::Zeros => "zeros in or out",
            Self::Shifted => "zeros in, end cut",
        }
    }
}

/// The result for one error pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DetectionRow {
    /// The pattern.
    pub pattern: ErrorPattern,
    /// Corrupted messages.
    pub tried: u64,
    /// Those whose checksum did not change.
    pub missed: u64,
}

impl fmt::Display for DetectionRow {
    /// The undetected share. Zero is a dash, to make the others stand out; less than one in ten thousand is a count.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * self.missed as f64 / self.tried.max(1) as f64;
        match self.missed {
            0 => write!(formatter, "-"),
            missed if percent < 0.01 => write!(formatter, "{missed} in all"),
            _ => write!(formatter, "{percent:.2} %"),
        }
    }
}

/// Bytes of a message, except for [`ErrorPattern::EveryPair`].
const MESSAGE_BYTES: usize = 1024;
/// Bytes of a message for [`ErrorPattern::EveryPair`].
const SHORT_MESSAGE_BYTES: usize = 64;

/// Tries all error patterns, `trials` of each (every pair of bits once for each kind of message).
pub fn measure(algorithm: Algorithm, trials: u64, seed: u64) -> Vec<DetectionRow> {
    ErrorPattern::ALL.into_iter().map(|pattern| measure_pattern(algorithm, pattern, trials, seed)).collect()
}

/// The strength that follows from a table of measurements.
pub fn classify_strength(algorithm: Algorithm, rows: &[DetectionRow]) -> Strength {
    if rows.iter().any(|row| row.missed > 0) {
        Strength::Weak
    } else if algorithm.is_cyclic() || algorithm.bits() == 64 {
        Strength::Strong
    } else {
        Strength::Fair
    }
}

fn measure_pattern(algorithm: Algorithm, pattern: ErrorPattern, trials: u64, seed: u64) -> DetectionRow {
    let mut row = DetectionRow { pattern, tried: 0, missed: 0 };
    if pattern == ErrorPattern::EveryPair {
        for contents in SamplePayload::ALL {
            every_pair(algorithm, &mut contents.message(SHORT_MESSAGE_BYTES, &mut SplitMix64(seed)), &mut row);
        }
        return row;
    }
    let mut chance = SplitMix64(seed ^ (pattern as u64) << 32);
    for trial in 0..trials {
        let contents = SamplePayload::ALL[(trial % 3) as usize];
        let message = contents.message(MESSAGE_BYTES, &mut chance);
        let corrupted = corrupt(&message, pattern, &mut chance);
        // Equal words that are swapped, or zeros shifted into zeros, are no error.
        if corrupted != message {
            row.tried += 1;
            row.missed += u64::from(value(algorithm, &corrupted) == value(algorithm, &message));
        }
    }
    row
}

fn every_pair(algorithm: Algorithm, message: &mut [u8], row: &mut DetectionRow) {
    let wanted = value(algorithm, message);
    for first in 0..8 * message.len() {
        flip(message, first);
        for second in 0..first {
            flip(message, second);
            row.tried += 1;
            row.missed += u64::from(value(algorithm, message) == wanted);
            flip(message, second);
        }
        flip(message, first);
    }
}

fn corrupt(message: &[u8], pattern: ErrorPattern, chance: &mut SplitMix64) -> Vec<u8> {
    let mut corrupted = message.to_vec();
    let bits = 8 * message.len();
    match pattern {
        ErrorPattern::OneBit => flip(&mut corrupted, chance.below(bits)),
        ErrorPattern::TwoBits | ErrorPattern::EveryPair => {
            let (first, apart) = (chance.below(bits), 1 + chance.below(bits - 1));
            flip(&mut corrupted, first);
            flip(&mut corrupted, (first + apart) % bits);
        }
        ErrorPattern::Column => {
            let words = bits / 64;
            let (bit, first, apart) = (chance.below(64), chance.below(words), 1 + chance.below(words - 1));
            flip(&mut corrupted, 64 * first + bit);
            flip(&mut corrupted, 64 * ((first + apart) % words) + bit);
        }
        ErrorPattern::Burst => {
            let width = 2 + chance.below(63);
            let start = chance.below(bits - width + 1);
            let between = chance.next();
            flip(&mut corrupted, start);
            flip(&mut corrupted, start + width - 1);
            for bit in (1..width - 1).filter(|bit| between >> bit & 1 == 1) {
                flip(&mut corrupted, start + bit);
            }
        }
        ErrorPattern::Inverted => {
            let width = 1 + chance.below(8);
            let start = chance.below(message.len() - width + 1);
            corrupted[start..start + width].iter_mut().for_each(|byte| *byte = !*byte);
        }
        ErrorPattern::Swapped => {
            let size = 4 << chance.below(2);
            let words = message.len() / size;
            let (first, apart) = (chance.below(words), 1 + chance.below(words - 1));
            let second = (first + apart) % words;
            let (a, b) = (size * first.min(second), size * first.max(second));
            let (front, back) = corrupted.split_at_mut(b);
            front[a..a + size].swap_with_slice(&mut back[..size]);
        }
        ErrorPattern::Zeros | ErrorPattern::Shifted => {
            let (at, run) = (chance.below(message.len()), 1 + chance.below(64));
            corrupted.splice(at..at, std::iter::repeat_n(0, run));
            if pattern == ErrorPattern::Shifted {
                corrupted.truncate(message.len());
            }
        }
    }
    corrupted
}

fn flip(message: &mut [u8], bit: usize) {
    message[bit / 8] ^= 1 << (bit % 8);
}

/// The contents of a message.
#[derive(Clone, Copy)]
enum SamplePayload {
    Noise,
    Zeros,
    SmallNumbers,
}

impl SamplePayload {
    const ALL: [Self; 3] = [Self::Noise, Self::Zeros, Self::SmallNumbers];

    fn message(self, length: usize, chance: &mut SplitMix64) -> Vec<u8> {
        let words = length / 8;
        let word = |chance: &mut SplitMix64| match self {
            Self::Noise => chance.next(),
            Self::Zeros => 0,
            Self::SmallNumbers => chance.next() % 100,
        };
        (0..words).flat_map(|_| word(chance).to_le_bytes()).collect()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014). Private: this crate depends on no other crate of the workspace.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_of_every_algorithm_is_what_the_measurement_says() {
        for algorithm in Algorithm::ALL {
            let rows = measure(algorithm, 6_000, 1);
            assert_eq!(algorithm.strength(), classify_strength(algorithm, &rows), "{algorithm}: {rows:?}");
        }
    }

    const DOCUMENT: &str = include_str!("../../../docs/checksums.md");

    #[test]
    fn the_documentation_has_every_label() {
        for algorithm in Algorithm::ALL {
            let line = format!("| `{algorithm}` | {} | {} | ", algorithm.bits(), algorithm.strength());
            assert!(DOCUMENT.contains(&line), "{line}");
        }
    }

    #[test]
    #[ignore = "takes half a minute"]
    fn the_table_in_the_documentation_is_what_the_measurement_gives() {
        for algorithm in Algorithm::ALL {
            let rows = measure(algorithm, 100_000, 1);
            let cells: Vec<String> = rows.iter().map(DetectionRow::to_string).collect();
            let line =
                format!("| `{algorithm}` | {} | {} |\n", classify_strength(algorithm, &rows), cells.join(" | "));
            assert!(DOCUMENT.contains(&line), "{line}");
        }
    }

    #[test]
    fn small_shares_are_readable() {
        let share = |missed, tried| DetectionRow { pattern: ErrorPattern::OneBit, tried, missed }.to_string();
        assert_eq!((share(0, 100), share(0, 0)), ("-".to_owned(), "-".to_owned()));
        assert_eq!((share(1, 1_000_000), share(50, 100)), ("1 in all".to_owned(), "50.00 %".to_owned()));
    }

    #[test]
    fn crcs_miss_nothing_and_sums_have_their_known_weaknesses() {
        let missed = |algorithm, pattern| measure_pattern(algorithm, pattern, 3_000, 2).missed;
        for pattern in ErrorPattern::ALL {
            assert_eq!(
                (missed(Algorithm::Crc32c, pattern), missed(Algorithm::Crc64Nvme, pattern)),
                (0, 0),
                "{pattern:?}"
            );
        }
        for pattern in [ErrorPattern::TwoBits, ErrorPattern::EveryPair, ErrorPattern::Column, ErrorPattern::Swapped] {
            assert!(missed(Algorithm::Xor32, pattern) > 0, "{pattern:?}");
        }
        assert_eq!(missed(Algorithm::Sum32, ErrorPattern::OneBit), 0);
        assert!(missed(Algorithm::Sum32, ErrorPattern::Swapped) > 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_table() {
        assert_eq!(measure(Algorithm::Adler32, 500, 9), measure(Algorithm::Adler32, 500, 9));
    }

    #[test]
    fn every_error_pattern_changes_a_random_message() {
        let mut chance = SplitMix64(5);
        for pattern in ErrorPattern::ALL {
            for _ in 0..200 {
                let message = SamplePayload::Noise.message(MESSAGE_BYTES, &mut chance);
                assert_ne!(corrupt(&message, pattern, &mut chance), message, "{pattern:?}");
            }
        }
    }
}
