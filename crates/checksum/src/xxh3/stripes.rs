//! The loop over stripes, written once over vectors of any width.
//!
//! The definition adds to each lane its neighbour's word and the product of its own word's halves. Sums commute, so words and products
//! are summed separately, and neighbours are swapped once per block instead of once per stripe. Several stripes are loaded before the
//! first is stored: a load closely after a store waits for it.

#![allow(unsafe_code)]

use super::constants::START;
use crate::prefetch::{TargetCache, prefetch_target};

/// Bytes of a stripe.
pub(super) const STRIPE_BYTES: usize = 64;
/// Stripes of a block, after which the lanes are scrambled.
const BLOCK: usize = 16;

/// The default secret.
pub(super) const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d,
    0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0,
    0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0,
    0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b,
    0x1b, 0x53, 0x2e, 0xa3, 0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, 0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51,
    0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34,
    0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49,
    0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e, 0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8,
    0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b,
    0x40, 0x7e,
];

/// The keys of the stripes of a block, each in a cache line; in the secret they overlap.
#[repr(align(64))]
struct Keys([[u8; STRIPE_BYTES]; BLOCK]);

static KEYS: Keys = {
    let mut keys = [[0; STRIPE_BYTES]; BLOCK];
    let mut place = 0;
    while place < BLOCK {
        keys[place] = key_at(8 * place);
        place += 1;
    }
    Keys(keys)
};
static SCRAMBLING_KEY: [u8; STRIPE_BYTES] = key_at(SECRET.len() - STRIPE_BYTES);
/// The key of the last 64 bytes.
static LAST_KEY: [u8; STRIPE_BYTES] = key_at(SECRET.len() - STRIPE_BYTES - 7);

const fn key_at(start: usize) -> [u8; STRIPE_BYTES] {
    let mut key = [0; STRIPE_BYTES];
    let mut place = 0;
    while place < STRIPE_BYTES {
        key[place] = SECRET[start + place];
        place += 1;
    }
    key
}

/// The eight lanes after all stripes so far.
#[derive(Clone)]
pub(super) struct Lanes {
    /// Low byte first.
    bytes: [u8; STRIPE_BYTES],
    /// Stripes of the current block; less than [`BLOCK`].
    taken: usize,
}

impl Lanes {
    pub(super) fn new() -> Self {
        let mut bytes = [0; STRIPE_BYTES];
        for (lane, start) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(START) {
            *lane = start.to_le_bytes();
        }
        Self { bytes, taken: 0 }
    }

    pub(super) fn numbers(&self) -> [u64; 8] {
        let mut numbers = [0; 8];
        for (number, lane) in numbers.iter_mut().zip(self.bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*lane);
        }
        numbers
    }
}

/// Which part of a message is consumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ChunkPosition {
    /// Whole stripes, with more bytes to follow.
    Middle,
    /// All remaining bytes, at least 64: stripes as long as bytes follow them, then the last 64 bytes.
    Last,
}

/// Some 64-bit words, low byte first in memory.
///
/// # Safety
/// Functions may use instructions that not every processor supports. The caller has checked that this one does.
pub(super) unsafe trait SimdVector: Copy {
    /// # Safety
    /// A vector is readable at `from`, which need not be aligned.
    unsafe fn load(from: *const u8) -> Self;
    /// # Safety
    /// A vector is writable at `to`, which need not be aligned.
    unsafe fn store(self, to: *mut u8);
    unsafe fn zero() -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    /// Exclusive or.
    unsafe fn with_key(self, key: Self) -> Self;
    /// The low half of each word times its high half.
    unsafe fn product_of_halves(self) -> Self;
    /// The words of each pair, swapped.
    unsafe fn neighbours(self) -> Self;
    /// Each word with its high bits mixed in, under the key, times a prime.
    unsafe fn scrambled(self, key: Self) -> Self;
}

