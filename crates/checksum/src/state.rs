//! A value under way: pieces come one by one, of any length, and may be copied as they come.

use crate::crc::{self, Crc32cPolynomial, Crc64NvmePolynomial, Polynomial};
use crate::pass::{CopyPass, Pass, ReadPass};
use crate::prefetch::TargetCache;
use crate::simple_hashes::{self, FletcherSums};
use crate::vector_width::VectorWidth;
use crate::{Algorithm, linear, xxh3};

/// Bytes that are copied before they are looked at, where that is done block by block: with its copy well within the first
/// cache of any processor.
const BLOCK: usize = 8 << 10;

/// A value under way.
#[derive(Clone)]
pub struct ChecksumState {
    progress: AlgorithmState,
    /// Bytes so far.
    length: u64,
    /// Bytes that do not make a whole word yet.
    pending: [u8; 8],
    held: usize,
}

/// What each algorithm keeps between words.
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
    Xxh3(Box<xxh3::Xxh3State>),
    Linear(linear::LinearState),
}

/// The value of these bytes. What has fewer than 64 bits stands in the low ones.
#[inline]
pub fn value(algorithm: Algorithm, bytes: &[u8]) -> u64 {
    match algorithm {
        // These three are used for small messages too and skip what only pieces need.
        Algorithm::Crc32c => crc::update::<Crc32cPolynomial>(Crc32cPolynomial::ONES, bytes) ^ Crc32cPolynomial::ONES,
        Algorithm::Crc64Nvme => {
            crc::update::<Crc64NvmePolynomial>(Crc64NvmePolynomial::ONES, bytes) ^ Crc64NvmePolynomial::ONES
        }
        Algorithm::Xxh3 => xxh3::oneshot(ReadPass(bytes)),
        _ => oneshot(algorithm, VectorWidth::best(), ReadPass(bytes)),
    }
}

/// Copies bytes and gives their value, in one pass: each is fetched once.
///
/// The value is that of the bytes as they were fetched, whatever happens to the copy.
#[inline]
pub fn copy(algorithm: Algorithm, from: &[u8], to: &mut [u8]) -> u64 {
    copy_to(algorithm, from, to, TargetCache::Own)
}

/// As [`copy`], where it is known whose cache has the lines of the target. It is no matter of the value, only of the time.
#[inline]
pub fn copy_to(algorithm: Algorithm, from: &[u8], to: &mut [u8], target: TargetCache) -> u64 {
    match algorithm {
        Algorithm::Crc32c => {
            crc::copy::<Crc32cPolynomial>(Crc32cPolynomial::ONES, from, to, target) ^ Crc32cPolynomial::ONES
        }
        Algorithm::Crc64Nvme => {
            crc::copy::<Crc64NvmePolynomial>(Crc64NvmePolynomial::ONES, from, to, target) ^ Crc64NvmePolynomial::ONES
        }
        Algorithm::Xxh3 => xxh3::oneshot(CopyPass::new(from, to, target)),
        _ => oneshot(algorithm, VectorWidth::best(), CopyPass::new(from, to, target)),
    }
}

/// Copies bytes block by block, and looks at each block once it is copied, while it is in the cache.
///
/// The value is that of the bytes at `from`.
pub fn copy_then(algorithm: Algorithm, from: &[u8], to: &mut [u8]) -> u64 {
    assert_eq!(from.len(), to.len(), "a copy needs as much room as there are bytes");
    if from.len() <= BLOCK {
        to.copy_from_slice(from);
        return value(algorithm, from);
    }
    let mut state = ChecksumState::new(algorithm, from.len() as u64);
    for (block, room) in from.chunks(BLOCK).zip(to.chunks_mut(BLOCK)) {
        room.copy_from_slice(block);
        state.update(block);
    }
    state.finish()
}

/// The value of all bytes of a pass, with vectors of this width where the code is a plain loop.
pub(crate) fn oneshot(algorithm: Algorithm, width: VectorWidth, mut pass: impl Pass) -> u64 {
    let length = pass.left() as u64;
    let mut progress = AlgorithmState::new(algorithm, length);
    let words = pass.left() / progress.unit() * progress.unit();
    width.absorb(&mut progress, pass.split(words));
    let mut tail = [0; 8];
    let left = pass.left();
    pass.each(|[byte]: &[u8; 1]| {
        tail.rotate_left(1);
        tail[7] = *byte;
    });
    progress.finish(&tail[8 - left..], length)
}

impl ChecksumState {
    /// Starts a message of this many bytes. SuperFastHash begins with the length; the others do not ask for it.
    pub fn new(algorithm: Algorithm, length: u64) -> Self {
        Self { progress: AlgorithmState::new(algorithm, length), length: 0, pending: [0; 8], held: 0 }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.take(ReadPass(bytes));
    }

    /// Takes the next bytes and copies them.
    pub fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        self.take(CopyPass::new(from, to, TargetCache::Own));
    }

    /// The value of all bytes so far.
    pub fn finish(self) -> u64 {
        self.progress.finish(&self.pending[..self.held], self.length)
    }

    fn take(&mut self, mut pass: impl Pass) {
        self.length += pass.left() as u64;
        let unit = self.progress.unit();
        if self.held > 0 {
            let mut head = pass.split(unit - self.held);
            self.hold(&mut head);
            if self.held < unit {
                return;
            }
            let word = self.pending;
            self.held = 0;
            self.progress.absorb(ReadPass(&word[..unit]));
        }
        let words = pass.left() / unit * unit;
        VectorWidth::best().absorb(&mut self.progress, pass.split(words));
        self.hold(&mut pass);
    }

    fn hold(&mut self, pass: &mut impl Pass) {
        pass.each(|[byte]: &[u8; 1]| {
            self.pending[self.held] = *byte;
            self.held += 1;
        });
    }
}

impl AlgorithmState {
    fn new(algorithm: Algorithm, length: u64) -> Self {
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
            Algorithm::Xxh3 => Self::Xxh3(Box::new(xxh3::Xxh3State::new())),
            Algorithm::Linear => Self::Linear(linear::LinearState::default()),
        }
    }

    /// How many bytes are taken at a time.
    fn unit(&self) -> usize {
        match self {
            Self::Adler32(_)
            | Self::Jenkins(_)
            | Self::Fnv1a(_)
            | Self::Crc32c(_)
            | Self::Crc64Nvme(_)
            | Self::Xxh3(_) => 1,
            Self::Linear(_) => 8,
            _ => 4,
        }
    }

    /// Takes whole words.
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
            Self::Linear(running) => running.absorb(&mut pass),
            Self::Crc32c(register) => *register = cyclic::<Crc32cPolynomial>(*register, &mut pass),
            Self::Crc64Nvme(register) => *register = cyclic::<Crc64NvmePolynomial>(*register, &mut pass),
            Self::Xxh3(running) => running.absorb(&mut pass),
        }
    }

    /// Takes the last bytes, which make no whole word.
    fn finish(self, tail: &[u8], length: u64) -> u64 {
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
            Self::Linear(running) => running.end(tail),
        }
    }
}

#[inline(always)]
fn cyclic<P: Polynomial>(register: u64, pass: &mut impl Pass) -> u64 {
    let target = pass.target();
    match pass.ends() {
        (bytes, None) => crc::update::<P>(register, bytes),
        (from, Some(to)) => crc::copy::<P>(register, from, to, target),
    }
}
