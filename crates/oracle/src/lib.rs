//! Judges of a run: reference results, exactly-once, agreement, liveness.
//!
//! In: what was asked (an [`Reduction`], an [`ReferenceOrder`]) and what happened (deliveries and failures, rank by
//! rank). Out: a [`Verdict`]. The oracle shares no code with what it judges: its arithmetic is naive, its
//! conversions are its own, and it believes only bytes.
//!
//! Reading order: `reduction` and `contribution` say what goes in, `reference_order` and `reference` what must come
//! out (`exact_sum` for sums that do not depend on the order), `ledger` compares it with what did, `verdict` says so. `stream_ledger` does the same for point-to-point.

#![forbid(unsafe_code)]

mod big_uint;
mod contribution;
mod exact_sum;
mod ledger;
mod reduction;
mod reference;
mod reference_order;
mod small_float;
mod stream_ledger;
mod value;
mod verdict;

pub use contribution::{contribution, edge_contribution};
pub use exact_sum::ExactSum;
pub use ledger::{Expectation, Ledger};
pub use reduction::{Element, Operator, Reduction, UnknownReductionName};
pub use reference::{reference, reference_of};
pub use reference_order::{ReferenceOrder, ReferenceOrderNode};
pub use stream_ledger::{StreamLedger, StreamVerdict, StreamViolation};
pub use verdict::{MAX_LISTED, PartialFailure, Verdict, Violation};
