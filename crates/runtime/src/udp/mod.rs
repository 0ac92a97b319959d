//! Queue pairs over UDP, as RoCEv2 packets.

mod batch;
mod datagrams;
mod endpoint;
mod pair;
mod port;
mod watch;

pub use endpoint::{Counters, Cut, Endpoint, Mischief, Options};
pub use pair::{Event, PairError, Route, Setup};
pub use port::{PortIndex, Reception};
