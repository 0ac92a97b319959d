//! Queue pairs over UDP, as RoCEv2 packets.

mod alarms;
pub(crate) mod batch;
mod bed;
mod datagrams;
mod endpoint;
pub(crate) mod mischief;
mod pair;
pub(crate) mod port;
pub(crate) mod watch;

pub use endpoint::{Counters, Cut, Endpoint, Options};
pub use mischief::Mischief;
pub use pair::{Event, PairError, Route, Setup};
pub use port::{PortIndex, Reception};
pub use watch::link_bytes;
