//! Queue pairs over UDP, as RoCEv2 packets.

mod batch;
mod datagrams;
mod endpoint;
mod mischief;
mod pair;
mod port;
mod watch;

pub use endpoint::{Counters, Cut, Endpoint, Options};
pub use mischief::Mischief;
pub use pair::{Event, PairError, Route, Setup};
pub use port::{PortIndex, Reception};
