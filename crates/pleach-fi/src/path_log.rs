//! What happened to the paths of this process, for the report of `pleach exec`.
//!
//! One line of JSON per event, in a file of the process in the directory that the environment names.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use protocol::connection::path::{MigrationCause, PathEvent};
use protocol::messaging::RailIndex;
use units::PathId;

use crate::endpoint_address::EndpointAddress;

/// The directory for events.
const DIRECTORY: &str = "PLEACH_FI_EVENTS";
/// Events of one process; further ones are not written.
const MAX_EVENTS: u32 = 10_000;
/// Where launchers put the rank of a process.
const RANKS: [&str; 5] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "PLEACH_RANK"];

/// A rail whose path changed.
pub(crate) struct LoggedRail<'a> {
    pub(crate) index: RailIndex,
    pub(crate) peer: &'a EndpointAddress,
    pub(crate) peer_rank: Option<u16>,
    /// The paths to the peer; rail `r` numbers them from the `r`-th on.
    pub(crate) pairs: &'a [(usize, usize)],
}

/// This process's rank, if its launcher says it.
pub(crate) fn launch_rank() -> Option<u16> {
    RANKS.iter().find_map(|name| std::env::var(name).ok()?.parse().ok())
}

/// Writes the changes of paths.
pub(crate) struct PathLog {
    file: Option<File>,
    rank: Option<u16>,
    written: u32,
}

impl PathLog {
    /// As the environment says; off without it, or if the file cannot be created.
    pub(crate) fn from_environment() -> Self {
        let directory = std::env::var_os(DIRECTORY).map(PathBuf::from);
        let path = directory.map(|directory| directory.join(format!("messages-{}.jsonl", std::process::id())));
        let file = path.and_then(|path| OpenOptions::new().create(true).append(true).open(path).ok());
        Self { file, rank: launch_rank(), written: 0 }
    }

    /// Notes a change of a path of a rail.
    pub(crate) fn note(&mut self, own: &EndpointAddress, rail: &LoggedRail<'_>, event: &PathEvent) {
        let Some(file) = self.file.as_mut().filter(|_| self.written < MAX_EVENTS) else { return };
        let name = |path: PathId| {
            let (local, remote) = rail.pairs[(rail.index.index() + path.index()) % rail.pairs.len()];
            format!("{} -> {}", own.paths[local].address.ip(), rail.peer.paths[remote].address.ip())
        };
        let (what, from, to) = match event {
            PathEvent::Migrated { from, to, cause } => {
                (format!("moved ({})", cause_text(*cause)), name(*from), name(*to))
            }
            PathEvent::Lost(path) => ("path lost".into(), name(*path), String::new()),
            PathEvent::Recovered(path) => ("path recovered".into(), name(*path), String::new()),
            PathEvent::MigrationFailed(path) => ("no path left".into(), name(*path), String::new()),
            PathEvent::Armed(_) => return,
        };
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64());
        let name = |rank: Option<u16>| rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string());
        let (rank, to_rank) = (name(self.rank), name(rail.peer_rank));
        let line = format!(
            "{{\"time\":{seconds:.6},\"rank\":\"{rank}\",\"peer\":\"{to_rank}\",\"rail\":{},\"event\":\"{what}\",\"from\":\"{from}\",\"to\":\"{to}\"}}\n",
            rail.index.0
        );
        self.written += 1;
        // The report is a courtesy: a full disk must not stop the program.
        let _ = file.write_all(line.as_bytes());
    }
}

fn cause_text(cause: MigrationCause) -> &'static str {
    match cause {
        MigrationCause::Manual => "on request",
        MigrationCause::Timeout => "timeout",
        MigrationCause::Down => "link down",
        MigrationCause::Damage => "damaged packets",
        MigrationCause::Followed => "peer moved",
        MigrationCause::Failback => "better path works again",
    }
}
