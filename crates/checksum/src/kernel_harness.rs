//! Shared by the tests of kernels: test bytes, and the check of a copy.

use std::fmt;

use crate::prefetch::TargetCache;

/// Pseudo-random bytes (xorshift).
pub(crate) fn random_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(length)
    .collect()
}

/// Bytes before and after a copy that must not change.
pub(crate) const GUARD_BYTES: usize = 64;

/// Checks one copy to this offset behind the guard: the checksum, the bytes, and that nothing else was written.
pub(crate) fn check_copy(
    bytes: &[u8],
    target: &mut [u8],
    to: usize,
    wanted: u64,
    kernel: fmt::Arguments<'_>,
    copy: impl FnOnce(&[u8], &mut [u8], TargetCache) -> u64,
) {
    let (begin, end) = (GUARD_BYTES + to, GUARD_BYTES + to + bytes.len());
    let case = || format!("{} bytes to {to}, {kernel}", bytes.len());
    target[to..end + GUARD_BYTES].fill(0xa5);
    // Prefetching must not change the result, so alternate.
    let whose = if bytes.len().is_multiple_of(2) { TargetCache::Local } else { TargetCache::Remote };
    assert_eq!(copy(bytes, &mut target[begin..end], whose), wanted, "{}", case());
    assert!(target[begin..end] == *bytes, "{}", case());
    let clean = target[to..begin] == [0xa5; GUARD_BYTES] && target[end..end + GUARD_BYTES] == [0xa5; GUARD_BYTES];
    assert!(clean, "written outside the copy: {}", case());
}
