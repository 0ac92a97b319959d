//! Pleach for programs: barrier, broadcast, reduce and allreduce among the processes of a job, through aggregation nodes in the
//! network where there are some, with results that stay right while the network fails.
//!
//! ```no_run
//! let world = pleach::join()?;
//! let mut sums = [world.rank() as f64, 1.0];
//! world.all_reduce(&mut sums, pleach::Operator::Sum)?;
//! assert_eq!(sums[1], f64::from(world.size()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Start it with `pleach launch -n 8 -- program`, under `mpirun` or `srun`, or with `PLEACH_RANK`, `PLEACH_SIZE` and
//! `PLEACH_RENDEZVOUS` set by hand. A process without any of these is a job of its own.
//!
//! Reading order: [`Communicator`] is what programs use; `hierarchical_operation` is one operation on its way through shared memory and
//! network; `progress_engine` is what a process has one of; `job_process` sets it up.

mod communicator;
mod communicator_inner;
mod datatype;
mod embedded;
mod error;
mod hierarchical_operation;
mod job_process;
mod offload;
mod progress_engine;
mod receive_backoff;
mod request;
mod settings;
mod split;
pub mod tagged_endpoint;

pub use communicator::{Communicator, CommunicatorStatistics};
pub use datatype::{Datatype, ValueLoc};
pub use embedded::{OwnedRequest, RankIdentity, join_as};
pub use engine::aggregation::TreeEdgeCounters as PacketCounters;
pub use error::{Error, JoinError};
pub use protocol::collective::MethodPreferences;
pub use reduce::{ElementType, Operator, ReductionKind};
pub use request::Request;
pub use settings::{ResultDeliveryMode, Settings, SharedMemoryRanks};

/// Joins the job that the environment describes; the communicator of all its ranks.
///
/// # Errors
/// The error says who did not come, or what to set.
pub fn join() -> Result<Communicator, JoinError> {
    join_with(Settings::from_environment()?)
}

/// The same, with settings made in code.
///
/// # Errors
/// As [`join`].
pub fn join_with(settings: Settings) -> Result<Communicator, JoinError> {
    let place = bootstrap::JobEnvironment::here().map_err(JoinError::Environment)?;
    job_process::join(place, settings)
}
