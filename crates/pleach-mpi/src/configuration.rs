//! What the environment wants: the variables of docs/mpi.md.

use std::time::Duration;

use pleach::{Settings, SharedMemoryRanks};

use crate::progress;

/// Vectors up to this many bytes are taken over, if nothing else is said (`PLEACH_MPI_LARGEST`).
const LARGEST: usize = 256 << 20;
/// Longer ones Pleach cannot do.
const MOST_LARGEST: usize = 1 << 30;
/// How long ranks may take to meet, if nothing else is said: they are all there already.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct MpiConfiguration {
    pub(crate) use_it: bool,
    pub(crate) only_blocking: bool,
    pub(crate) largest: usize,
    pub(crate) report: Option<String>,
    pub(crate) settings: Settings,
}

fn get(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where to report (`PLEACH_MPI_REPORT`).
pub(crate) fn report() -> Option<String> {
    get("PLEACH_MPI_REPORT")
}

/// The program shall not run: only how it would run is wanted (`PLEACH_MPI=explain`).
pub(crate) fn wants_explanation() -> bool {
    get("PLEACH_MPI").as_deref() == Some("explain")
}

impl MpiConfiguration {
    /// That of this rank of the MPI's world.
    pub(crate) fn of_environment(rank: u32) -> Result<Self, String> {
        let (use_it, only_blocking) = match get("PLEACH_MPI").as_deref() {
            None | Some("on" | "explain") => (true, false),
            Some("blocking") => (true, true),
            Some("off") => (false, false),
            Some(other) => {
                return Err(format!("PLEACH_MPI is {other:?}, and should be on, blocking, off or explain"));
            }
        };
        let largest = match get("PLEACH_MPI_LARGEST") {
            None => LARGEST,
            Some(text) => {
                let number: Option<usize> = text.parse().ok();
                number.ok_or_else(|| format!("PLEACH_MPI_LARGEST is {text:?}, and should be a number of bytes"))?
            }
        };
        let mut settings = Settings::from_environment().map_err(|error| error.to_string())?;
        settings.patience = settings.patience.or(Some(PATIENCE));
        settings.companion = Some(progress::progress_mpi);
        if let Some(text) = get("PLEACH_MPI_RANKS_PER_HOST") {
            let number: Option<u16> = text.parse().ok().filter(|number| *number > 0);
            let wrong = || format!("PLEACH_MPI_RANKS_PER_HOST is {text:?}, and should be a number of ranks");
            let number = number.ok_or_else(wrong)?;
            settings.shared_memory = SharedMemoryRanks::AtMost(number);
            settings.host = Some(format!("host{}", rank / u32::from(number)));
        }
        Ok(Self { use_it, only_blocking, largest: largest.min(MOST_LARGEST), report: report(), settings })
    }
}
