//! Which kernel computes the sum of a block's products. All kernels give the same results.

#![allow(unsafe_code)]

#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
use super::neon;
use super::product_sums::{BLOCK_ROWS, ProductSums, ROW_BYTES, RowKeys};
use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::CrcKernel;

impl ProductSums {
    /// Adds whole rows, the first of which is row `row` of its block; with a target they are also copied there. Only for supported kernels.
    ///
    /// # Panics
    /// If the rows do not fit into the block, are not whole, or source and target differ in length.
    #[inline]
    pub(super) fn add(&mut self, kernel: CrcKernel, keys: &RowKeys, row: usize, from: &[u8], to: Option<&mut [u8]>) {
        assert!(from.len().is_multiple_of(ROW_BYTES) && row + from.len() / ROW_BYTES <= BLOCK_ROWS);
        let keys = keys.0[row..].as_ptr();
        match to {
            // SAFETY: without COPY a kernel only reads, and only the slice and as many keys as it has rows: checked above.
            None => unsafe { function::<false>(kernel)(self, keys, from.as_ptr(), std::ptr::null_mut(), from.len()) },
            Some(to) => {
                assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
                // SAFETY: as above; both slices have one length, and a shared and an exclusive one cannot overlap.
                unsafe { function::<true>(kernel)(self, keys, from.as_ptr(), to.as_mut_ptr(), from.len()) }
            }
        }
    }
}

/// Sums, keys, source, target and length.
type SumFn = unsafe fn(&mut ProductSums, *const [u64; 8], *const u8, *mut u8, usize);

/// The instructions are those of CRCs.
#[inline]
fn function<const COPY: bool>(kernel: CrcKernel) -> SumFn {
    match kernel {
        #[cfg(target_arch = "x86_64")]
        CrcKernel::Sse => x86::add_by_16::<COPY>,
        #[cfg(target_arch = "x86_64")]
        CrcKernel::Avx2 => x86::add_by_32::<COPY>,
        #[cfg(target_arch = "x86_64")]
        CrcKernel::Avx512 => x86::add_by_64::<COPY>,
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        CrcKernel::Neon => neon::add_by_16::<COPY>,
        _ => scalar::add::<COPY>,
    }
}
