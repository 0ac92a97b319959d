//! The UDP transport of a process: its sockets, queue pairs, tree edges, timers and clock.
//!
//! Reading order: [`Clock`], then [`udp`]: an [`udp::Endpoint`] owns the sockets of a process and its queue pairs, passes
//! packets to the protocol machines and executes the actions they request. [`edges`] carries the frames of aggregation
//! trees. [`message_transport`] is the trait behind which messages travel over UDP or shared memory. [`timer_queue`] and
//! [`backoff`] serve every event loop.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod backoff;
mod clock;
pub mod edges;
mod macs;
pub mod message_transport;
mod security_mode;
pub mod timer_queue;
pub mod udp;

pub use clock::Clock;
pub use security_mode::{InvalidSecurityMode, SecurityMode};
