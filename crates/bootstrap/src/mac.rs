//! Proof that both ends of a connection know the job's token, without sending it.
//!
//! Rank 0 sends a challenge; the other end seals its greeting together with it, and rank 0 seals its welcome together
//! with what the other end chose. A recorded greeting is of no use at the next challenge.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::environment::JobToken;

pub(super) const MAC_BYTES: usize = 32;
/// A number that is used once.
pub(super) type JoinNonce = [u8; 16];

/// What the seals of a meeting are made with: the token, and the secret of the notice if there is one.
#[derive(Clone)]
pub(super) struct TokenKey(Hmac<Sha256>);

/// What is sealed; a seal for one is none for another.
#[derive(Clone, Copy)]
pub(super) enum MacPurpose {
    Hello = 1,
    Welcome = 2,
}

impl TokenKey {
    pub(super) fn new(token: &JobToken, secret: &str) -> Self {
        let mut key = token.0.clone();
        key.push(0); // Neither part holds it, so that no two pairs make one key.
        key.extend(secret.as_bytes());
        Self(Hmac::new_from_slice(&key).expect("a key of any length will do"))
    }

    pub(super) fn seal(&self, purpose: MacPurpose, challenge: &JoinNonce, text: &[u8]) -> [u8; MAC_BYTES] {
        self.begin(purpose, challenge, text).finalize().into_bytes().into()
    }

    pub(super) fn is_sealed(&self, purpose: MacPurpose, challenge: &JoinNonce, text: &[u8], seal: &[u8]) -> bool {
        self.begin(purpose, challenge, text).verify_slice(seal).is_ok()
    }

    fn begin(&self, purpose: MacPurpose, challenge: &JoinNonce, text: &[u8]) -> Hmac<Sha256> {
        let mut sealing = self.0.clone();
        sealing.update(&[purpose as u8]);
        sealing.update(challenge);
        sealing.update(text);
        sealing
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key(not shown)")
    }
}

/// A nonce that nobody could guess.
pub(super) fn random_nonce() -> JoinNonce {
    let mut nonce = JoinNonce::default();
    getrandom::fill(&mut nonce).expect("the kernel has random numbers");
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_holds_for_one_key_one_purpose_one_challenge_and_one_text() {
        let key = |token: &str, secret| TokenKey::new(&JobToken(token.as_bytes().to_vec()), secret);
        let (own, one, other) = (key("ab", "c"), random_nonce(), random_nonce());
        assert_ne!(one, other);
        let seal = own.seal(MacPurpose::Hello, &one, b"text");
        assert!(own.is_sealed(MacPurpose::Hello, &one, b"text", &seal));
        assert!(!own.is_sealed(MacPurpose::Welcome, &one, b"text", &seal));
        assert!(!own.is_sealed(MacPurpose::Hello, &other, b"text", &seal));
        assert!(!own.is_sealed(MacPurpose::Hello, &one, b"texts", &seal));
        assert!(!own.is_sealed(MacPurpose::Hello, &one, b"text", &seal[..31]));
        assert!(!key("a", "bc").is_sealed(MacPurpose::Hello, &one, b"text", &seal));
    }
}
