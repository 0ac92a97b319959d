//! What kernels compute: the sum of a block's products, under the keys of its rows.

/// Bytes of a row: four pairs of words.
pub(super) const ROW_BYTES: usize = 64;
/// Rows of a block.
pub(super) const BLOCK_ROWS: usize = 32;

/// Eight secret words for each row of a block.
#[repr(C, align(64))]
pub(super) struct RowKeys(pub(super) [[u64; 8]; BLOCK_ROWS]);

/// The products of the rows of a block so far, added without carry: four sums, one for each place in a row.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct ProductSums(pub(super) [[u64; 2]; 4]);

impl ProductSums {
    pub(super) const ZERO: Self = Self([[0; 2]; 4]);

    /// All of them in one.
    #[inline]
    pub(super) fn total(&self) -> [u64; 2] {
        self.0.into_iter().fold([0; 2], |sum, place| [sum[0] ^ place[0], sum[1] ^ place[1]])
    }
}
