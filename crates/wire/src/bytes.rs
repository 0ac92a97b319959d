//! Fixed-size reads and writes: every length is checked once, here, and known to the compiler afterwards.

use crate::ParseError;

/// The first `N` bytes, or an error that says how many there are.
pub(crate) fn prefix<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], ParseError> {
    bytes.first_chunk().ok_or(ParseError::TooShort { needed: N, given: bytes.len() })
}

/// Everything but the last `N` bytes, and the last `N` bytes.
pub(crate) fn split_tail<const N: usize>(bytes: &[u8]) -> Result<(&[u8], &[u8; N]), ParseError> {
    bytes.split_last_chunk().ok_or(ParseError::TooShort { needed: N, given: bytes.len() })
}

/// The first `N` bytes of a buffer, to write a header into.
///
/// # Panics
/// If the buffer is shorter than `N`: the caller sized it.
pub(crate) fn prefix_mut<const N: usize>(buffer: &mut [u8]) -> &mut [u8; N] {
    let given = buffer.len();
    buffer
        .first_chunk_mut()
        .unwrap_or_else(|| panic!("a header of {N} bytes needs a larger buffer than {given} bytes"))
}

/// Copies the `N` bytes at offset `at`. The bounds check disappears where the compiler knows the length.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Reads the 24-bit number at offset `at`.
pub(crate) fn read_24(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]])
}

/// Writes a 24-bit number at offset `at`.
///
/// # Panics
/// If the number has more than 24 bits.
pub(crate) fn write_24(bytes: &mut [u8], at: usize, number: u32) {
    let [high, low @ ..] = number.to_be_bytes();
    assert_eq!(high, 0, "{number} does not fit 24 bits");
    bytes[at..at + 3].copy_from_slice(&low);
}
