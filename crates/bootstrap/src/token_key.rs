//! Proof that both ends of a connection know the job's token, without sending it, and the key that encrypts the connection.
//!
//! Rank 0 sends a challenge; the other rank authenticates its join request together with it, and rank 0 authenticates its
//! welcome together with the other rank's nonce. A recorded request is useless at the next challenge.

use super::auth::{MAC_BYTES, MacKey, Nonce, constant_time_eq};
use super::environment::JobToken;
use super::secure_channel::SECRET_KEY_BYTES;

/// The key of a rendezvous: the token, and the secret of the rendezvous file if there is one.
#[derive(Clone, Debug)]
pub(super) struct TokenKey(MacKey);

/// What a MAC authenticates; a MAC for one purpose is invalid for the others.
#[derive(Clone, Copy)]
pub(super) enum MacPurpose {
    Hello = 1,
    Welcome = 2,
    Attach = 3,
    Attached = 4,
    Refused = 5,
    Channel = 6,
}

impl TokenKey {
    pub(super) fn new(token: &JobToken, secret: &str) -> Self {
        let mut key = token.0.clone();
        key.push(0); // Neither part contains it, so different pairs give different keys.
        key.extend(secret.as_bytes());
        Self(MacKey::new(&key))
    }

    pub(super) fn mac(&self, purpose: MacPurpose, challenge: &Nonce, text: &[u8]) -> [u8; MAC_BYTES] {
        self.0.mac(&[&[purpose as u8], challenge, text])
    }

    /// The key with which connections are encrypted.
    pub(super) fn channel_key(&self) -> [u8; SECRET_KEY_BYTES] {
        self.mac(MacPurpose::Channel, &Nonce::default(), &[])
    }

    pub(super) fn verify(&self, purpose: MacPurpose, challenge: &Nonce, text: &[u8], mac: &[u8]) -> bool {
        constant_time_eq(&self.mac(purpose, challenge, text), mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_is_valid_for_one_key_one_purpose_one_challenge_and_one_text() {
        let key = |token: &str, secret| TokenKey::new(&JobToken(token.as_bytes().to_vec()), secret);
        let (own, one, other) = (key("ab", "c"), [1; 16], [2; 16]);
        let mac = own.mac(MacPurpose::Hello, &one, b"text");
        assert!(own.verify(MacPurpose::Hello, &one, b"text", &mac));
        assert!(!own.verify(MacPurpose::Welcome, &one, b"text", &mac));
        assert!(!own.verify(MacPurpose::Hello, &other, b"text", &mac));
        assert!(!own.verify(MacPurpose::Hello, &one, b"texts", &mac));
        assert!(!own.verify(MacPurpose::Hello, &one, b"text", &mac[..31]));
        assert!(!key("a", "bc").verify(MacPurpose::Hello, &one, b"text", &mac));
    }
}
