//! Checked messages between processes: the port of `protocol::messaging`, run over real rails.
//!
//! In: sends and receives of the user. Out: completions. A [`Messenger`] turns a [`Carrier`], which knows how parcels travel:
//! [`UdpCarrier`] over queue pairs of an [`transport::udp::Endpoint`], [`ShmCarrier`] through rings in shared memory, [`NearAndFar`] each
//! to whom it reaches. There are no threads: whoever waits turns it.

mod messenger;
mod near_and_far;
#[cfg(test)]
mod tests;
mod udp;

pub use hostmem::ring::ShmCarrier;
pub use messenger::{Messenger, Side, Spoiler};
pub use transport::carrier::{Carrier, News};
pub use near_and_far::NearAndFar;
pub use udp::UdpCarrier;
