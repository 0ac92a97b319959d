//! The costs of the network between the hosts of a job, as a file that later jobs use; `network_measurement` makes it.
//!
//! The choice of an algorithm decides in which order sums are rounded. So a job does not measure for itself, or a result could differ
//! from run to run: it uses the file that rank 0 has, or the usual costs of a network.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use checksum::tuning::TuningCache;
use protocol::collective::TransportCosts;
use serde::{Deserialize, Serialize};

use crate::error::JoinError;

/// The variable that names the file.
pub(crate) const NETWORK_COSTS: &str = "PLEACH_NETWORK_COSTS";
/// The file in the user's cache.
const FILE_NAME: &str = "network-costs.json";
/// Changes with the meaning of the fields.
pub(crate) const VERSION: u32 = 1;
/// Valid files are a tenth of this.
const MAX_FILE_BYTES: u64 = 4 << 10;
/// The costs of a network, and how they were found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkCosts {
    pub(crate) version: u32,
    /// Hosts that took part.
    pub hosts: u32,
    /// The median of an allreduce of 8 bytes by recursive doubling, at the slowest rank.
    pub short_ns: u64,
    /// The same for 1 MiB by a ring.
    pub long_ns: u64,
    /// From the start of a send to the end of the receive, for an empty message.
    pub message_ns: u64,
    /// Each further message that a host sends or receives in the same round.
    pub next_message_ns: u64,
    /// One byte on the wire, in picoseconds.
    pub byte_ps: u64,
    /// Folding one byte, in picoseconds.
    pub fold_byte_ps: u64,
}

/// Why a file of costs cannot be used.
pub struct NetworkCostsError {
    file: PathBuf,
    what: String,
}

impl std::fmt::Display for NetworkCostsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, what } = self;
        write!(f, "{}: {what}; write a new one with `pleach tune --network`, or remove it", file.display())
    }
}

/// As [`Display`](std::fmt::Display): a `main` that returns the error prints `Debug`.
impl std::fmt::Debug for NetworkCostsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NetworkCostsError {}

impl NetworkCosts {
    pub(crate) fn costs(&self) -> TransportCosts {
        let Self { message_ns, next_message_ns, byte_ps, fold_byte_ps, .. } = *self;
        TransportCosts { message_ns, next_message_ns, byte_ps, fold_byte_ps }
    }

    /// The file in the user's cache; none if there is no place for one.
    pub fn default_file() -> Option<PathBuf> {
        TuningCache::user_default().map(|cache| cache.directory().join(FILE_NAME))
    }

    /// The costs for jobs that this process starts: those of the named file, or of the one in the user's cache if it is there.
    ///
    /// # Errors
    /// If the file is named and missing, or cannot be read, or is none of these.
    pub fn for_jobs(named: Option<&str>) -> Result<Option<Self>, NetworkCostsError> {
        match (named, Self::default_file()) {
            (Some(file), _) => Self::load(Path::new(file)).map(Some),
            (None, Some(file)) if file.is_file() => Self::load(&file).map(Some),
            (None, _) => Ok(None),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or does not contain the costs of a network.
    pub fn load(file: &Path) -> Result<Self, NetworkCostsError> {
        let wrong = |what: String| NetworkCostsError { file: file.to_owned(), what };
        let read = || -> io::Result<String> {
            if !fs::metadata(file)?.is_file() {
                return Err(io::Error::other("not a file")); // Opening a named pipe would block.
            }
            let mut text = String::new();
            fs::File::open(file)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error| wrong(error.to_string()))?;
        let found: Self =
            serde_json::from_str(&text).map_err(|error| wrong(format!("not costs of a network: {error}")))?;
        if found.version != VERSION || !found.costs().are_plausible() {
            return Err(wrong(format!("costs of another version, or values that no network has: {}", text.trim())));
        }
        Ok(found)
    }

    /// Writes a file. Concurrent readers see the old one or the new one.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, file: &Path) -> io::Result<()> {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        let unfinished = file.with_extension(format!("{}.new", std::process::id()));
        let text = serde_json::to_string_pretty(self)? + "\n";
        let done = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, file));
        if done.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        done
    }
}

impl From<NetworkCostsError> for JoinError {
    fn from(error: NetworkCostsError) -> Self {
        Self::InvalidSetting { name: NETWORK_COSTS, what: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs() -> NetworkCosts {
        NetworkCosts {
            version: VERSION,
            hosts: 2,
            short_ns: 9_000,
            long_ns: 600_000,
            message_ns: 9_000,
            next_message_ns: 2_250,
            byte_ps: 300,
            fold_byte_ps: 60,
        }
    }

    #[test]
    fn costs_are_read_as_they_were_written() {
        let folder = std::env::temp_dir().join(format!("pleach-network-costs-{}", std::process::id()));
        let file = folder.join("sub/costs.json");
        costs().save(&file).expect("written");
        assert_eq!(NetworkCosts::load(&file).ok(), Some(costs()));
        for wrong in ["", "{}", "null", &fs::read_to_string(&file).expect("text").replace("300", "0")] {
            fs::write(&file, wrong).expect("written");
            let error = NetworkCosts::load(&file).expect_err(wrong).to_string();
            assert!(error.contains("costs.json") && error.contains("pleach tune --network"), "{error}");
        }
        assert!(NetworkCosts::load(&folder).is_err(), "a folder");
        fs::remove_dir_all(&folder).expect("removed");
        assert!(NetworkCosts::for_jobs(file.to_str()).is_err(), "a named file must be there");
    }
}
