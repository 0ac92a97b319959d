//! The control plane over TCP: the manager's daemon, a job's client, and the control side of a node.
//!
//! Drives the state machines of `manager`. [`ManagerDaemon`] runs the manager; [`NodeControl`] runs a node's agent on behalf of
//! its data plane, which implements [`DataPlane`]; [`ManagerClient`] is for jobs and operators. No peer can block another or make
//! a process allocate without limit (P-84). Events are logged through `tracing`; metrics are served over HTTP if the operator
//! wants them.

mod client;
mod connection_set;
mod credential;
mod data_plane;
mod disconnect;
mod event_log;
mod listener;
mod manager_daemon;
mod manager_observer;
mod metrics;
mod node_control;
mod poll;
mod secret;
mod server;
mod session;

pub use client::{ClientError, ManagerClient, ManagerNotification};
pub use credential::{CREDENTIAL_VARIABLE, ControlCredential, DEFAULT_CREDENTIAL_LIFETIME, JobCredential};
pub use data_plane::{DataPlane, SeatFailure};
pub use listener::AccessPolicy;
pub use manager_daemon::ManagerDaemon;
pub use manager_observer::{ManagerObserver, ManagerSnapshot};
pub use node_control::NodeControl;
pub use secret::ClusterSecret;
