//! Configuration from the environment: the variables of docs/mpi.md.

use std::time::Duration;

use pleach::environment::{renamed_variable, variable};
use pleach::{Settings, SharedMemoryRanks};

const MODE: &str = "PLEACH_MPI";
const MAX_BYTES: &str = "PLEACH_MPI_MAX_BYTES";
const MAX_BYTES_OLD: &str = "PLEACH_MPI_LARGEST";
const RANKS_PER_HOST: &str = "PLEACH_MPI_RANKS_PER_HOST";

/// Default of `PLEACH_MPI_MAX_BYTES`.
const DEFAULT_MAX_BYTES: usize = 256 << 20;
/// Pleach cannot do longer vectors.
const LARGEST_MAX_BYTES: usize = 1 << 30;
/// Default of `PLEACH_PATIENCE`: short, since all ranks have already been started.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Which calls are offloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OffloadMode {
    Off,
    BlockingOnly,
    All,
}

pub(crate) struct MpiConfiguration {
    pub(crate) mode: OffloadMode,
    /// Vectors up to this many bytes are offloaded.
    pub(crate) max_bytes: usize,
    pub(crate) report: Option<String>,
    pub(crate) settings: Settings,
}

/// Where to write the report (`PLEACH_MPI_REPORT`).
pub(crate) fn report() -> Option<String> {
    variable("PLEACH_MPI_REPORT")
}

/// True if the program shall not run, but only be explained (`PLEACH_MPI=explain`).
pub(crate) fn wants_explanation() -> bool {
    variable(MODE).as_deref() == Some("explain")
}

impl MpiConfiguration {
    /// The configuration of this rank of `MPI_COMM_WORLD`. `warn` gets warnings to print.
    pub(crate) fn from_environment(rank: u32, warn: impl FnOnce(&str)) -> Result<Self, String> {
        let mode = match variable(MODE).as_deref() {
            None | Some("on" | "explain") => OffloadMode::All,
            Some("blocking") => OffloadMode::BlockingOnly,
            Some("off") => OffloadMode::Off,
            Some(other) => return Err(format!("{MODE} is {other:?}; set it to on, blocking, off or explain")),
        };
        let max_bytes = match renamed_variable(MAX_BYTES, MAX_BYTES_OLD, warn) {
            None => DEFAULT_MAX_BYTES,
            Some(text) => {
                text.parse().map_err(|_| format!("{MAX_BYTES} is {text:?}; set it to a number of bytes"))?
            }
        };
        let mut settings = Settings::from_environment().map_err(|error| error.to_string())?;
        settings.join_timeout = settings.join_timeout.or(Some(JOIN_TIMEOUT));
        if let Some(text) = variable(RANKS_PER_HOST) {
            let ranks: Option<u16> = text.parse().ok().filter(|ranks| *ranks > 0);
            let ranks = ranks.ok_or_else(|| format!("{RANKS_PER_HOST} is {text:?}; set it to a number of ranks"))?;
            settings.shared_memory = SharedMemoryRanks::AtMost(ranks);
            settings.host = Some(format!("host{}", rank / u32::from(ranks)));
        }
        Ok(Self { mode, max_bytes: max_bytes.min(LARGEST_MAX_BYTES), report: report(), settings })
    }
}
