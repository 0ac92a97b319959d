//! A kind of reduction: an element type and the operator that combines two elements.
//!
//! In: an accumulator and an operand of the same length. Out: the folded accumulator. There is one loop, in two
//! forms, at the bottom of this file; everything above only chooses the function that it applies. Exact sums have their
//! own loop, in `wide`.

use std::fmt;

use half::{bf16, f16};

use crate::indexed_value::IndexedValue;
use crate::payload_element::{ArithmeticElement, BitwiseElement, PayloadElement};
use crate::{ElementType, Operator, wide};

/// A valid combination of element type and operator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReductionKind {
    element: ElementType,
    operator: Operator,
}

impl ReductionKind {
    /// True if the bits of a result depend on the order of its operands: sums and products that are rounded.
    pub const fn depends_on_order(&self) -> bool {
        self.element.is_float() && matches!(self.operator, Operator::Sum | Operator::Prod)
    }

    /// Rejects invalid combinations: bitwise operators on floats, and anything but sums of exact sums.
    pub const fn new(element: ElementType, operator: Operator) -> Result<Self, ReductionKindError> {
        if element.is_float() && operator.is_bitwise() {
            return Err(ReductionKindError::BitsOfFloat { element, operator });
        }
        if element.is_wide() && !matches!(operator, Operator::Sum) {
            return Err(ReductionKindError::NotASum { element, operator });
        }
        Ok(Self { element, operator })
    }

    /// The element type.
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// The operator.
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// Size of one element in bytes: a number, or a padded pair for `minloc` and `maxloc`.
    pub const fn element_size(&self) -> usize {
        let number = self.element.size();
        if !self.operator.is_located() {
            number
        } else if number <= 4 {
            8
        } else {
            16
        }
    }

    /// Folds each element of `operand` into the accumulator: `accumulator[i] = accumulator[i] ∘ operand[i]`.
    ///
    /// # Errors
    /// If the lengths differ or are not a multiple of the element size. The accumulator is unchanged then.
    pub fn fold(&self, accumulator: &mut [u8], operand: &[u8]) -> Result<(), FoldError> {
        self.check_lengths(accumulator.len(), operand)?;
        self.run(FoldInPlace { accumulator, operand });
        Ok(())
    }

    /// Combines each element of two operands: `result[i] = left[i] ∘ right[i]`. One pass, where a copy and a fold would be two.
    ///
    /// # Errors
    /// As [`ReductionKind::fold`]; the result is unchanged then.
    pub fn combine(&self, result: &mut [u8], left: &[u8], right: &[u8]) -> Result<(), FoldError> {
        self.check_lengths(result.len(), left)?;
        self.check_lengths(result.len(), right)?;
        self.run(FoldApart { result, left, right });
        Ok(())
    }

    fn check_lengths(&self, accumulator: usize, operand: &[u8]) -> Result<(), FoldError> {
        if accumulator != operand.len() {
            return Err(FoldError::LengthsDiffer { accumulator, operand: operand.len() });
        }
        self.check_whole(operand)
    }

    fn run<L: FoldLoop>(&self, fold: L) {
        let operator = self.operator;
        match self.element {
            ElementType::I8 => fold_integers::<i8, L>(operator, fold),
            ElementType::U8 => fold_integers::<u8, L>(operator, fold),
            ElementType::I16 => fold_integers::<i16, L>(operator, fold),
            ElementType::U16 => fold_integers::<u16, L>(operator, fold),
            ElementType::I32 => fold_integers::<i32, L>(operator, fold),
            ElementType::U32 => fold_integers::<u32, L>(operator, fold),
            ElementType::I64 => fold_integers::<i64, L>(operator, fold),
            ElementType::U64 => fold_integers::<u64, L>(operator, fold),
            ElementType::F16 => fold_numbers::<f16, L>(operator, fold),
            ElementType::Bf16 => fold_numbers::<bf16, L>(operator, fold),
            ElementType::F32 => fold_numbers::<f32, L>(operator, fold),
            ElementType::F64 => fold_numbers::<f64, L>(operator, fold),
            ElementType::WideF32 => fold.sum_wide::<5>(),
            ElementType::WideF64 => fold.sum_wide::<34>(),
        }
    }

    /// Folds in the given order: `((first ∘ second) ∘ third) ∘ …`.
    ///
    /// # Errors
    /// If there is no operand, or as [`ReductionKind::fold`].
    pub fn fold_all<'a>(&self, operands: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>, FoldError> {
        let mut operands = operands;
        let first = operands.next().ok_or(FoldError::NoOperand)?;
        self.check_whole(first)?;
        let mut accumulator = first.to_vec();
        for operand in operands {
            self.fold(&mut accumulator, operand)?;
        }
        Ok(accumulator)
    }

    /// True if so many bytes are a multiple of the element size.
    #[inline]
    pub const fn is_whole(&self, bytes: usize) -> bool {
        let size = self.element_size();
        // The size is nearly always a power of two, and a division takes longer than folding a few numbers.
        if size.is_power_of_two() { bytes & (size - 1) == 0 } else { bytes.is_multiple_of(size) }
    }

    fn check_whole(&self, operand: &[u8]) -> Result<(), FoldError> {
        if self.is_whole(operand.len()) {
            Ok(())
        } else {
            Err(FoldError::PartOfElement { length: operand.len(), element_size: self.element_size() })
        }
    }
}

