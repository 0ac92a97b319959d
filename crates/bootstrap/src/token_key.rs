//! The secret with which connections between ranks are encrypted, derived from the job's token. The token itself is never sent.

use super::auth::MacKey;
use super::environment::JobToken;
use super::join_request::RENDEZVOUS_VERSION;
use super::secure_channel::SECRET_KEY_BYTES;

/// The key of a rendezvous: the token, and the secret of the rendezvous file if there is one.
#[derive(Clone, Debug)]
pub(super) struct TokenKey(MacKey);

impl TokenKey {
    pub(super) fn new(token: &JobToken, secret: &str) -> Self {
        let mut key = token.0.clone();
        key.push(0); // Neither part contains it, so different pairs give different keys.
        key.extend(secret.as_bytes());
        Self(MacKey::new(&key))
    }

    /// The secret of connections to this rank. Another rank cannot answer for it, even if the network leads connections astray (P-101).
    pub(super) fn channel_key(&self, acceptor: u32) -> [u8; SECRET_KEY_BYTES] {
        self.0.mac(&[b"pleach rendezvous channel", &RENDEZVOUS_VERSION.to_le_bytes(), &acceptor.to_le_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_depends_on_the_token_the_rendezvous_file_and_the_rank() {
        let derived = |token: &str, secret, rank| TokenKey::new(&JobToken(token.into()), secret).channel_key(rank);
        assert_eq!(derived("ab", "c", 1), derived("ab", "c", 1));
        assert_ne!(derived("ab", "c", 1), derived("ab", "c", 2));
        assert_ne!(derived("ab", "c", 1), derived("a", "bc", 1));
        assert_ne!(derived("ab", "c", 1), derived("ab", "d", 1));
    }
}
