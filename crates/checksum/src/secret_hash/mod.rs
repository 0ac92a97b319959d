//! A hash with a secret: the part of a MAC that reads the message.
//!
//! In: secret random numbers, once; then bytes, and perhaps where to copy them. Out: 128 bits of hash. Whoever does not know the secret finds two
//! messages of one length with the same hash only by chance.
//!
//! The hash is CLNH (D. Lemire and O. Kaser, Faster 64-bit universal hashing using carry-less multiplications, 2016): secret words are added
//! to the 64-bit words of the message, pairs of them are multiplied, and the products are added, all as polynomials over GF(2). Two messages
//! have the same sum under one of 2^64 secrets at most. A block has 2 KiB; what is missing in its last row counts as zeros. The sums of
//! longer messages go through a CRC by a secret polynomial ([`SecretCrc64`]).
//!
//! One multiplication for 16 bytes is half of what such a CRC of the whole message needs.
//!
//! A hash by itself reveals the secret. It must not be sent, only be put into a pseudo-random function together with the length of the message.

mod kernel_dispatch;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod product_sums;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::crc::{CrcKernel, SecretCrc64};
use product_sums::{BLOCK_ROWS, ProductSums, ROW_BYTES, RowKeys};

const BLOCK_BYTES: usize = BLOCK_ROWS * ROW_BYTES;

/// A hash function with a secret.
pub struct SecretHash {
    kernel: CrcKernel,
    keys: Box<RowKeys>,
    /// Of the sums of blocks.
    blocks: SecretCrc64,
}

impl std::fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretHash(..)")
    }
}

impl SecretHash {
    /// By numbers that only those who share the secret can draw.
    pub fn new(mut draw: impl FnMut() -> u64) -> Self {
        let keys = Box::new(RowKeys(std::array::from_fn(|_| std::array::from_fn(|_| draw().to_le()))));
        Self { kernel: CrcKernel::best(), keys, blocks: SecretCrc64::new(draw) }
    }

    /// The hash of these bytes.
    #[inline]
    pub fn value(&self, bytes: &[u8]) -> [u64; 2] {
        let mut state = HashState::new(self);
        state.add_last(bytes, None);
        state.finish()
    }

    /// The hash of these bytes, one slice after the other.
    pub fn value_of_parts<const N: usize>(&self, parts: [&[u8]; N]) -> [u64; 2] {
        let mut state = HashState::new(self);
        // A row that parts share.
        let (mut shared, mut filled) = ([0; ROW_BYTES], 0);
        for mut part in parts {
            if filled > 0 {
                let (head, rest) = part.split_at(part.len().min(ROW_BYTES - filled));
                shared[filled..filled + head.len()].copy_from_slice(head);
                (filled, part) = (filled + head.len(), rest);
                if filled < ROW_BYTES {
                    continue;
                }
                state.add_rows(&shared, None);
            }
            let (rows, rest) = part.split_at(part.len() / ROW_BYTES * ROW_BYTES);
            state.add_rows(rows, None);
            shared[..rest.len()].copy_from_slice(rest);
            filled = rest.len();
        }
        state.add_last(&shared[..filled], None);
        state.finish()
    }

    /// Copies bytes and returns their hash, in one pass.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn copy(&self, from: &[u8], to: &mut [u8]) -> [u64; 2] {
        assert_eq!(from.len(), to.len(), "source and target of a copy have the same length");
        let mut state = HashState::new(self);
        state.add_last(from, Some(to));
        state.finish()
    }
}

/// A hash that is being computed.
struct HashState<'a> {
    hash: &'a SecretHash,
    sums: ProductSums,
    /// Rows of the current block.
    rows: usize,
    /// The CRC's register after the sums of all blocks before the current one; none if it is the first.
    register: Option<u64>,
}

impl<'a> HashState<'a> {
    #[inline]
    fn new(hash: &'a SecretHash) -> Self {
        Self { hash, sums: ProductSums::ZERO, rows: 0, register: None }
    }

    /// Adds whole rows.
    #[inline]
    fn add_rows(&mut self, mut from: &[u8], mut to: Option<&mut [u8]>) {
        while !from.is_empty() {
            if self.rows == BLOCK_ROWS {
                self.register = Some(self.absorb_block());
                (self.sums, self.rows) = (ProductSums::ZERO, 0);
            }
            let (now, later) = from.split_at(from.len().min(BLOCK_BYTES - self.rows * ROW_BYTES));
            let (room, room_later) = match to {
                Some(to) => {
                    let (room, later) = to.split_at_mut(now.len());
                    (Some(room), Some(later))
                }
                None => (None, None),
            };
            self.sums.add(self.hash.kernel, &self.hash.keys, self.rows, now, room);
            self.rows += now.len() / ROW_BYTES;
            (from, to) = (later, room_later);
        }
    }

    /// Adds the last bytes, any number.
    #[inline]
    fn add_last(&mut self, from: &[u8], to: Option<&mut [u8]>) {
        let whole = from.len() / ROW_BYTES * ROW_BYTES;
        let (rows, rest) = from.split_at(whole);
        match to {
            Some(to) => {
                let (room, room_rest) = to.split_at_mut(whole);
                self.add_rows(rows, Some(room));
                room_rest.copy_from_slice(rest);
            }
            None => self.add_rows(rows, None),
        }
        if !rest.is_empty() {
            let mut row = [0; ROW_BYTES];
            row[..rest.len()].copy_from_slice(rest);
            self.add_rows(&row, None);
        }
    }

    fn absorb_block(&self) -> u64 {
        let mut bytes = [0; 16];
        for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.sums.total()) {
            *place = word.to_le_bytes();
        }
        self.hash.blocks.update(self.hash.kernel, self.register.unwrap_or(u64::MAX), &bytes)
    }

    #[inline]
    fn finish(&self) -> [u64; 2] {
        match self.register {
            None => self.sums.total(),
            Some(_) => [self.absorb_block(), 0],
        }
    }
}