impl fmt::Display for ReductionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.element, self.operator)
    }
}

/// Why a combination of element type and operator is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReductionKindError {
    /// `and`, `or` and `xor` need integers.
    BitsOfFloat {
        /// The float type.
        element: ElementType,
        /// The bitwise operator.
        operator: Operator,
    },
    /// Exact sums support only `sum`.
    NotASum {
        /// The wide type.
        element: ElementType,
        /// The other operator.
        operator: Operator,
    },
}

impl fmt::Display for ReductionKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BitsOfFloat { element, operator } => {
                write!(f, "{operator} is a bitwise operator and does not apply to {element}; use an integer type")
            }
            Self::NotASum { element, operator } => {
                write!(f, "{operator} does not apply to {element}, which supports only sum")
            }
        }
    }
}

impl std::error::Error for ReductionKindError {}

/// Why a fold is impossible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldError {
    /// The operand and the accumulator differ in length.
    LengthsDiffer {
        /// Bytes of the accumulator.
        accumulator: usize,
        /// Bytes of the operand.
        operand: usize,
    },
    /// The length is not a multiple of the element size.
    PartOfElement {
        /// Bytes of the operand.
        length: usize,
        /// Bytes of one element.
        element_size: usize,
    },
    /// No operand was given.
    NoOperand,
}

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LengthsDiffer { accumulator, operand } => {
                write!(f, "an operand of {operand} bytes cannot be folded into {accumulator} bytes")
            }
            Self::PartOfElement { length, element_size } => {
                write!(f, "{length} bytes are not a multiple of the {element_size}-byte element")
            }
            Self::NoOperand => f.write_str("no operand to fold"),
        }
    }
}

impl std::error::Error for FoldError {}

fn fold_integers<T: BitwiseElement, L: FoldLoop>(operator: Operator, fold: L) {
    match operator {
        Operator::And => fold.each(T::and),
        Operator::Or => fold.each(T::or),
        Operator::Xor => fold.each(T::xor),
        _ => fold_numbers::<T, L>(operator, fold),
    }
}

fn fold_numbers<T: ArithmeticElement, L: FoldLoop>(operator: Operator, fold: L) {
    match operator {
        Operator::Sum => fold.each(T::sum),
        Operator::Prod => fold.each(T::product),
        Operator::Min => fold.each(T::minimum),
        Operator::Max => fold.each(T::maximum),
        Operator::MinLoc => fold.each(IndexedValue::<T>::minimum),
        Operator::MaxLoc => fold.each(IndexedValue::<T>::maximum),
        Operator::And | Operator::Or | Operator::Xor => {
            unreachable!("ReductionKind::new rejects bitwise operators on floats")
        }
    }
}

/// The loop over the elements of operands of equal length.
trait FoldLoop {
    fn each<E: PayloadElement>(self, combine: impl Fn(E, E) -> E);
    fn sum_wide<const LIMBS: usize>(self);
}

/// The result replaces the first operand.
struct FoldInPlace<'a> {
    accumulator: &'a mut [u8],
    operand: &'a [u8],
}

/// The result goes elsewhere.
struct FoldApart<'a> {
    result: &'a mut [u8],
    left: &'a [u8],
    right: &'a [u8],
}

impl FoldLoop for FoldInPlace<'_> {
    fn each<E: PayloadElement>(self, combine: impl Fn(E, E) -> E) {
        fold_each(self.accumulator, self.operand, combine);
    }

    fn sum_wide<const LIMBS: usize>(self) {
        wide::fold::<LIMBS>(self.accumulator, self.operand);
    }
}

impl FoldLoop for FoldApart<'_> {
    fn each<E: PayloadElement>(self, combine: impl Fn(E, E) -> E) {
        combine_each(self.result, self.left, self.right, combine);
    }

    fn sum_wide<const LIMBS: usize>(self) {
        self.result.copy_from_slice(self.left);
        wide::fold::<LIMBS>(self.result, self.right);
    }
}

/// The loop in place. Each element type and operator instantiates its own copy, which the compiler vectorises. It must not be
/// inlined: inside its callers the compiler no longer knows that the slices do not overlap, and folding pairs becomes
/// two to seven times slower.
#[inline(never)]
fn fold_each<E: PayloadElement>(accumulator: &mut [u8], operand: &[u8], combine: impl Fn(E, E) -> E) {
    let operands = operand.chunks_exact(E::SIZE);
    for (place, bytes) in accumulator.chunks_exact_mut(E::SIZE).zip(operands) {
        combine(E::load(place), E::load(bytes)).store(place);
    }
}

/// The loop into another place; not inlined for the same reason.
#[inline(never)]
fn combine_each<E: PayloadElement>(result: &mut [u8], left: &[u8], right: &[u8], combine: impl Fn(E, E) -> E) {
    let operands = left.chunks_exact(E::SIZE).zip(right.chunks_exact(E::SIZE));
    for (place, (left, right)) in result.chunks_exact_mut(E::SIZE).zip(operands) {
        combine(E::load(left), E::load(right)).store(place);
    }
}
