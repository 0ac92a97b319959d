//! What authenticated connections share: HMAC-SHA-256, nonces, comparison in constant time, hexadecimal text.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;
/// A random number that is used once.
pub type Nonce = [u8; 16];

/// A key for HMAC-SHA-256.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// A key of any length.
    pub fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("HMAC takes keys of any length"))
    }

    /// The MAC over the concatenation of the parts.
    pub fn mac(&self, parts: &[&[u8]]) -> [u8; MAC_BYTES] {
        let mut mac = self.0.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    }
}

impl std::fmt::Debug for MacKey {
    /// Hides the key, so that it never appears in a log.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("MacKey(..)")
    }
}

/// Compares in constant time: the duration does not reveal where two values differ.
pub fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Unpredictable bytes from the kernel.
///
/// # Errors
/// The kernel has no random numbers.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

/// An unpredictable nonce.
///
/// # Errors
/// The kernel has no random numbers.
pub fn random_nonce() -> io::Result<Nonce> {
    random_bytes()
}

/// Bytes as hexadecimal text.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal text as bytes; `None` if the length or a digit is wrong.
pub fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_round_trips_and_bad_text_is_rejected() {
        let nonce = random_nonce().expect("Linux has random numbers");
        assert_eq!(from_hex(&to_hex(&nonce)), Some(nonce));
        for bad in ["", "0", "0g", "+1", "010203"] {
            assert_eq!(from_hex::<2>(bad), None, "{bad}");
        }
        assert_ne!(nonce, random_nonce().expect("Linux has random numbers"));
    }

    #[test]
    fn a_mac_depends_on_key_and_text() {
        let (one, other) = (MacKey::new(b"one"), MacKey::new(b"other"));
        assert_eq!(one.mac(&[b"ab", b"c"]), one.mac(&[b"a", b"bc"]), "parts are concatenated");
        assert_ne!(one.mac(&[b"abc"]), other.mac(&[b"abc"]));
        assert_ne!(one.mac(&[b"abc"]), one.mac(&[b"abd"]));
    }
}
