//! Checked messages between processes: the port of `protocol::messaging`, run over real rails.
//!
//! In: sends and receives of the user. Out: completions. A [`Messenger`] turns a [`Carrier`], which knows how parcels travel:
//! [`UdpCarrier`] over queue pairs of an [`crate::udp::Endpoint`], [`ShmCarrier`] through rings in shared memory, [`NearAndFar`] each
//! to whom it reaches. There are no threads: whoever waits turns it.

mod messenger;
mod near_and_far;
mod shm;
#[cfg(test)]
mod tests;
mod udp;

pub use messenger::{Carrier, Messenger, News, Side, Spoiler};
pub use near_and_far::NearAndFar;
pub use shm::ShmCarrier;
pub use udp::UdpCarrier;
