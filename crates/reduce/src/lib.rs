//! Reductions: element types times operators. All arithmetic on payloads happens here.
//!
//! In: byte slices of any alignment, each an array of little-endian elements. Out: the same, folded element by
//! element. [`ReductionKind`] names the reduction (`f64` with `sum`) and computes it.
//!
//! Rules, so that the bits of a result depend only on the operands and their order:
//! - The caller chooses the order: `fold` puts the accumulator on the left, `fold_all` goes from first to last (claim
//!   SH-3, fixed-order reduction).
//! - Integers wrap: sums and products are those of two's complement, modulo the width.
//! - Floats round to nearest, ties to even, at every step. `f16` and `bf16` are computed in `f32` and rounded back at
//!   every step.
//! - A NaN operand, or a NaN that the operator produces, gives the canonical quiet NaN: sign clear, only the top
//!   mantissa bit set. Hardware differs in the NaN it produces; results must not.
//! - Minimum and maximum are those of IEEE 754-2019: any NaN wins, and -0 is below +0 (P-36). So both are associative
//!   and commutative, bit by bit.
//! - `minloc` and `maxloc` fold pairs of a value and an `i32` index. The value is that of `min` or `max`; the index
//!   is the smallest among the operands with this value, where all NaN are one value and -0 and +0 are two (P-36). A
//!   pair has the layout of C's `struct { T value; int32_t index; }` and MPI's pair types; padding is ignored on
//!   input and zero on output.
//! - `and`, `or` and `xor` work on the bits of integers and are rejected for floats.
//! - Order-free mode (P-36): [`WideFloat`] widens `f32` and `f64` to exact sums, `wide-f32` and `wide-f64`, and
//!   rounds them back. These are integers that hold every exponent, so their sums have the same bits in every order
//!   and every tree. They support only `sum`.
//! - A single operand passes unchanged.

#![forbid(unsafe_code)]

mod element_type;
mod exact;
mod half_floats;
mod indexed_value;
mod operator;
mod payload_element;
mod reduction_kind;
mod wide;

pub use element_type::{ElementType, UnknownElementType};
pub use exact::{WideError, WideFloat, sum_exact};
pub use operator::{Operator, UnknownOperator};
pub use reduction_kind::{FoldError, ReductionKind, ReductionKindError};
