//! The cluster's secret, and how both ends of a connection prove that they know it without saying it.
//!
//! Each sends a number that was never used before; each answers with an HMAC-SHA-256 over both numbers and its own side,
//! so that an answer is of no use to anybody else, in no other connection and in no other direction. From the same comes
//! a key for each direction, with which every later message is sealed: nobody can put in, change, drop or repeat one
//! unnoticed. Nothing is hidden: who can read the control network can read the keys of groups.

use std::fmt;
use std::io;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub(super) type SessionNonce = [u8; 16];
pub(super) type MacTag = [u8; 16];

/// The shortest secret that is worth the name.
const MIN_SECRET_BYTES: usize = 8;
const MAX_SECRET_FILE_BYTES: u64 = 4096;

/// What manager, nodes and jobs of one cluster share.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionSide {
    /// Made the connection.
    Caller,
    /// Was called.
    Called,
}

impl ConnectionSide {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Caller => Self::Called,
            Self::Called => Self::Caller,
        }
    }

    fn word(self) -> &'static [u8] {
        match self {
            Self::Caller => b"caller",
            Self::Called => b"called",
        }
    }
}

impl ClusterSecret {
    /// From a person's words; white space around them does not count.
    ///
    /// # Errors
    /// If it is too short to be one.
    pub fn new(words: &str) -> io::Result<Self> {
        let words = words.trim();
        if words.len() < MIN_SECRET_BYTES {
            let what = format!("a cluster secret has at least {MIN_SECRET_BYTES} characters");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Self(words.as_bytes().to_vec()))
    }

    /// From a file.
    ///
    /// # Errors
    /// If it cannot be read or is no secret.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        use std::io::Read;
        let mut words = String::new();
        std::fs::File::open(path)?.take(MAX_SECRET_FILE_BYTES).read_to_string(&mut words)?;
        Self::new(&words)
    }

    /// From `PLEACH_SECRET` or the file that `PLEACH_SECRET_FILE` names; none if there is neither.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn from_environment() -> io::Result<Option<Self>> {
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(words) = get("PLEACH_SECRET") {
            return Self::new(&words.to_string_lossy()).map(Some);
        }
        get("PLEACH_SECRET_FILE").map(|path| Self::from_file(Path::new(&path))).transpose()
    }

    fn mac(&self, purpose: &[u8], side: ConnectionSide, caller: &SessionNonce, called: &SessionNonce) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [b"pleach control 1 ".as_slice(), purpose, side.word(), caller, called] {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// What the end on this side answers.
    pub(super) fn proof(&self, side: ConnectionSide, caller: &SessionNonce, called: &SessionNonce) -> [u8; 32] {
        self.mac(b"proof ", side, caller, called)
    }

    /// Seals what the end on this side sends.
    pub(super) fn seal(
        &self,
        side: ConnectionSide,
        caller: &SessionNonce,
        called: &SessionNonce,
    ) -> MessageAuthenticator {
        MessageAuthenticator { key: self.mac(b"seal ", side, caller, called), count: 0 }
    }
}

/// Compares in a time that does not tell where two differ.
pub(super) fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// The key of one direction of one connection. Messages are counted, so that none can be left out or repeated.
pub(super) struct MessageAuthenticator {
    key: [u8; 32],
    count: u64,
}

impl MessageAuthenticator {
    pub(super) fn next_tag(&mut self, message: &[u8]) -> MacTag {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(&self.count.to_le_bytes());
        mac.update(message);
        self.count += 1;
        let mut tag = MacTag::default();
        tag.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        tag
    }
}

/// Bytes that nobody can guess.
pub(super) fn random_nonce() -> io::Result<SessionNonce> {
    let mut bytes = SessionNonce::default();
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_side_of_one_connection_and_one_secret() {
        let (secret, other) =
            (ClusterSecret::new("correct horse").unwrap(), ClusterSecret::new("battery staple").unwrap());
        let (a, b) = ([1; 16], [2; 16]);
        let proof = secret.proof(ConnectionSide::Caller, &a, &b);
        assert_eq!(proof, ClusterSecret::new(" correct horse\n").unwrap().proof(ConnectionSide::Caller, &a, &b));
        assert_ne!(proof, secret.proof(ConnectionSide::Called, &a, &b));
        assert_ne!(proof, secret.proof(ConnectionSide::Caller, &b, &a));
        assert_ne!(proof, other.proof(ConnectionSide::Caller, &a, &b));
        assert!(ClusterSecret::new("  short ").is_err());
    }

    #[test]
    fn a_seal_fits_one_message_once() {
        let secret = ClusterSecret::new("correct horse").unwrap();
        let seal = || secret.seal(ConnectionSide::Caller, &[1; 16], &[2; 16]);
        let (mut a, mut b) = (seal(), seal());
        let first = a.next_tag(b"install");
        assert_eq!(first, b.next_tag(b"install"));
        assert_ne!(a.next_tag(b"install"), first);
        assert_ne!(seal().next_tag(b"instill"), first);
    }
}
