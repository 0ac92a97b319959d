//! XXH3 with 64 bits, no seed and the secret of its author (xxHash 0.8), with the copy within.
//!
//! In: bytes, at once or piece by piece, and perhaps where to copy them. Out: their value. Messages of up to 240 bytes have
//! formulas of their own; these come from the crate twox-hash, which has no loop that copies. Longer ones are stripes of 64
//! bytes. Each is added to eight lanes, with products of its halves under a key that depends on its place; after 16
//! stripes the lanes are scrambled. The last 64 bytes count once more, whether or not they are a stripe.

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

use self::kernel::Xxh3Kernel;
use self::stripes::{ChunkPosition, Lanes, SECRET, STRIPE_BYTES};
use crate::pass::{Pass, ReadPass};

/// The longest message that is no stripes.
const SHORT: usize = 240;
/// What pieces may leave waiting: more than a short message.
const ROOM: usize = 256;

const PRIME_32_1: u64 = 0x9e37_79b1;
const PRIME_32_2: u64 = 0x85eb_ca77;
const PRIME_32_3: u64 = 0xc2b2_ae3d;
const PRIME_64_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_64_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_64_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_64_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_64_5: u64 = 0x27d4_eb2f_1656_67c5;

const START: [u64; 8] =
    [PRIME_32_3, PRIME_64_1, PRIME_64_2, PRIME_64_3, PRIME_64_4, PRIME_32_2, PRIME_64_5, PRIME_32_1];

/// The value of all bytes of a pass.
#[inline]
pub(crate) fn oneshot(pass: impl Pass) -> u64 {
    whole_by(Xxh3Kernel::best(), pass)
}

#[inline]
fn whole_by(kernel: Xxh3Kernel, mut pass: impl Pass) -> u64 {
    let length = pass.left();
    if length <= SHORT {
        let (from, to) = pass.ends();
        if let Some(to) = to {
            to.copy_from_slice(from);
        }
        return XxHash3_64::oneshot(from);
    }
    let mut lanes = Lanes::new();
    kernel.take(&mut lanes, &mut pass, ChunkPosition::Last);
    merge(&lanes, length as u64)
}

/// A value under way.
///
/// A stripe is taken only when it is known that bytes follow it. So what waits is never nothing, once anything has come, and
/// the last stripe that was taken is kept, because the last 64 bytes may begin in it.
#[derive(Clone)]
pub(crate) struct Xxh3State {
    kernel: Xxh3Kernel,
    lanes: Lanes,
    /// First what waits; in the last 64 bytes, where it does not reach, the stripe before it.
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
        if self.held + pass.left() <= ROOM {
            return self.hold(pass);
        }
        if self.held > 0 {
            self.hold(&mut pass.split(ROOM - self.held));
            self.kernel.take(&mut self.lanes, &mut ReadPass(&self.waiting), ChunkPosition::Middle);
            self.held = 0;
        }
        let whole = (pass.left() - 1) / STRIPE_BYTES * STRIPE_BYTES;
        let mut stripes = pass.split(whole);
        if let Some(last) = stripes.ends().0.last_chunk::<STRIPE_BYTES>() {
            self.waiting[ROOM - STRIPE_BYTES..].copy_from_slice(last);
        }
        self.kernel.take(&mut self.lanes, &mut stripes, ChunkPosition::Middle);
        self.hold(pass);
    }

    fn hold(&mut self, pass: &mut impl Pass) {
        let (from, to) = pass.ends();
        self.waiting[self.held..self.held + from.len()].copy_from_slice(from);
        self.held += from.len();
        if let Some(to) = to {
            to.copy_from_slice(from);
        }
    }

    /// The value, if this was all, and so many bytes.
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

/// The lanes as one number.
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
