//! Judges of a run: reference results, exactly-once, agreement, liveness.
//!
//! In: what was asked (an [`Operation`], an [`Order`]) and what happened (deliveries and failures, rank by
//! rank). Out: a [`Verdict`]. The oracle shares no code with what it judges: its arithmetic is naive, its
//! conversions are its own, and it believes only bytes.
//!
//! Reading order: `operation` and `contribution` say what goes in, `order` and `reference` what must come
//! out (`exact` for sums that do not depend on the order), `ledger` compares it with what did, `verdict` says so. `stream` does the same for point-to-point.

#![forbid(unsafe_code)]

mod contribution;
mod exact;
mod ledger;
mod natural;
mod operation;
mod order;
mod reference;
mod small_float;
mod stream;
mod value;
mod verdict;

pub use contribution::{contribution, edge_contribution};
pub use exact::ExactSum;
pub use ledger::{Expectation, Ledger};
pub use operation::{Element, Operation, Operator, UnknownName};
pub use order::{Branch, Order};
pub use reference::{reference, reference_of};
pub use stream::{StreamLedger, StreamVerdict, StreamViolation};
pub use verdict::{MAX_LISTED, Split, Verdict, Violation};
