//! What the tests of several rooms share: a seeded trial of a collective, judged by the oracle.

pub mod guest;
pub mod hosts;
mod messaging_trial;
mod path_trial;
mod trial;

pub use messaging_trial::{MessagingOutcome, MessagingTrial};
pub use path_trial::{PathOutcome, PathTrial};
pub use trial::{Trial, TrialOutcome};
