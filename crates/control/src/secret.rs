//! The cluster's secret, and how both sides of a connection prove that they know it without sending it.
//!
//! Each side sends a nonce; each side answers with an HMAC-SHA-256 over both nonces and its own side, so that a proof is useless
//! in any other connection and in the other direction. The same inputs give a key for each direction, which authenticates every
//! later message: an inserted, changed, dropped or repeated message is detected. Nothing is encrypted: an eavesdropper on the
//! control network can read the keys of groups.

use std::fmt;
use std::io;
use std::path::Path;

use bootstrap::auth::{MAC_BYTES, MacKey, Nonce};

pub(super) type MacTag = [u8; 16];

/// The shortest acceptable secret.
const MIN_SECRET_BYTES: usize = 8;
const MAX_SECRET_FILE_BYTES: u64 = 4096;

/// The secret that manager, nodes and jobs of one cluster share.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// One side of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionSide {
    /// Made the connection.
    Initiator,
    /// Accepted the connection.
    Responder,
}

impl ConnectionSide {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }

    /// The label that goes into MACs. It is part of the protocol.
    fn label(self) -> &'static [u8] {
        match self {
            Self::Initiator => b"caller",
            Self::Responder => b"called",
        }
    }
}

impl ClusterSecret {
    /// From text; surrounding white space is ignored.
    ///
    /// # Errors
    /// If it is too short.
    pub fn new(text: &str) -> io::Result<Self> {
        let text = text.trim();
        if text.len() < MIN_SECRET_BYTES {
            let what = format!("a cluster secret has at least {MIN_SECRET_BYTES} characters");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }

    /// From a file.
    ///
    /// # Errors
    /// If the file cannot be read or its content is too short.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        use std::io::Read;
        let mut text = String::new();
        std::fs::File::open(path)?.take(MAX_SECRET_FILE_BYTES).read_to_string(&mut text)?;
        Self::new(&text)
    }

    /// From `PLEACH_SECRET` or the file that `PLEACH_SECRET_FILE` names; `None` if neither is set.
    ///
    /// # Errors
    /// As [`Self::from_file`].
    pub fn from_environment() -> io::Result<Option<Self>> {
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(text) = get("PLEACH_SECRET") {
            return Self::new(&text.to_string_lossy()).map(Some);
        }
        get("PLEACH_SECRET_FILE").map(|path| Self::from_file(Path::new(&path))).transpose()
    }

    fn mac(&self, purpose: &[u8], side: ConnectionSide, initiator: &Nonce, responder: &Nonce) -> [u8; MAC_BYTES] {
        MacKey::new(&self.0).mac(&[b"pleach control 1 ", purpose, side.label(), initiator, responder])
    }

    /// The proof of one side.
    pub(super) fn proof(&self, side: ConnectionSide, initiator: &Nonce, responder: &Nonce) -> [u8; 32] {
        self.mac(b"proof ", side, initiator, responder)
    }

    /// Authenticates the messages of one side.
    pub(super) fn authenticator(
        &self,
        side: ConnectionSide,
        initiator: &Nonce,
        responder: &Nonce,
    ) -> MessageAuthenticator {
        MessageAuthenticator { key: MacKey::new(&self.mac(b"seal ", side, initiator, responder)), count: 0 }
    }
}

/// The key of one direction of one connection. Messages are counted, so that a dropped or repeated one is detected.
pub(super) struct MessageAuthenticator {
    key: MacKey,
    count: u64,
}

impl MessageAuthenticator {
    pub(super) fn next_tag(&mut self, message: &[u8]) -> MacTag {
        let mac = self.key.mac(&[&self.count.to_le_bytes(), message]);
        self.count += 1;
        let mut tag = MacTag::default();
        tag.copy_from_slice(&mac[..size_of::<MacTag>()]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_valid_for_one_side_of_one_connection_and_one_secret() {
        let (secret, other) =
            (ClusterSecret::new("correct horse").unwrap(), ClusterSecret::new("battery staple").unwrap());
        let (a, b) = ([1; 16], [2; 16]);
        let proof = secret.proof(ConnectionSide::Initiator, &a, &b);
        assert_eq!(proof, ClusterSecret::new(" correct horse\n").unwrap().proof(ConnectionSide::Initiator, &a, &b));
        assert_ne!(proof, secret.proof(ConnectionSide::Responder, &a, &b));
        assert_ne!(proof, secret.proof(ConnectionSide::Initiator, &b, &a));
        assert_ne!(proof, other.proof(ConnectionSide::Initiator, &a, &b));
        assert!(ClusterSecret::new("  short ").is_err());
    }

    #[test]
    fn a_tag_is_valid_for_one_message_once() {
        let secret = ClusterSecret::new("correct horse").unwrap();
        let authenticator = || secret.authenticator(ConnectionSide::Initiator, &[1; 16], &[2; 16]);
        let (mut a, mut b) = (authenticator(), authenticator());
        let first = a.next_tag(b"install");
        assert_eq!(first, b.next_tag(b"install"));
        assert_ne!(a.next_tag(b"install"), first);
        assert_ne!(authenticator().next_tag(b"instill"), first);
    }
}
