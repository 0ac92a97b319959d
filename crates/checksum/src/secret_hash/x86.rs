//! 16, 32 or 64 bytes in a vector register. The three differ only in the names of the intrinsics.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::product_sums::{ProductSums, ROW_BYTES};

macro_rules! add_rows {
    ($name:ident by $vector:ty, $features:literal: $load:ident $store:ident $xor:ident $multiply:ident) => {
        /// Adds the rows of `len` bytes at `from`; with `COPY` they are also written to `to`.
        ///
        /// # Safety
        /// The processor supports the instructions. `from` is readable for `len` bytes, a multiple of the row, and `keys` for as many rows. With
        /// `COPY`, `to` is writable for `len` bytes and does not overlap them; without, it is not touched.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name<const COPY: bool>(
            sums: &mut ProductSums,
            keys: *const [u64; 8],
            from: *const u8,
            to: *mut u8,
            len: usize,
        ) {
            const VECTORS: usize = ROW_BYTES / size_of::<$vector>();
            let places: *mut $vector = (&raw mut sums.0).cast();
            // SAFETY: the sums, a row and its keys have as many bytes as so many vectors; the caller guarantees the rest.
            unsafe {
                let mut totals: [$vector; VECTORS] = std::array::from_fn(|place| $load(places.add(place)));
                for row in 0..len / ROW_BYTES {
                    let (from, key): (*const $vector, *const $vector) =
                        (from.add(row * ROW_BYTES).cast(), keys.add(row).cast());
                    let words: [$vector; VECTORS] = std::array::from_fn(|place| $load(from.add(place)));
                    if COPY {
                        let to: *mut $vector = to.add(row * ROW_BYTES).cast();
                        for (place, words) in words.iter().enumerate() {
                            $store(to.add(place), *words);
                        }
                    }
                    for (place, total) in totals.iter_mut().enumerate() {
                        let secret = $xor(words[place], $load(key.add(place)));
                        *total = $xor(*total, $multiply::<0x10>(secret, secret));
                    }
                }
                for (place, total) in totals.into_iter().enumerate() {
                    $store(places.add(place), total);
                }
            }
        }
    };
}

add_rows!(add_by_16 by __m128i, "sse4.2,pclmulqdq":
    _mm_loadu_si128 _mm_storeu_si128 _mm_xor_si128 _mm_clmulepi64_si128);
add_rows!(add_by_32 by __m256i, "avx2,vpclmulqdq":
    _mm256_loadu_si256 _mm256_storeu_si256 _mm256_xor_si256 _mm256_clmulepi64_epi128);
add_rows!(add_by_64 by __m512i, "avx512f,vpclmulqdq":
    _mm512_loadu_si512 _mm512_storeu_si512 _mm512_xor_si512 _mm512_clmulepi64_epi128);
