//! The control plane over real TCP connections on loopback: manager, nodes with a recording data plane, jobs, metrics, and
//! misbehaving peers.

mod cluster;
mod groups;
mod metrics;
mod misbehaving_peers;
