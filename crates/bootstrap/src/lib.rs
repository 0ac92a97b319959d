//! How the processes of a job find each other, and how they detect that one is lost.
//!
//! In: environment variables that a launcher set ([`JobEnvironment`]) and the data that this process publishes
//! ([`LocalEndpoint`]). Out: the [`RankTable`] and a [`FailureDetector`] that reports lost ranks. Reading order:
//! `environment.rs` (who am I), `rendezvous.rs` and `join.rs` (joining), `failure_detector.rs`, `member/` and `membership.rs`
//! (afterwards), `progress_thread.rs` (while the application is outside the library). [`framing`], [`auth`] and [`retry`] are the TCP layer,
//! which the control plane shares.
//!
//! ```no_run
//! use bootstrap::{JobEnvironment, LocalEndpoint, RendezvousTimeouts};
//!
//! let environment = JobEnvironment::from_environment()?;
//! let mut joined = bootstrap::join(&environment, LocalEndpoint::default(), &RendezvousTimeouts::default())?;
//! println!("{} ranks on {} hosts", joined.table.size(), joined.table.hosts().len());
//! while let Some(event) = joined.failure_detector.turn() {
//!     println!("{event:?}");
//! }
//! joined.failure_detector.leave(std::time::Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attach_request;
pub mod auth;
mod detector_ports;
mod endpoint_record;
mod environment;
mod failure_detector;
mod file_limit;
pub mod framing;
mod host_identity;
mod join;
mod join_request;
mod launcher;
mod link;
mod listening;
mod member;
mod membership;
pub mod pair;
mod progress_thread;
mod rank_connections;
mod rank_event;
mod rejected_process;
mod rendezvous;
mod rendezvous_client;
mod rendezvous_file;
mod rendezvous_message;
mod rendezvous_server;
pub mod retry;
pub mod secure_channel;
mod stream_security;
#[cfg(test)]
mod tests;
mod token_key;
mod withdrawal;

pub use endpoint_record::{EndpointRecord, MAX_EXTRA_BYTES, MAX_RANK_ADDRESSES, RankTable};
pub use environment::{
    EnvironmentError, EnvironmentVariables, JobEnvironment, JobToken, MAX_JOB_RANKS, RendezvousPoint,
    SLURM_SPECIAL_STEPS,
};
pub use failure_detector::FailureDetector;
pub use file_limit::FileReserve;
pub use host_identity::HostIdentity;
pub use join::{join, join_reporting};
pub use progress_thread::{
    ApplicationActivity, LibraryCallGuard, ProgressOutcome, ProgressThread, start_quiet_thread,
};
pub use rank_event::{MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, RankEvent};
pub use rejected_process::{JoinMismatch, RejectedConnections, RejectedProcess};
pub use rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts};
pub use rendezvous_file::{RendezvousFileError, remove_stale_rendezvous_file};
pub use withdrawal::withdraw;
