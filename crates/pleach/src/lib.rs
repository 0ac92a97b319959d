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
//! Reading order: [`Communicator`] is what programs use; `running` is one operation on its way through shared memory and
//! network; `engine` is what a process has one of; `process` sets it up.

mod comm;
mod communicator;
mod element;
mod embedded;
mod engine;
mod error;
mod habit;
mod offload;
pub mod port;
mod process;
mod request;
mod running;
mod settings;
mod split;

pub use communicator::{Communicator, Statistics};
pub use element::{Element, Located};
pub use embedded::{Standing, Started, join_as};
pub use error::{Error, JoinError};
pub use protocol::collective::Preferences;
pub use reduce::{ElementType, Kind, Operator};
pub use request::Request;
pub use ::engine::aggregation::WireCounters as Packets;
pub use settings::{Results, Settings, SharedMemory};

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
    let place = bootstrap::Place::here().map_err(JoinError::Environment)?;
    process::join(place, settings)
}
