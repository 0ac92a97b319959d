//! What tests of kernels share: bytes to try, and a look at everything that a copy did.

use std::fmt;

use crate::prefetch::TargetCache;

/// Bytes without a pattern (xorshift).
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

/// Bytes before and behind a copy in which nothing may change.
pub(crate) const GUARD_BYTES: usize = 64;

/// One copy to this place behind the guard: the value, the bytes, and nothing written beside them.
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
    // What is asked for in advance is no matter of the value, so the two take turns.
    let whose = if bytes.len().is_multiple_of(2) { TargetCache::Own } else { TargetCache::Others };
    assert_eq!(copy(bytes, &mut target[begin..end], whose), wanted, "{}", case());
    assert!(target[begin..end] == *bytes, "{}", case());
    let clean = target[to..begin] == [0xa5; GUARD_BYTES] && target[end..end + GUARD_BYTES] == [0xa5; GUARD_BYTES];
    assert!(clean, "beside the copy: {}", case());
}
