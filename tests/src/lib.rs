//! What the tests of several rooms share: a seeded trial of a collective, judged by the oracle.

mod trial;

pub use trial::{Trial, TrialOutcome};
