//! The control plane over TCP: the manager's daemon, a job's client, and a node's control side.
//!
//! Drives the machines of `manager`. [`ManagerDaemon`] runs the manager, [`NodeControl`] a node's steward on
//! behalf of its data plane, which implements [`Seats`]; [`ManagerClient`] is what jobs and operators hold. Nothing that a
//! peer does, or leaves undone, blocks another or takes memory without limit. Rule P-58. What happens is logged through
//! `tracing`, and shown to whoever asks over HTTP if the operator wants it.

mod callers;
mod client;
mod listener;
mod log;
mod manager_daemon;
mod metrics;
mod node;
mod seats;
mod secret;
mod session;

pub use client::{ClientError, ManagerClient, Notice};
pub use listener::Openness;
pub use manager_daemon::ManagerDaemon;
pub use node::NodeControl;
pub use seats::{SeatTrouble, Seats};
pub use secret::Secret;
