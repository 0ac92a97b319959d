//! Shared code of the tests across crates: seeded trials checked by the oracle, hosts whose links fail, soft-RoCE guests.

pub mod guest;
mod messaging_trial;
mod path_trial;
mod rule_text;
mod test_rng;
mod trial;

pub use namespaces::hosts;

pub use messaging_trial::{MessagingOutcome, MessagingTrial};
pub use path_trial::{PathOutcome, PathTrial};
pub use trial::{Trial, TrialOutcome};
