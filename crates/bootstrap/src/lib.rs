//! How the processes of a job find each other, and how they notice when one is gone.
//!
//! In: environment variables that a launcher left ([`Place`]) and what this process offers the others ([`Offer`]). Out: the
//! [`Table`] of all cards and a [`Lifeline`] that names whoever is lost. Reading order: `environment.rs` (who am I),
//! `rendezvous.rs` (the meeting), `lifeline.rs` (afterwards), `attendant.rs` (while the user is elsewhere).
//!
//! ```no_run
//! use bootstrap::{self, Offer, Place, Terms};
//!
//! let place = Place::here()?;
//! let mut joined = job::join(&place, Offer::default(), &Terms::default())?;
//! println!("{} ranks on {} hosts", joined.table.size(), joined.table.hosts().len());
//! while let Some(news) = joined.lifeline.turn() {
//!     println!("{news:?}");
//! }
//! joined.lifeline.leave(std::time::Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attendant;
mod card;
mod environment;
mod gather;
mod hub;
mod identity;
mod launcher;
mod lifeline;
mod nodelist;
mod notice;
pub mod pair;
mod reach;
mod rendezvous;
mod seal;
mod spoke;
mod stream;
#[cfg(test)]
mod tests;

pub use attendant::{Attendant, Inside, Next, Presence};
pub use card::{Card, MOST_ADDRESSES, MOST_EXTRA_BYTES, Table};
pub use environment::{EnvironmentError, MOST_RANKS, Meeting, Place, Token, Variables};
pub use identity::HostIdentity;
pub use lifeline::{Lifeline, MOST_SAID_BYTES, News, SayError, To};
pub use notice::{NoticeError, take_down_notice};
pub use rendezvous::{JoinError, Joined, Offer, Terms, join};
