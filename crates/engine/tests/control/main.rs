//! The control plane over real TCP connections on loopback: manager, nodes with seats that are only remembered, jobs, those
//! who look on, and peers who mean no good.

mod groups;
mod hostile;
mod metrics;
mod town;
