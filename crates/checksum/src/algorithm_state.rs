//! The running state of each algorithm: one step per word, for any pass.

use crate::algorithm::Algorithm;
use crate::crc::{self, Crc32cPolynomial, Crc64NvmePolynomial, Polynomial};
use crate::pass::Pass;
use crate::simple_hashes::{self, FletcherSums};
use crate::xxh3::Xxh3State;

/// The state of each algorithm between words.
#[derive(Clone)]
pub(crate) enum AlgorithmState {
    Sum32(u32),
    Xor32(u32),
    Adler32(FletcherSums),
    Fletcher64(FletcherSums),
    Jenkins(u32),
    Fnv1a(u64),
    Fnv1aWords(u32),
    Knuth(u32),
    Murmur2a(u32),
    SuperFast(u32),
    Crc32c(u64),
    Crc64Nvme(u64),
    Xxh3(Box<Xxh3State>),
}

impl AlgorithmState {
    pub(crate) fn new(algorithm: Algorithm, length: u64) -> Self {
        match algorithm {
            Algorithm::Sum32 => Self::Sum32(0),
            Algorithm::Xor32 => Self::Xor32(0),
            Algorithm::Adler32 => Self::Adler32(FletcherSums { first: 1, second: 0 }),
            Algorithm::Fletcher64 => Self::Fletcher64(FletcherSums { first: 0, second: 0 }),
            Algorithm::Jenkins => Self::Jenkins(0),
            Algorithm::Fnv1a => Self::Fnv1a(0xcbf2_9ce4_8422_2325),
            Algorithm::Fnv1aWords => Self::Fnv1aWords(0x811c_9dc5),
            Algorithm::Knuth => Self::Knuth(0),
            Algorithm::Murmur2a => Self::Murmur2a(simple_hashes::MURMUR_SEED),
            Algorithm::SuperFast => Self::SuperFast(length as u32),
            Algorithm::Crc32c => Self::Crc32c(Crc32cPolynomial::ONES),
            Algorithm::Crc64Nvme => Self::Crc64Nvme(Crc64NvmePolynomial::ONES),
            Algorithm::Xxh3 => Self::Xxh3(Box::new(Xxh3State::new())),
        }
    }

    /// Bytes per step.
    pub(crate) fn unit(&self) -> usize {
        match self {
            Self::Adler32(_)
            | Self::Jenkins(_)
            | Self::Fnv1a(_)
            | Self::Crc32c(_)
            | Self::Crc64Nvme(_)
            | Self::Xxh3(_) => 1,
            _ => 4,
        }
    }

    /// Adds whole words.
    #[inline(always)]
    pub(crate) fn absorb(&mut self, mut pass: impl Pass) {
        match self {
            Self::Sum32(sum) => *sum = simple_hashes::sum(*sum, &mut pass),
            Self::Xor32(sum) => *sum = simple_hashes::xor(*sum, &mut pass),
            Self::Adler32(sums) => sums.adler(&mut pass),
            Self::Fletcher64(sums) => sums.fletcher(&mut pass),
            Self::Jenkins(hash) => *hash = simple_hashes::jenkins(*hash, &mut pass),
            Self::Fnv1a(hash) => *hash = simple_hashes::fnv1a(*hash, &mut pass),
            Self::Fnv1aWords(hash) => *hash = simple_hashes::fnv1a_words(*hash, &mut pass),
            Self::Knuth(hash) => *hash = simple_hashes::knuth(*hash, &mut pass),
            Self::Murmur2a(hash) => *hash = simple_hashes::murmur2a(*hash, &mut pass),
            Self::SuperFast(hash) => *hash = simple_hashes::superfast(*hash, &mut pass),
            Self::Crc32c(register) => *register = cyclic(Crc32cPolynomial, *register, &mut pass),
            Self::Crc64Nvme(register) => *register = cyclic(Crc64NvmePolynomial, *register, &mut pass),
            Self::Xxh3(running) => running.absorb(&mut pass),
        }
    }

    /// Adds the last bytes, an incomplete word.
    pub(crate) fn finish(self, tail: &[u8], length: u64) -> u64 {
        match self {
            Self::Sum32(sum) => simple_hashes::sum_end(sum, tail).into(),
            Self::Xor32(sum) => simple_hashes::xor_end(sum, tail).into(),
            Self::Adler32(sums) => sums.adler_end(),
            Self::Fletcher64(sums) => sums.fletcher_end(tail),
            Self::Jenkins(hash) => simple_hashes::jenkins_end(hash).into(),
            Self::Fnv1a(hash) => hash,
            Self::Fnv1aWords(hash) => simple_hashes::fnv1a_words_end(hash, tail).into(),
            Self::Knuth(hash) => simple_hashes::knuth_end(hash, tail).into(),
            Self::Murmur2a(hash) => simple_hashes::murmur2a_end(hash, tail, length).into(),
            Self::SuperFast(_) if length == 0 => 0,
            Self::SuperFast(hash) => simple_hashes::superfast_end(hash, tail).into(),
            Self::Crc32c(register) => register ^ Crc32cPolynomial::ONES,
            Self::Crc64Nvme(register) => register ^ Crc64NvmePolynomial::ONES,
            Self::Xxh3(running) => running.end(length),
        }
    }
}

#[inline(always)]
fn cyclic<P: Polynomial>(polynomial: P, register: u64, pass: &mut impl Pass) -> u64 {
    let target = pass.target();
    match pass.buffers() {
        (bytes, None) => crc::update(polynomial, register, bytes),
        (from, Some(to)) => crc::copy(polynomial, register, from, to, target),
    }
}
