//! The control plane over TCP: the manager's daemon, a job's client, and a node's control side.
//!
//! Drives the machines of `manager`. [`ManagerDaemon`] runs the manager, [`NodeControl`] a node's steward on
//! behalf of its data plane, which implements [`DataPlane`]; [`ManagerClient`] is what jobs and operators hold. Nothing that a
//! peer does, or leaves undone, blocks another or takes memory without limit. Rule P-58. What happens is logged through
//! `tracing`, and shown to whoever asks over HTTP if the operator wants it.

mod client;
mod data_plane;
mod event_log;
mod listener;
mod manager_daemon;
mod metrics;
mod node_control;
mod secret;
mod server;
mod session;

pub use client::{ClientError, ManagerClient, ManagerNotification};
pub use data_plane::{DataPlane, SeatFailure};
pub use listener::AccessPolicy;
pub use manager_daemon::ManagerDaemon;
pub use node_control::NodeControl;
pub use secret::ClusterSecret;
