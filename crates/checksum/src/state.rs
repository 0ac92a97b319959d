//! Incremental checksums of parts of any length, with or without a copy.

use crate::algorithm::Algorithm;
use crate::algorithm_state::AlgorithmState;
use crate::pass::{CopyPass, Pass, ReadPass};
use crate::prefetch::TargetCache;
use crate::vector_width::VectorWidth;

/// An incremental checksum.
#[derive(Clone)]
pub struct ChecksumState {
    progress: AlgorithmState,
    /// Bytes so far.
    length: u64,
    /// Bytes of an incomplete word.
    pending: [u8; 8],
    held: usize,
}

impl ChecksumState {
    /// Starts a message of this many bytes. SuperFastHash starts with the length; the others ignore it.
    pub fn new(algorithm: Algorithm, length: u64) -> Self {
        Self { progress: AlgorithmState::new(algorithm, length), length: 0, pending: [0; 8], held: 0 }
    }

    /// Adds the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.take(ReadPass(bytes));
    }

    /// Adds the next bytes, and copies them.
    pub fn copy(&mut self, from: &[u8], to: &mut [u8]) {
        self.take(CopyPass::new(from, to, TargetCache::Local));
    }

    /// The checksum of all bytes so far.
    pub fn finish(self) -> u64 {
        self.progress.finish(&self.pending[..self.held], self.length)
    }

    fn take(&mut self, mut pass: impl Pass) {
        self.length += pass.remaining() as u64;
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
        let words = pass.remaining() / unit * unit;
        VectorWidth::best().absorb(&mut self.progress, pass.split(words));
        self.hold(&mut pass);
    }

    fn hold(&mut self, pass: &mut impl Pass) {
        pass.for_each_chunk(|[byte]: &[u8; 1]| {
            self.pending[self.held] = *byte;
            self.held += 1;
        });
    }
}
