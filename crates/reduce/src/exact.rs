//! Exact sums of floats: contributions are widened, folded as integers, and rounded once (P-36).
//!
//! In: little-endian floats. Out: wide sums, which are sent and folded like any other element
//! ([`ElementType::WideF32`], [`ElementType::WideF64`]); and the reverse. The head of `wide` describes their layout.

use std::fmt;

use crate::ElementType;
use crate::wide::{self, WideF32, WideF64, WidenableFloat};

/// A float type with an exact sum, and the conversions between them.
///
/// A sum is rounded once, to nearest, ties to even. Any NaN among the addends, or infinities of both signs, give the
/// canonical quiet NaN. An empty sum and a sum of -0 alone are -0; every other zero sum is +0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WideFloat {
    /// `f32` and `wide-f32`.
    F32,
    /// `f64` and `wide-f64`.
    F64,
}

impl WideFloat {
    /// The pair to which a type belongs: `f64` and `wide-f64` give [`Self::F64`].
    pub const fn of(element: ElementType) -> Option<Self> {
        match element {
            ElementType::F32 | ElementType::WideF32 => Some(Self::F32),
            ElementType::F64 | ElementType::WideF64 => Some(Self::F64),
            _ => None,
        }
    }

    /// The type of the addends and of the rounded sum.
    pub const fn narrow(self) -> ElementType {
        match self {
            Self::F32 => ElementType::F32,
            Self::F64 => ElementType::F64,
        }
    }

    /// The type of the exact sum.
    pub const fn wide(self) -> ElementType {
        match self {
            Self::F32 => ElementType::WideF32,
            Self::F64 => ElementType::WideF64,
        }
    }

    /// Writes each float as a sum of one addend.
    ///
    /// # Errors
    /// If the slices do not hold the same number of elements. Nothing is written then.
    pub fn widen(self, floats: &[u8], wide: &mut [u8]) -> Result<(), WideError> {
        self.check(floats, wide)?;
        match self {
            Self::F32 => widen::<f32, 5>(floats, wide),
            Self::F64 => widen::<f64, 34>(floats, wide),
        }
        Ok(())
    }

    /// Adds each float to its sum. Equivalent to widening and folding, but faster.
    ///
    /// # Errors
    /// If the slices do not hold the same number of elements. Nothing is written then.
    pub fn accumulate(self, wide: &mut [u8], floats: &[u8]) -> Result<(), WideError> {
        self.check(floats, wide)?;
        match self {
            Self::F32 => accumulate::<f32, 5>(wide, floats),
            Self::F64 => accumulate::<f64, 34>(wide, floats),
        }
        Ok(())
    }

    /// Writes the float nearest to each sum.
    ///
    /// # Errors
    /// If the slices do not hold the same number of elements. Nothing is written then.
    pub fn round(self, wide: &[u8], floats: &mut [u8]) -> Result<(), WideError> {
        self.check(floats, wide)?;
        match self {
            Self::F32 => round::<f32, 5>(wide, floats),
            Self::F64 => round::<f64, 34>(wide, floats),
        }
        Ok(())
    }

    fn check(self, floats: &[u8], wide: &[u8]) -> Result<(), WideError> {
        for (element, length) in [(self.narrow(), floats.len()), (self.wide(), wide.len())] {
            if !length.is_multiple_of(element.size()) {
                return Err(WideError::PartOfElement { element, length });
            }
        }
        let (floats, wide) = (floats.len() / self.narrow().size(), wide.len() / self.wide().size());
        if floats == wide { Ok(()) } else { Err(WideError::CountsDiffer { floats, wide }) }
    }
}

const _: () = assert!(ElementType::WideF32.size() == size_of::<WideF32>());
const _: () = assert!(ElementType::WideF64.size() == size_of::<WideF64>());

/// The sum, rounded once; independent of the order of the numbers. The rules are those of [`WideFloat`].
pub fn sum_exact(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum: WideF64 = [[0; 8]; _];
    for number in numbers {
        wide::accumulate(&mut sum, number);
    }
    wide::round(&sum)
}

/// Why floats and wide sums do not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WideError {
    /// The length is not a multiple of the element size.
    PartOfElement {
        /// The expected element type.
        element: ElementType,
        /// Bytes given.
        length: usize,
    },
    /// The numbers of floats and of wide sums differ.
    CountsDiffer {
        /// Floats.
        floats: usize,
        /// Wide sums.
        wide: usize,
    },
}

impl fmt::Display for WideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PartOfElement { element, length } => {
                write!(f, "{length} bytes are not a multiple of the {}-byte element {element}", element.size())
            }
            Self::CountsDiffer { floats, wide } => write!(f, "{floats} floats do not match {wide} wide sums"),
        }
    }
}

impl std::error::Error for WideError {}

fn widen<F: WidenableFloat, const LIMBS: usize>(floats: &[u8], sums: &mut [u8]) {
    for (place, number) in wide::cut_mut::<LIMBS>(sums).iter_mut().zip(floats.chunks_exact(F::SIZE)) {
        wide::widen(F::load(number), place);
    }
}

fn accumulate<F: WidenableFloat, const LIMBS: usize>(sums: &mut [u8], floats: &[u8]) {
    for (sum, number) in wide::cut_mut::<LIMBS>(sums).iter_mut().zip(floats.chunks_exact(F::SIZE)) {
        wide::accumulate(sum, F::load(number));
    }
}

fn round<F: WidenableFloat, const LIMBS: usize>(sums: &[u8], floats: &mut [u8]) {
    for (place, sum) in floats.chunks_exact_mut(F::SIZE).zip(wide::cut::<LIMBS>(sums)) {
        wide::round::<F, LIMBS>(sum).store(place);
    }
}
