//! Two, four or eight words in a vector register. The three differ only in the names of the intrinsics.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::constants::PRIME_32_1;
use super::stripes::SimdVector;

macro_rules! vector {
    ($words:ty: $load:ident $store:ident $zero:ident $add:ident $xor:ident $multiply:ident $right:ident $left:ident
     $shuffle:ident $repeat:ident) => {
        // SAFETY: the functions need the instructions named and nothing else.
        unsafe impl SimdVector for $words {
            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $load(from.cast()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: guaranteed by the caller.
                unsafe { $store(to.cast(), self) }
            }

            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $zero() }
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $add(self, other) }
            }

            #[inline(always)]
            unsafe fn with_key(self, key: Self) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $xor(self, key) }
            }

            #[inline(always)]
            unsafe fn product_of_halves(self) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $multiply(self, $right::<32>(self)) }
            }

            #[inline(always)]
            unsafe fn neighbours(self) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe { $shuffle::<0b01_00_11_10>(self) }
            }

            #[inline(always)]
            unsafe fn scrambled(self, key: Self) -> Self {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let mixed = $xor($xor(self, $right::<47>(self)), key);
                    let prime = $repeat(PRIME_32_1 as i64);
                    let high = $multiply($right::<32>(mixed), prime);
                    $add($multiply(mixed, prime), $left::<32>(high))
                }
            }
        }
    };
}

vector!(__m128i: _mm_loadu_si128 _mm_storeu_si128 _mm_setzero_si128 _mm_add_epi64 _mm_xor_si128 _mm_mul_epu32
    _mm_srli_epi64 _mm_slli_epi64 _mm_shuffle_epi32 _mm_set1_epi64x);
vector!(__m256i: _mm256_loadu_si256 _mm256_storeu_si256 _mm256_setzero_si256 _mm256_add_epi64 _mm256_xor_si256
    _mm256_mul_epu32 _mm256_srli_epi64 _mm256_slli_epi64 _mm256_shuffle_epi32 _mm256_set1_epi64x);
vector!(__m512i: _mm512_loadu_si512 _mm512_storeu_si512 _mm512_setzero_si512 _mm512_add_epi64 _mm512_xor_si512
    _mm512_mul_epu32 _mm512_srli_epi64 _mm512_slli_epi64 _mm512_shuffle_epi32 _mm512_set1_epi64);
