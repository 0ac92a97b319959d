//! Pleach for applications: barrier, broadcast, reduce and allreduce among the processes of a job, through aggregation nodes in the
//! network where available, with correct results while the network fails; and reduce-scatter, scans, gathers, scatters and alltoall
//! among the hosts.
//!
//! ```
//! let world = pleach::join()?;
//! let mut sums = [world.rank() as f64, 1.0];
//! world.all_reduce(&mut sums, pleach::Operator::Sum)?;
//! assert_eq!(sums[1], f64::from(world.size()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//! Start it with `pleach launch -n 8 -- program`, under `mpirun` or `srun`, or with `PLEACH_RANK`, `PLEACH_SIZE`,
//! `PLEACH_RENDEZVOUS` and `PLEACH_TOKEN` set by hand. A process without any of these is a job of one rank.
//!
//! Reading order, from the top: [`Communicator`] is the API; `formation` creates one, `offload` requests its aggregation tree;
//! `communicator_inner` chooses a route for each operation and runs it; `hierarchical_operation` is one operation's way through shared
//! memory and network, and `block_operation` what it moves if ranks have different parts of the result; `job_process` is the process in its job, `shared_engine` and `progress_engine` make progress for all of it.

mod block_collectives;
mod block_operation;
mod communicator;
mod communicator_inner;
mod communicator_layout;
mod datatype;
mod embedded;
pub mod environment;
mod error;
mod failure_agreement;
mod formation;
mod hierarchical_operation;
mod job_process;
mod lost_nodes;
mod method_trial;
mod network_costs;
mod network_measurement;
mod offload;
mod owned_blocks;
mod progress_engine;
mod receive_backoff;
mod request;
mod settings;
mod shared_engine;
mod split;
mod statistics;
mod survivor_agreement;
mod survivors;
pub mod tagged_endpoint;
mod tree_renewal;

pub use block_operation::BlockLengths;
pub use communicator::Communicator;
pub use datatype::{Datatype, ValueLoc};
pub use embedded::{FailureCounter, OwnedRequest, RankIdentity, join_as};
pub use engine::aggregation::TreeEdgeCounters as PacketCounters;
pub use error::{Error, JoinError};
pub use network_costs::{NetworkCosts, NetworkCostsError};
pub use owned_blocks::BlockCollective;
pub use protocol::collective::MethodPreferences;
pub use reduce::{ElementType, Operator, ReductionKind};
pub use request::{LentRequest, Request, RequestScope, scope};
pub use settings::{ResultDeliveryMode, Settings, SharedMemoryRanks};
pub use statistics::CommunicatorStatistics;
pub use transport::SecurityMode;

/// Joins the job that the environment describes; returns the communicator of all its ranks.
///
/// # Errors
/// If the environment is incomplete, a setting is invalid, or a rank does not join in time.
pub fn join() -> Result<Communicator, JoinError> {
    join_with(Settings::from_environment()?)
}

/// The same, with settings from code.
///
/// # Errors
/// As [`join`].
pub fn join_with(settings: Settings) -> Result<Communicator, JoinError> {
    let place = bootstrap::JobEnvironment::from_environment().map_err(JoinError::Environment)?;
    Communicator::join(place, settings)
}
