//! What a process proves to a manager: that it belongs to the cluster, or to one job (P-105).
//!
//! A job's credential is derived from the cluster's secret, so that the manager keeps no list: a random number, the time at which it
//! ends, and a key that only those who know the secret can compute from both. Ranks get the credential and never see the secret.

use std::fmt;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bootstrap::auth::{MAC_BYTES, random_bytes, to_hex};
use manager::CredentialId;
use serde::{Deserialize, Serialize};

use super::secret::ClusterSecret;

/// The variable with a job's credential.
pub const CREDENTIAL_VARIABLE: &str = "PLEACH_JOB_CREDENTIAL";
/// How long the credential of a job that `pleach` starts is valid.
pub const DEFAULT_CREDENTIAL_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// The first word of its text, so that another form can be told from it.
const TEXT_VERSION: &str = "1";

/// The public part of a job's credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct CredentialClaim {
    /// Its random number.
    pub id: CredentialId,
    /// When it ends, in seconds since 1970.
    pub expires: u64,
}

impl CredentialClaim {
    pub(super) fn has_expired(self) -> bool {
        self.expires <= unix_seconds()
    }
}

/// A job's credential.
#[derive(Clone)]
pub struct JobCredential {
    claim: CredentialClaim,
    key: [u8; MAC_BYTES],
}

impl fmt::Debug for JobCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobCredential({})", self.claim.id)
    }
}

impl JobCredential {
    /// A new one, valid for so long.
    ///
    /// # Errors
    /// The kernel has no random numbers.
    pub fn issue(secret: &ClusterSecret, lifetime: Duration) -> io::Result<Self> {
        let expires = unix_seconds().saturating_add(lifetime.as_secs());
        let claim = CredentialClaim { id: CredentialId(u64::from_le_bytes(random_bytes()?)), expires };
        Ok(Self { claim, key: secret.job_key(claim) })
    }

    /// From its text.
    ///
    /// # Errors
    /// If it is not the text of a credential.
    pub fn parse(text: &str) -> io::Result<Self> {
        let malformed = || {
            let what = format!("{CREDENTIAL_VARIABLE} is malformed: it must be what `pleach credential` printed");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        };
        let words: Vec<&str> = text.trim().split('-').collect();
        let [TEXT_VERSION, id, expires, key] = words[..] else { return Err(malformed()) };
        let id = u64::from_str_radix(id, 16).map_err(|_| malformed())?;
        let expires = expires.parse().map_err(|_| malformed())?;
        let key = from_hex(key).ok_or_else(malformed)?;
        Ok(Self { claim: CredentialClaim { id: CredentialId(id), expires }, key })
    }

    /// Its text, which holds the key: whoever reads it can act for the job.
    pub fn to_text(&self) -> String {
        let CredentialClaim { id, expires } = self.claim;
        format!("{TEXT_VERSION}-{id}-{expires}-{}", to_hex(&self.key))
    }

    /// True if it is not valid any more.
    pub fn has_expired(&self) -> bool {
        self.claim.has_expired()
    }

    pub(super) fn claim(&self) -> CredentialClaim {
        self.claim
    }

    pub(super) fn channel_key(&self) -> [u8; MAC_BYTES] {
        self.key
    }
}

/// What a process that connects has.
#[derive(Clone, Debug)]
pub enum ControlCredential {
    /// The cluster's secret: all rights.
    Cluster(ClusterSecret),
    /// A job's credential: the rights of that job.
    Job(JobCredential),
}

impl From<ClusterSecret> for ControlCredential {
    fn from(secret: ClusterSecret) -> Self {
        Self::Cluster(secret)
    }
}

impl ControlCredential {
    /// From `PLEACH_JOB_CREDENTIAL`, else as [`ClusterSecret::from_environment`]; `None` if nothing is set.
    ///
    /// # Errors
    /// If what is set cannot be read, or is malformed.
    pub fn from_environment() -> io::Result<Option<Self>> {
        match std::env::var(CREDENTIAL_VARIABLE) {
            Ok(text) if !text.is_empty() => JobCredential::parse(&text).map(|job| Some(Self::Job(job))),
            _ => Ok(ClusterSecret::from_environment()?.map(Self::Cluster)),
        }
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn from_hex(text: &str) -> Option<[u8; MAC_BYTES]> {
    let mut bytes = [0; MAC_BYTES];
    if text.len() != 2 * MAC_BYTES || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> ClusterSecret {
        ClusterSecret::new(text).expect("long enough")
    }

    #[test]
    fn the_text_of_a_credential_is_read_back_and_the_manager_derives_the_same_key() {
        let secret = secret("correct horse");
        let issued = JobCredential::issue(&secret, Duration::from_secs(60)).expect("random numbers");
        let read = JobCredential::parse(&format!(" {}\n", issued.to_text())).expect("its own text");
        assert_eq!((read.claim(), read.channel_key()), (issued.claim(), issued.channel_key()));
        assert_eq!(secret.job_key(read.claim()), read.channel_key());
        assert!(!read.claim().has_expired());
        assert!(JobCredential::issue(&secret, Duration::ZERO).expect("random numbers").claim().has_expired());
    }

    #[test]
    fn the_key_depends_on_secret_number_and_end_and_differs_from_the_clusters() {
        let (one, other) = (secret("correct horse"), secret("battery staple"));
        let claim = CredentialClaim { id: CredentialId(7), expires: 1000 };
        let key = one.job_key(claim);
        assert_ne!(key, other.job_key(claim));
        assert_ne!(key, one.job_key(CredentialClaim { id: CredentialId(8), ..claim }));
        assert_ne!(key, one.job_key(CredentialClaim { expires: 1001, ..claim }));
        assert_ne!(key, one.channel_key());
    }

    #[test]
    fn malformed_texts_are_rejected_and_the_key_is_not_in_logs() {
        let good = JobCredential::issue(&secret("correct horse"), Duration::from_secs(60)).expect("random numbers");
        let text = good.to_text();
        let key = to_hex(&good.channel_key());
        for wrong in ["", "1", "1-2-3", "1-x-3-00", &text[..text.len() - 1], &format!("2{}", &text[1..])] {
            assert!(JobCredential::parse(wrong).is_err(), "{wrong}");
        }
        assert!(JobCredential::parse(&text.replace(&key, &"é".repeat(32))).is_err());
        assert!(!format!("{good:?}").contains(&key));
    }
}
