//! What keys are made with: HMAC-SHA-256, random bytes, hexadecimal text.

use std::io;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

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

/// Unpredictable bytes from the kernel.
///
/// # Errors
/// The kernel has no random numbers.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

/// Bytes as hexadecimal text.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_hexadecimal_text_has_two_digits_for_each_byte() {
        let random = || random_bytes::<16>().expect("Linux has random numbers");
        assert_ne!(random(), random());
        assert_eq!(to_hex(&[0, 10, 255]), "000aff");
    }

    #[test]
    fn a_mac_depends_on_key_and_text() {
        let (one, other) = (MacKey::new(b"one"), MacKey::new(b"other"));
        assert_eq!(one.mac(&[b"ab", b"c"]), one.mac(&[b"a", b"bc"]), "parts are concatenated");
        assert_ne!(one.mac(&[b"abc"]), other.mac(&[b"abc"]));
        assert_ne!(one.mac(&[b"abc"]), one.mac(&[b"abd"]));
    }
}
