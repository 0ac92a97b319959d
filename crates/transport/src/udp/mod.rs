//! Queue pairs over UDP, as RoCEv2 packets.

mod alarms;
pub(crate) mod batch;
mod bed;
mod datagrams;
mod endpoint;
pub(crate) mod mischief;
mod pair;
pub(crate) mod port;
mod terms;
pub(crate) mod watch;

pub use endpoint::Endpoint;
pub use mischief::Mischief;
pub use pair::{Event, PairError, Route, Setup};
pub use port::{PortIndex, RECEIVE_BYTES, Reception};
pub use terms::{Counters, Cut, Options};
pub use watch::link_bytes;
