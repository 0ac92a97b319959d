//! How the processes of a job find each other, and how they notice when one is gone.
//!
//! In: environment variables that a launcher left ([`JobEnvironment`]) and what this process offers the others ([`LocalEndpoint`]). Out: the
//! [`RankTable`] of all cards and a [`FailureDetector`] that names whoever is lost. Reading order: `environment.rs` (who am I),
//! `rendezvous.rs` (the meeting), `lifeline.rs` (afterwards), `attendant.rs` (while the user is elsewhere).
//!
//! ```no_run
//! use bootstrap::{self, Offer, Place, Terms};
//!
//! let place = Place::here()?;
//! let mut joined = job::join(&place, Offer::default(), &Terms::default())?;
//! println!("{} ranks on {} hosts", joined.table.size(), joined.table.hosts().len());
//! while let Some(news) = joined.lifeline.turn() {
//!     println!("{news:?}");
//! }
//! joined.lifeline.leave(std::time::Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod endpoint_record;
mod environment;
mod failure_detector;
mod host_identity;
mod hub;
mod launcher;
mod mac;
mod message_stream;
pub mod pair;
mod progress_thread;
mod rendezvous;
mod rendezvous_client;
mod rendezvous_file;
mod rendezvous_server;
mod slurm_nodelist;
mod spoke;
#[cfg(test)]
mod tests;

pub use endpoint_record::{EndpointRecord, MAX_EXTRA_BYTES, MAX_RANK_ADDRESSES, RankTable};
pub use environment::{
    EnvironmentError, EnvironmentVariables, JobEnvironment, JobToken, MAX_JOB_RANKS, RendezvousPoint,
};
pub use failure_detector::{FailureDetector, MAX_OOB_MESSAGE_BYTES, OobSendError, OobTarget, RankEvent};
pub use host_identity::HostIdentity;
pub use progress_thread::{ApplicationActivity, LibraryCallGuard, ProgressOutcome, ProgressThread};
pub use rendezvous::{JoinedJob, LocalEndpoint, RendezvousError, RendezvousTimeouts, join};
pub use rendezvous_file::{RendezvousFileError, remove_stale_rendezvous_file};
