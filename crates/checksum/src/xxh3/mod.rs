//! XXH3 with 64 bits, no seed and the default secret (xxHash 0.8), with an optional copy.
//!
//! In: bytes, at once or incrementally, and perhaps where to copy them. Out: their hash. Messages of up to 240 bytes have formulas of
//! their own, from the crate twox-hash, whose loop for longer ones cannot copy. Longer messages consist of stripes of 64 bytes. Each
//! stripe is added to eight lanes, with products of its halves under a key that depends on its position; after 16 stripes the
//! lanes are scrambled. The last 64 bytes are added once more, whether or not they are a stripe.

mod constants;
mod kernel;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod scalar;
mod stripes;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use twox_hash::XxHash3_64;

use self::constants::PRIME_64_1;
use self::kernel::Xxh3Kernel;
use self::stripes::{ChunkPosition, Lanes, SECRET, STRIPE_BYTES};
use crate::pass::{Pass, ReadPass};

/// The longest message without stripes.
const SHORT: usize = 240;
/// The buffer for an incremental hash: more than a short message.
const ROOM: usize = 256;

/// The hash of all bytes of a pass.
#[inline]
pub(crate) fn oneshot(pass: impl Pass) -> u64 {
    whole_by(Xxh3Kernel::best(), pass)
}

#[inline]
fn whole_by(kernel: Xxh3Kernel, mut pass: impl Pass) -> u64 {
    let length = pass.remaining();
    if length <= SHORT {
        let (from, to) = pass.buffers();
        if let Some(to) = to {
            to.copy_from_slice(from);
        }
        return XxHash3_64::oneshot(from);
    }
    let mut lanes = Lanes::new();
    kernel.take(&mut lanes, &mut pass, ChunkPosition::Last);
    merge(&lanes, length as u64)
}

/// An incremental hash.
///
/// A stripe is consumed only when bytes follow it. So the buffer is never empty after the first bytes, and it keeps the last consumed stripe,
/// because the last 64 bytes may begin in it.
#[derive(Clone)]
pub(crate) struct Xxh3State {
    kernel: Xxh3Kernel,
    lanes: Lanes,
    /// Buffered bytes; in the last 64 bytes, where they do not reach, the stripe before them.
    waiting: [u8; ROOM],
    held: usize,
}

impl Xxh3State {
    pub(crate) fn new() -> Self {
        Self::by(Xxh3Kernel::best())
    }

    fn by(kernel: Xxh3Kernel) -> Self {
        Self { kernel, lanes: Lanes::new(), waiting: [0; ROOM], held: 0 }
    }

    pub(crate) fn absorb(&mut self, pass: &mut impl Pass) {
        if self.held + pass.remaining() <= ROOM {
            return self.hold(pass);
        }
        if self.held > 0 {
            self.hold(&mut pass.split(ROOM - self.held));
            self.kernel.take(&mut self.lanes, &mut ReadPass(&self.waiting), ChunkPosition::Middle);
            self.held = 0;
        }
        let whole = (pass.remaining() - 1) / STRIPE_BYTES * STRIPE_BYTES;
        let mut stripes = pass.split(whole);
        if let Some(last) = stripes.buffers().0.last_chunk::<STRIPE_BYTES>() {
            self.waiting[ROOM - STRIPE_BYTES..].copy_from_slice(last);
        }
        self.kernel.take(&mut self.lanes, &mut stripes, ChunkPosition::Middle);
        self.hold(pass);
    }

    fn hold(&mut self, pass: &mut impl Pass) {
        let (from, to) = pass.buffers();
        self.waiting[self.held..self.held + from.len()].copy_from_slice(from);
        self.held += from.len();
        if let Some(to) = to {
            to.copy_from_slice(from);
        }
    }

    /// The hash, if the message ends here with this length.
    pub(crate) fn end(mut self, length: u64) -> u64 {
        if length <= SHORT as u64 {
            return XxHash3_64::oneshot(&self.waiting[..self.held]);
        }
        if self.held >= STRIPE_BYTES {
            self.kernel.take(&mut self.lanes, &mut ReadPass(&self.waiting[..self.held]), ChunkPosition::Last);
        } else {
            let mut last = [0; STRIPE_BYTES];
            let (before, rest) = last.split_at_mut(STRIPE_BYTES - self.held);
            before.copy_from_slice(&self.waiting[ROOM - before.len()..]);
            rest.copy_from_slice(&self.waiting[..self.held]);
            self.kernel.take(&mut self.lanes, &mut ReadPass(&last), ChunkPosition::Last);
        }
        merge(&self.lanes, length)
    }
}

/// Merges the lanes into one number.
fn merge(lanes: &Lanes, length: u64) -> u64 {
    let (keys, _) = SECRET[11..].as_chunks::<8>();
    let mut keyed = lanes.numbers();
    for (lane, key) in keyed.iter_mut().zip(keys) {
        *lane ^= u64::from_le_bytes(*key);
    }
    let (pairs, _) = keyed.as_chunks::<2>();
    let sum = pairs.iter().fold(length.wrapping_mul(PRIME_64_1), |sum, [one, other]| {
        let product = u128::from(*one) * u128::from(*other);
        sum.wrapping_add(product as u64 ^ (product >> 64) as u64)
    });
    let mixed = (sum ^ (sum >> 37)).wrapping_mul(0x1656_6791_9e37_79f9);
    mixed ^ (mixed >> 32)
}
