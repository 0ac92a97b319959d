//! Element types times operators: the only arithmetic on payload.
//!
//! In: byte slices of any alignment, each an array of little-endian elements. Out: the same, folded
//! element by element. [`ReductionKind`] names what is folded (`f64` with `sum`) and does it.
//!
//! Rules, so that the bits of a result depend on the operands and their order and on nothing else:
//! - The order is the caller's: `fold` puts the accumulator on the left, `fold_all` goes from first to
//!   last (claim SH-3, fixed-order reduction).
//! - Integers wrap: sums and products are those of two's complement, modulo the width.
//! - Floats round to nearest, ties to even, at every step. `f16` and `bf16` are computed in `f32` and
//!   rounded back at every step.
//! - A NaN among the operands, or one made by the operator, gives the canonical quiet NaN: sign clear,
//!   only the top mantissa bit set. Hardware differs in the NaN it makes; payload must not.
//! - Minimum and maximum are those of IEEE 754-2019: any NaN wins, and -0 is below +0 (P-45). Both are
//!   therefore associative and commutative, bit by bit.
//! - `minloc` and `maxloc` fold pairs of a value and an `i32` index. The value is what `min` or `max`
//!   would give; the index is the smallest among the operands that hold this value, where every NaN
//!   counts as the same value and -0 and +0 as two (P-45). A pair lies as C lays out `struct { T value;
//!   int32_t index; }`, the layout of MPI's pair types; padding is ignored on the way in and zero on the
//!   way out.
//! - `and`, `or` and `xor` work on the bits of integers; on floats they are refused.
//! - Order-free mode (P-45): [`WideFloat`] widens `f32` and `f64` to exact sums, `wide-f32` and `wide-f64`,
//!   and rounds them back. These are integers that hold every exponent, so sums of them have the same bits
//!   in every order and every tree. They can be summed and nothing else.
//! - Nothing happens to an operand that meets no other: one operand alone passes as it is.

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
