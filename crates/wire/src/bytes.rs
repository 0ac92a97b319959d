//! Fixed pieces of byte strings: all lengths are checked once, here, and known to the compiler after.

use crate::ParseError;

/// The first `N` bytes, or how many are missing.
pub(crate) fn head<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::TooShort { needed: N, given: bytes.len() })
}

/// All but the last `N` bytes, and those, or how many are missing.
pub(crate) fn split_tail<const N: usize>(bytes: &[u8]) -> Result<(&[u8], &[u8; N]), ParseError> {
    bytes.split_last_chunk().ok_or(ParseError::TooShort { needed: N, given: bytes.len() })
}

/// The place where a header of `N` bytes is written.
///
/// # Panics
/// If there is no room: the caller sized the buffer.
pub(crate) fn room<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    let given = buffer.len();
    buffer.first_chunk_mut().unwrap_or_else(|| panic!("a header of {N} bytes has room for {given}"))
}

/// Copies `N` bytes from `at` on; the compiler sees that they are there.
pub(crate) fn piece<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&bytes[at..at + N]);
    piece
}

/// Three bytes at `at` as a number.
pub(crate) fn read_24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// Writes a number of at most 24 bits.
///
/// # Panics
/// If it has more.
pub(crate) fn write_24(bytes: &mut [u8], at: usize, number: u32) {
    let [high, low @ ..] = number.to_be_bytes();
    assert_eq!(high, 0, "{number} does not fit 24 bits");
    bytes[at..at + 3].copy_from_slice(&low);
}
