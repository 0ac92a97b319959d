//! Exact sums of floats: contributions are widened, folded as integers, and rounded once (P-45).
//!
//! In: floats, little-endian. Out: wide sums of them, which travel and are folded like any other element
//! ([`ElementType::WideF32`], [`ElementType::WideF64`]); and back. What a wide element holds is written in
//! the head of `wide`.

use std::fmt;

use crate::ElementType;
use crate::wide::{self, WideF32, WideF64, WidenableFloat};

/// A float type with an exact sum: how to get from one to the other.
///
/// A sum is rounded once, to nearest, ties to even. Any NaN among the addends, or infinities of both signs,
/// give the canonical quiet NaN. A sum of nothing but -0 is -0, and so is the sum of nothing; every other
/// sum that is zero is +0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WideFloat {
    /// `f32` and `wide-f32`.
    F32,
    /// `f64` and `wide-f64`.
    F64,
}

impl WideFloat {
    /// For either type of a pair: `f64` or `wide-f64`.
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
    /// If the lengths are not those of equally many elements; then nothing has changed.
    pub fn widen(self, floats: &[u8], wide: &mut [u8]) -> Result<(), WideError> {
        self.check(floats, wide)?;
        match self {
            Self::F32 => widen::<f32, 5>(floats, wide),
            Self::F64 => widen::<f64, 34>(floats, wide),
        }
        Ok(())
    }

    /// Adds each float to its sum: the same as widening and folding, and quicker.
    ///
    /// # Errors
    /// If the lengths are not those of equally many elements; then nothing has changed.
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
    /// If the lengths are not those of equally many elements; then nothing has changed.
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

/// The sum, rounded once: the same for every order of the numbers. The rules are those of [`WideFloat`].
pub fn sum_exact(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let mut sum: WideF64 = [[0; 8]; _];
    for number in numbers {
        wide::accumulate(&mut sum, number);
    }
    wide::round(&sum)
}

/// Why floats and wide sums do not belong together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WideError {
    /// The length is no whole number of elements.
    PartOfElement {
        /// What the elements should be.
        element: ElementType,
        /// Bytes that were given.
        length: usize,
    },
    /// There is not one sum for each float.
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
                write!(f, "{length} bytes are no whole number of {element}, which takes {} bytes", element.size())
            }
            Self::CountsDiffer { floats, wide } => write!(f, "{floats} floats do not go with {wide} wide sums"),
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