/// Consumes `len` bytes at `from`; with `COPY` they are also written to `to`. `PER_STRIPE` vectors are a stripe; `GROUP` stripes are
/// loaded before they are stored.
///
/// # Safety
/// The processor supports `V`. `from` is readable for `len` bytes. With `COPY`, `to` is writable for `len` bytes and does not
/// overlap them; without, it is not touched. The last part has at least 64 bytes.
#[inline(always)]
pub(super) unsafe fn consume_stripes<V: SimdVector, const PER_STRIPE: usize, const GROUP: usize, const COPY: bool>(
    lanes: &mut Lanes,
    from: *const u8,
    to: *mut u8,
    len: usize,
    piece: ChunkPosition,
    target: TargetCache,
) {
    const { assert!(size_of::<V>() * PER_STRIPE == STRIPE_BYTES) };
    let stripes = if piece == ChunkPosition::Last { (len - 1) / STRIPE_BYTES } else { len / STRIPE_BYTES };
    let fetches = COPY && target.is_worth_fetching(len);
    let end = stripes * STRIPE_BYTES;
    let mut at = 0;
    // SAFETY: `at` stays below `end`, which is at most `len`; a block has as many keys as stripes.
    unsafe {
        let mut sums = StripeAccumulators::<V, PER_STRIPE>::load(&lanes.bytes);
        while at < end {
            let until = BLOCK.min(lanes.taken + (end - at) / STRIPE_BYTES);
            while until - lanes.taken >= GROUP {
                if fetches {
                    prefetch_target::<GROUP>(to, at);
                }
                sums.stripes::<GROUP, COPY>(KEYS.0.as_ptr().add(lanes.taken), from.add(at), to.wrapping_add(at));
                lanes.taken += GROUP;
                at += GROUP * STRIPE_BYTES;
            }
            while lanes.taken < until {
                sums.stripes::<1, COPY>(KEYS.0.as_ptr().add(lanes.taken), from.add(at), to.wrapping_add(at));
                lanes.taken += 1;
                at += STRIPE_BYTES;
            }
            if lanes.taken == BLOCK {
                sums.scramble();
                lanes.taken = 0;
            }
        }
        if piece == ChunkPosition::Last {
            // Some bytes are copied twice, to the same place.
            let last = len - STRIPE_BYTES;
            sums.stripes::<1, COPY>(&raw const LAST_KEY, from.add(last), to.wrapping_add(last));
        }
        sums.store(&mut lanes.bytes);
    }
}

/// The lanes without the words of the current block, and these words, not yet swapped.
struct StripeAccumulators<V, const PER_STRIPE: usize> {
    products: [V; PER_STRIPE],
    words: [V; PER_STRIPE],
}

/// # Safety
/// Of all functions: the processor supports `V`.
impl<V: SimdVector, const PER_STRIPE: usize> StripeAccumulators<V, PER_STRIPE> {
    #[inline(always)]
    unsafe fn load(lanes: &[u8; STRIPE_BYTES]) -> Self {
        // SAFETY: `PER_STRIPE` vectors are a stripe.
        unsafe { Self { products: load_stripe(lanes.as_ptr()), words: [V::zero(); PER_STRIPE] } }
    }

    #[inline(always)]
    unsafe fn store(mut self, lanes: &mut [u8; STRIPE_BYTES]) {
        // SAFETY: `PER_STRIPE` vectors are a stripe.
        unsafe {
            self.gather();
            store_stripe(self.products, lanes.as_mut_ptr());
        }
    }

    /// # Safety
    /// There are `COUNT` keys and stripes, and with `COPY` space for as many.
    #[inline(always)]
    unsafe fn stripes<const COUNT: usize, const COPY: bool>(
        &mut self,
        keys: *const [u8; STRIPE_BYTES],
        from: *const u8,
        to: *mut u8,
    ) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut stripes = [[V::zero(); PER_STRIPE]; COUNT];
            for (number, stripe) in stripes.iter_mut().enumerate() {
                *stripe = load_stripe(from.add(number * STRIPE_BYTES));
            }
            if COPY {
                for (number, stripe) in stripes.iter().enumerate() {
                    store_stripe(*stripe, to.add(number * STRIPE_BYTES));
                }
            }
            for (number, stripe) in stripes.iter().enumerate() {
                let key: [V; PER_STRIPE] = load_stripe(keys.add(number).cast());
                for lane in 0..PER_STRIPE {
                    self.words[lane] = self.words[lane].plus(stripe[lane]);
                    let product = stripe[lane].with_key(key[lane]).product_of_halves();
                    self.products[lane] = self.products[lane].plus(product);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scramble(&mut self) {
        // SAFETY: the key has the length of a stripe.
        unsafe {
            self.gather();
            let key: [V; PER_STRIPE] = load_stripe(SCRAMBLING_KEY.as_ptr());
            for (lane, key) in self.products.iter_mut().zip(key) {
                *lane = lane.scrambled(key);
            }
        }
    }

    /// Adds the words to the neighbouring lanes.
    #[inline(always)]
    unsafe fn gather(&mut self) {
        for (lane, words) in self.products.iter_mut().zip(&mut self.words) {
            // SAFETY: guaranteed by the caller.
            unsafe {
                *lane = lane.plus(words.neighbours());
                *words = V::zero();
            }
        }
    }
}

/// # Safety
/// The processor supports `V`, and `COUNT` vectors are readable at `from`.
#[inline(always)]
unsafe fn load_stripe<V: SimdVector, const COUNT: usize>(from: *const u8) -> [V; COUNT] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut vectors = [V::zero(); COUNT];
        for (number, vector) in vectors.iter_mut().enumerate() {
            *vector = V::load(from.add(number * size_of::<V>()));
        }
        vectors
    }
}

/// # Safety
/// The processor supports `V`, and `COUNT` vectors are writable at `to`.
#[inline(always)]
unsafe fn store_stripe<V: SimdVector, const COUNT: usize>(vectors: [V; COUNT], to: *mut u8) {
    for (number, vector) in vectors.into_iter().enumerate() {
        // SAFETY: guaranteed by the caller.
        unsafe { vector.store(to.add(number * size_of::<V>())) };
    }
}
