//! The cluster's secret, and the key that encrypts control connections.
//!
//! Both sides of a connection must know the secret; it is never sent (`bootstrap::secure_channel`). An inserted, changed, dropped or
//! repeated message is detected, and an eavesdropper learns neither the keys of groups nor the tickets of jobs.

use std::fmt;
use std::io;
use std::path::Path;

use bootstrap::auth::MacKey;
use bootstrap::secure_channel::SECRET_KEY_BYTES;

use super::credential::CredentialClaim;

/// The shortest acceptable secret.
const MIN_SECRET_BYTES: usize = 8;
const MAX_SECRET_FILE_BYTES: u64 = 4096;

/// The secret that manager and nodes of one cluster share, and whoever starts jobs there.
#[derive(Clone)]
pub struct ClusterSecret(Vec<u8>);

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
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

    /// The key that encrypts connections.
    pub(super) fn channel_key(&self) -> [u8; SECRET_KEY_BYTES] {
        MacKey::new(&self.0).mac(&[b"pleach control 2 channel"])
    }

    /// The key of a job's credential.
    pub(super) fn job_key(&self, claim: CredentialClaim) -> [u8; SECRET_KEY_BYTES] {
        let CredentialClaim { id, expires } = claim;
        MacKey::new(&self.0).mac(&[b"pleach job credential", &id.0.to_le_bytes(), &expires.to_le_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_the_secret_and_white_space_around_it_does_not_count() {
        let key = |text| ClusterSecret::new(text).expect("long enough").channel_key();
        assert_eq!(key("correct horse"), key(" correct horse\n"));
        assert_ne!(key("correct horse"), key("battery staple"));
        assert!(ClusterSecret::new("  short ").is_err());
    }
}
