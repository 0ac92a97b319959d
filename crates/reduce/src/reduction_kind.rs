//! A kind of reduction: what the elements are and how two become one.
//!
//! In: an accumulator and an operand, equally long. Out: the accumulator, folded. There is one loop, at
//! the bottom of this file; everything above it only chooses the function that the loop applies. Only exact
//! sums have a loop of their own, in `wide`.

use std::fmt;

use half::{bf16, f16};

use crate::indexed_value::IndexedValue;
use crate::payload_element::{ArithmeticElement, BitwiseElement, PayloadElement};
use crate::{ElementType, Operator, wide};

/// An element type and an operator that go together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReductionKind {
    element: ElementType,
    operator: Operator,
}

impl ReductionKind {
    /// Refuses what has no meaning: the bits of a float are not for combining, and exact sums are for summing.
    pub const fn new(element: ElementType, operator: Operator) -> Result<Self, ReductionKindError> {
        if element.is_float() && operator.is_bitwise() {
            return Err(ReductionKindError::BitsOfFloat { element, operator });
        }
        if element.is_wide() && !matches!(operator, Operator::Sum) {
            return Err(ReductionKindError::NotASum { element, operator });
        }
        Ok(Self { element, operator })
    }

    /// The type of the numbers.
    pub const fn element(&self) -> ElementType {
        self.element
    }

    /// How two elements become one.
    pub const fn operator(&self) -> Operator {
        self.operator
    }

    /// Bytes of one element: a number, or for `minloc` and `maxloc` a pair with its padding.
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

    /// Folds each element of `operand` into its place: `accumulator[i] = accumulator[i] ∘ operand[i]`.
    ///
    /// # Errors
    /// If the lengths differ or are no whole number of elements; then nothing has changed.
    pub fn fold(&self, accumulator: &mut [u8], operand: &[u8]) -> Result<(), FoldError> {
        if accumulator.len() != operand.len() {
            return Err(FoldError::LengthsDiffer { accumulator: accumulator.len(), operand: operand.len() });
        }
        self.check_whole(operand)?;
        let operator = self.operator;
        match self.element {
            ElementType::I8 => fold_integers::<i8>(operator, accumulator, operand),
            ElementType::U8 => fold_integers::<u8>(operator, accumulator, operand),
            ElementType::I16 => fold_integers::<i16>(operator, accumulator, operand),
            ElementType::U16 => fold_integers::<u16>(operator, accumulator, operand),
            ElementType::I32 => fold_integers::<i32>(operator, accumulator, operand),
            ElementType::U32 => fold_integers::<u32>(operator, accumulator, operand),
            ElementType::I64 => fold_integers::<i64>(operator, accumulator, operand),
            ElementType::U64 => fold_integers::<u64>(operator, accumulator, operand),
            ElementType::F16 => fold_numbers::<f16>(operator, accumulator, operand),
            ElementType::Bf16 => fold_numbers::<bf16>(operator, accumulator, operand),
            ElementType::F32 => fold_numbers::<f32>(operator, accumulator, operand),
            ElementType::F64 => fold_numbers::<f64>(operator, accumulator, operand),
            ElementType::WideF32 => wide::fold::<5>(accumulator, operand),
            ElementType::WideF64 => wide::fold::<34>(accumulator, operand),
        }
        Ok(())
    }

    /// Folds in the order given: `((first ∘ second) ∘ third) ∘ …`.
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

    /// So many bytes are a whole number of elements.
    #[inline]
    pub const fn is_whole(&self, bytes: usize) -> bool {
        let size = self.element_size();
        // Nearly always a power of two; a division takes longer than to fold a few numbers.
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

/// Why an element type and an operator do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReductionKindError {
    /// `and`, `or` and `xor` are for integers.
    BitsOfFloat {
        /// The float type.
        element: ElementType,
        /// The operator on bits.
        operator: Operator,
    },
    /// Exact sums can only be summed.
    NotASum {
        /// The wide type.
        element: ElementType,
        /// The operator that is not `sum`.
        operator: Operator,
    },
}

impl fmt::Display for ReductionKindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BitsOfFloat { element, operator } => {
                write!(f, "{operator} works on the bits of integers, not on {element}")
            }
            Self::NotASum { element, operator } => {
                write!(f, "{operator} has no meaning for {element}, which can only be summed")
            }
        }
    }
}

impl std::error::Error for ReductionKindError {}

/// Why a fold did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoldError {
    /// An operand is longer or shorter than what it should be folded into.
    LengthsDiffer {
        /// Bytes of the accumulator.
        accumulator: usize,
        /// Bytes of the operand.
        operand: usize,
    },
    /// The length is no whole number of elements.
    PartOfElement {
        /// Bytes of the operand.
        length: usize,
        /// Bytes of one element.
        element_size: usize,
    },
    /// There was nothing to fold.
    NoOperand,
}

impl fmt::Display for FoldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LengthsDiffer { accumulator, operand } => {
                write!(f, "an operand of {operand} bytes cannot be folded into {accumulator} bytes")
            }
            Self::PartOfElement { length, element_size } => {
                write!(f, "{length} bytes are no whole number of {element_size}-byte elements")
            }
            Self::NoOperand => f.write_str("there is no operand to fold"),
        }
    }
}

impl std::error::Error for FoldError {}

fn fold_integers<T: BitwiseElement>(operator: Operator, accumulator: &mut [u8], operand: &[u8]) {
    match operator {
        Operator::And => fold_each(accumulator, operand, T::and),
        Operator::Or => fold_each(accumulator, operand, T::or),
        Operator::Xor => fold_each(accumulator, operand, T::xor),
        _ => fold_numbers::<T>(operator, accumulator, operand),
    }
}

fn fold_numbers<T: ArithmeticElement>(operator: Operator, accumulator: &mut [u8], operand: &[u8]) {
    match operator {
        Operator::Sum => fold_each(accumulator, operand, T::sum),
        Operator::Prod => fold_each(accumulator, operand, T::product),
        Operator::Min => fold_each(accumulator, operand, T::minimum),
        Operator::Max => fold_each(accumulator, operand, T::maximum),
        Operator::MinLoc => fold_each(accumulator, operand, IndexedValue::<T>::minimum),
        Operator::MaxLoc => fold_each(accumulator, operand, IndexedValue::<T>::maximum),
        Operator::And | Operator::Or | Operator::Xor => unreachable!("Kind::new refuses bits of floats"),
    }
}

/// The one loop. Each element type and operator makes its own copy of it, which the compiler vectorises. Not inlined:
/// merged into its callers, it loses what is known of its arguments, that they do not overlap, and pairs are folded
/// two to seven times slower.
#[inline(never)]
fn fold_each<E: PayloadElement>(accumulator: &mut [u8], operand: &[u8], combine: impl Fn(E, E) -> E) {
    let operands = operand.chunks_exact(E::SIZE);
    for (place, bytes) in accumulator.chunks_exact_mut(E::SIZE).zip(operands) {
        combine(E::load(place), E::load(bytes)).store(place);
    }
}
