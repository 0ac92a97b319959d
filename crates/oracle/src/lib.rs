//! Checks of a run: reference results, exactly-once delivery, agreement, liveness.
//!
//! In: the operations (a [`Reduction`], a [`ReferenceOrder`]) and the events of the run (deliveries and failures of each
//! rank). Out: a [`Verdict`]. The oracle shares no code with what it checks: its arithmetic is naive, it has its own
//! conversions, and it relies only on bytes.
//!
//! Reading order: `reduction` and `contribution` define the inputs, `reference_order` and `reference` the expected results
//! (`exact_sum` for sums that do not depend on the order; `contribution_table` and `column` for long runs, `blocks` for results that differ from rank
//! to rank), `ledger`
//! compares them with the deliveries, `verdict` reports. `workload_ledger` judges runs of several groups. `stream_ledger` does the same for point-to-point messages.

#![forbid(unsafe_code)]

mod big_uint;
mod blocks;
mod column;
mod contribution;
mod contribution_table;
mod exact_sum;
mod ledger;
mod reduction;
mod reference;
mod reference_order;
mod small_float;
mod stream_ledger;
mod value;
mod verdict;
mod workload_ledger;

pub use blocks::{block_range, exchanged_range};
pub use contribution::{contribution, edge_contribution};
pub use contribution_table::ContributionTable;
pub use exact_sum::ExactSum;
pub use ledger::{Expectation, Ledger};
pub use reduction::{Reduction, ReductionElement, ReductionOperator, UnknownReductionName};
pub use reference::{reference, reference_of};
pub use reference_order::{ReferenceOrder, ReferenceOrderNode};
pub use stream_ledger::{StreamLedger, StreamVerdict, StreamViolation};
pub use verdict::{MAX_LISTED, PartialFailure, Verdict, Violation};
pub use workload_ledger::{OperationPlace, WorkloadLedger, WorkloadVerdict, WorkloadViolation};
