//! Configuration from the environment: the variables of docs/mpi.md.

use std::time::Duration;

use pleach::environment::{renamed_variable, variable};
use pleach::{Settings, SharedMemoryRanks};

const MODE: &str = "PLEACH_MPI";
const CHOICE: &str = "PLEACH_MPI_CHOICE";
const MAX_BYTES: &str = "PLEACH_MPI_MAX_BYTES";
const REPLAY_BYTES: &str = "PLEACH_MPI_REPLAY_BYTES";
const MAX_BYTES_OLD: &str = "PLEACH_MPI_LARGEST";
const RANKS_PER_HOST: &str = "PLEACH_MPI_RANKS_PER_HOST";

/// Default of `PLEACH_MPI_MAX_BYTES`.
const DEFAULT_MAX_BYTES: usize = 256 << 20;
/// Default of `PLEACH_MPI_REPLAY_BYTES`.
const DEFAULT_REPLAY_BYTES: usize = 1 << 20;
/// Pleach cannot do longer vectors.
const LARGEST_MAX_BYTES: usize = 1 << 30;
/// Default of `PLEACH_PATIENCE`: short, since all ranks have already been started.
pub(crate) const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than most programs compute between two calls of the MPI.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(300);

/// Which calls are offloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OffloadMode {
    Off,
    BlockingOnly,
    All,
}

/// What does the calls that Pleach can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChoiceMode {
    /// The faster one: both are tried.
    Measure,
    Pleach,
    Native,
}

impl ChoiceMode {
    pub(crate) const ALL: [Self; 3] = [Self::Measure, Self::Pleach, Self::Native];

    /// As users write it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Pleach => "pleach",
            Self::Native => "mpi",
        }
    }

    fn from_environment() -> Result<Self, String> {
        let Some(text) = variable(CHOICE) else { return Ok(Self::Measure) };
        let known = Self::ALL.into_iter().find(|mode| mode.name() == text);
        known.ok_or_else(|| format!("{CHOICE} is {text:?}; set it to measure, pleach or mpi"))
    }
}

pub(crate) struct MpiConfiguration {
    pub(crate) mode: OffloadMode,
    pub(crate) choice: ChoiceMode,
    /// Vectors up to this many bytes are offloaded.
    pub(crate) max_bytes: usize,
    /// Inputs of the last calls are kept up to this many bytes.
    pub(crate) replay_bytes: usize,
    pub(crate) report: Option<String>,
    pub(crate) settings: Settings,
    /// How long the ranks may take to recover after a failure of Pleach.
    pub(crate) recovery_timeout: Duration,
}

/// Where to write the report (`PLEACH_MPI_REPORT`).
pub(crate) fn report() -> Option<String> {
    variable("PLEACH_MPI_REPORT")
}

/// True if the job shall end rather than run without aggregation nodes, whatever else is wrong.
pub(crate) fn requires_nodes() -> bool {
    variable("PLEACH_MANAGER_REQUIRED").is_some_and(|value| value != "0")
}

/// True if the program shall not run, but only be explained (`PLEACH_MPI=explain`).
pub(crate) fn wants_explanation() -> bool {
    variable(MODE).as_deref() == Some("explain")
}

/// The value of a variable that is a number of bytes.
fn bytes(name: &str, text: Option<String>, default: usize) -> Result<usize, String> {
    match text {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| format!("{name} is {text:?}; set it to a number of bytes")),
    }
}

impl MpiConfiguration {
    /// How long to wait until all ranks have joined.
    pub(crate) fn join_timeout(&self) -> Duration {
        self.settings.join_timeout.unwrap_or(JOIN_TIMEOUT)
    }

    /// The configuration of this rank of `MPI_COMM_WORLD`. `warn` gets warnings to print.
    pub(crate) fn from_environment(rank: u32, warn: impl FnOnce(&str)) -> Result<Self, String> {
        let mode = match variable(MODE).as_deref() {
            None | Some("on" | "explain") => OffloadMode::All,
            Some("blocking") => OffloadMode::BlockingOnly,
            Some("off") => OffloadMode::Off,
            Some(other) => return Err(format!("{MODE} is {other:?}; set it to on, blocking, off or explain")),
        };
        let choice = ChoiceMode::from_environment()?;
        let max_bytes = bytes(MAX_BYTES, renamed_variable(MAX_BYTES, MAX_BYTES_OLD, warn), DEFAULT_MAX_BYTES)?;
        let replay_bytes = bytes(REPLAY_BYTES, variable(REPLAY_BYTES), DEFAULT_REPLAY_BYTES)?;
        let mut settings = Settings::from_environment().map_err(|error| error.to_string())?;
        let recovery_timeout = settings.join_timeout.unwrap_or(RECOVERY_TIMEOUT);
        settings.join_timeout = settings.join_timeout.or(Some(JOIN_TIMEOUT));
        if let Some(text) = variable(RANKS_PER_HOST) {
            let ranks: Option<u16> = text.parse().ok().filter(|ranks| *ranks > 0);
            let ranks = ranks.ok_or_else(|| format!("{RANKS_PER_HOST} is {text:?}; set it to a number of ranks"))?;
            settings.shared_memory = SharedMemoryRanks::AtMost(ranks);
            settings.host = Some(format!("host{}", rank / u32::from(ranks)));
        }
        let max_bytes = max_bytes.min(LARGEST_MAX_BYTES);
        Ok(Self { mode, choice, max_bytes, replay_bytes, report: report(), settings, recovery_timeout })
    }
}
