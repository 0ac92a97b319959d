//! Maps datatypes and operators of MPI to reductions of Pleach.
//!
//! In: the meanings of the two handles. Out: an [`MpiReduction`], or nothing if the standard forbids the combination (the native MPI then
//! reports the error) or Pleach does not implement it.

use pleach::{ElementType, Operator, ReductionKind};

/// The class of a datatype's elements. Sizes are bytes of data without padding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatatypeClass {
    /// A C integer.
    Integer(ElementType),
    /// A Fortran integer, or one of both languages: not a truth value.
    FortranInteger(ElementType),
    Float(ElementType),
    /// A truth value of one byte, zero or one.
    Bool,
    Byte,
    /// A value and an `int` index.
    Pair(ElementType),
    /// No arithmetic.
    Opaque(u8),
}

/// The predefined operators of the standard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MpiOperator {
    Max,
    Min,
    Sum,
    Prod,
    LogicalAnd,
    BitAnd,
    LogicalOr,
    BitOr,
    LogicalXor,
    BitXor,
    MinLoc,
    MaxLoc,
}

/// The layout of elements in the user's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ElementLayout {
    /// As Pleach reduces them.
    Plain,
    /// Integers as truth values: anything but zero is true.
    Truth,
    /// Pairs with padding, which must stay unchanged.
    Padded,
}

/// A reduction of Pleach, and the layout of its elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MpiReduction {
    pub(crate) kind: ReductionKind,
    pub(crate) layout: ElementLayout,
}

impl DatatypeClass {
    /// Bytes of data in one element, without padding.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::Integer(element) | Self::FortranInteger(element) | Self::Float(element) => element.size(),
            Self::Bool | Self::Byte => 1,
            Self::Pair(element) => element.size() + 4,
            Self::Opaque(size) => size.into(),
        }
    }

    /// True if elements are contiguous.
    pub(crate) fn is_contiguous(self) -> bool {
        !matches!(self, Self::Pair(element) if has_padding(element))
    }
}

/// C aligns the index of a pair to four bytes, and the pair to its larger member.
fn has_padding(element: ElementType) -> bool {
    element.size() != 4
}

impl MpiReduction {
    /// The reduction of this class with this operator.
    #[inline(always)]
    pub(crate) fn of(class: DatatypeClass, operator: MpiOperator) -> Option<Self> {
        use MpiOperator as Name;
        let plain = |element, operator| {
            Some(Self { kind: ReductionKind::new(element, operator).ok()?, layout: ElementLayout::Plain })
        };
        let truth = |element: ElementType, operator| {
            Some(Self { kind: ReductionKind::new(element, operator).ok()?, layout: ElementLayout::Truth })
        };
        match (class, operator) {
            (
                DatatypeClass::Integer(element)
                | DatatypeClass::FortranInteger(element)
                | DatatypeClass::Float(element),
                Name::Max,
            ) => plain(element, Operator::Max),
            (
                DatatypeClass::Integer(element)
                | DatatypeClass::FortranInteger(element)
                | DatatypeClass::Float(element),
                Name::Min,
            ) => plain(element, Operator::Min),
            (
                DatatypeClass::Integer(element)
                | DatatypeClass::FortranInteger(element)
                | DatatypeClass::Float(element),
                Name::Sum,
            ) => plain(element, Operator::Sum),
            (
                DatatypeClass::Integer(element)
                | DatatypeClass::FortranInteger(element)
                | DatatypeClass::Float(element),
                Name::Prod,
            ) => plain(element, Operator::Prod),
            (DatatypeClass::Integer(element) | DatatypeClass::FortranInteger(element), Name::BitAnd) => {
                plain(element, Operator::And)
            }
            (DatatypeClass::Integer(element) | DatatypeClass::FortranInteger(element), Name::BitOr) => {
                plain(element, Operator::Or)
            }
            (DatatypeClass::Integer(element) | DatatypeClass::FortranInteger(element), Name::BitXor) => {
                plain(element, Operator::Xor)
            }
            (DatatypeClass::Byte, Name::BitAnd) => plain(ElementType::U8, Operator::And),
            (DatatypeClass::Byte, Name::BitOr) => plain(ElementType::U8, Operator::Or),
            (DatatypeClass::Byte, Name::BitXor) => plain(ElementType::U8, Operator::Xor),
            (DatatypeClass::Integer(element), Name::LogicalAnd) => truth(element, Operator::And),
            (DatatypeClass::Integer(element), Name::LogicalOr) => truth(element, Operator::Or),
            (DatatypeClass::Integer(element), Name::LogicalXor) => truth(element, Operator::Xor),
            (DatatypeClass::Bool, Name::LogicalAnd) => truth(ElementType::U8, Operator::And),
            (DatatypeClass::Bool, Name::LogicalOr) => truth(ElementType::U8, Operator::Or),
            (DatatypeClass::Bool, Name::LogicalXor) => truth(ElementType::U8, Operator::Xor),
            (DatatypeClass::Pair(element), Name::MinLoc | Name::MaxLoc) => {
                let operator = if operator == Name::MinLoc { Operator::MinLoc } else { Operator::MaxLoc };
                let layout = if has_padding(element) { ElementLayout::Padded } else { ElementLayout::Plain };
                Some(Self { kind: ReductionKind::new(element, operator).ok()?, layout })
            }
            _ => None,
        }
    }

    /// Bytes from one element to the next, in the user's memory as here.
    #[inline]
    pub(crate) fn stride(&self) -> usize {
        self.kind.element_size()
    }

    /// Loads elements as Pleach reduces them.
    ///
    /// # Safety
    /// `count` elements are there.
    pub(crate) unsafe fn load(&self, from: *const u8, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // SAFETY: the caller guarantees it.
        unsafe { self.load_into(&mut bytes, from, count) };
        bytes
    }

    /// The same, appended to a buffer.
    ///
    /// # Safety
    /// `count` elements are there.
    #[inline]
    pub(crate) unsafe fn load_into(&self, bytes: &mut Vec<u8>, from: *const u8, count: usize) {
        if self.layout != ElementLayout::Plain {
            // SAFETY: the same.
            return unsafe { self.load_parts(bytes, from, count) };
        }
        if count > 0 {
            // SAFETY: the caller guarantees it; without elements the pointer may be invalid.
            bytes.extend_from_slice(unsafe { slice(from, count * self.stride()) });
        }
    }

    /// # Safety
    /// As [`Self::load_into`].
    unsafe fn load_parts(&self, bytes: &mut Vec<u8>, from: *const u8, count: usize) {
        let before = bytes.len();
        bytes.resize(before + count * self.stride(), 0);
        for (element, place) in bytes[before..].chunks_exact_mut(self.stride()).enumerate() {
            // SAFETY: this is one of the elements.
            let from = unsafe { from.add(element * self.stride()) };
            for (offset, length) in self.parts() {
                // SAFETY: parts are within the element, in both.
                unsafe { from.add(offset).copy_to_nonoverlapping(place[offset..].as_mut_ptr(), length) };
            }
            if self.layout == ElementLayout::Truth {
                let is_true = place.iter().any(|byte| *byte != 0);
                place.fill(0);
                place[0] = is_true.into(); // Little-endian, as all operands.
            }
        }
    }

    /// Stores elements in the user's memory and leaves padding unchanged.
    ///
    /// # Safety
    /// There is room for them.
    pub(crate) unsafe fn store(&self, bytes: &[u8], to: *mut u8) {
        if self.layout != ElementLayout::Plain {
            // SAFETY: the same.
            return unsafe { self.store_parts(bytes, to) };
        }
        // SAFETY: the caller guarantees it.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len()) };
    }

    /// # Safety
    /// As [`Self::store`].
    unsafe fn store_parts(&self, bytes: &[u8], to: *mut u8) {
        for (element, place) in bytes.chunks_exact(self.stride()).enumerate() {
            for (offset, length) in self.parts() {
                // SAFETY: parts are within the element, in both.
                unsafe {
                    let to = to.add(element * self.stride() + offset);
                    place[offset..].as_ptr().copy_to_nonoverlapping(to, length);
                }
            }
        }
    }

    /// Offsets and lengths of the data within an element.
    fn parts(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (value, index) = match self.layout {
            ElementLayout::Plain | ElementLayout::Truth => ((0, self.stride()), None),
            ElementLayout::Padded => ((0, self.kind.element().size()), Some((self.stride() / 2, 4))),
        };
        std::iter::once(value).chain(index)
    }
}

/// A slice over the user's bytes.
///
/// # Safety
/// `length` bytes are there, and no thread writes to them meanwhile.
pub(crate) unsafe fn slice<'a>(from: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: the caller guarantees it.
    unsafe { std::slice::from_raw_parts(from, length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(class: DatatypeClass, operator: MpiOperator) -> MpiReduction {
        MpiReduction::of(class, operator).expect("they go together")
    }

    #[test]
    fn combinations_that_the_standard_forbids_are_not_reduced() {
        for (class, operator) in [
            (DatatypeClass::Byte, MpiOperator::Sum),
            (DatatypeClass::Float(ElementType::F64), MpiOperator::BitAnd),
            (DatatypeClass::Float(ElementType::F64), MpiOperator::LogicalAnd),
            (DatatypeClass::FortranInteger(ElementType::I32), MpiOperator::LogicalOr),
            (DatatypeClass::Pair(ElementType::F64), MpiOperator::Sum),
            (DatatypeClass::Integer(ElementType::I32), MpiOperator::MinLoc),
            (DatatypeClass::Opaque(1), MpiOperator::Max),
            (DatatypeClass::Bool, MpiOperator::Sum),
        ] {
            assert_eq!(MpiReduction::of(class, operator), None, "{class:?} {operator:?}");
        }
    }

    #[test]
    fn truth_values_become_zero_or_one() {
        let fold = fold(DatatypeClass::Integer(ElementType::I32), MpiOperator::LogicalAnd);
        let values = [0_i32, 1, -1, 256];
        // SAFETY: four elements are there.
        let bytes = unsafe { fold.load(values.as_ptr().cast(), 4) };
        let loaded: Vec<i32> =
            bytes.chunks_exact(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect();
        assert_eq!(loaded, [0, 1, 1, 1]);
    }

    #[test]
    fn padding_of_pairs_stays_unchanged() {
        for (element, value) in [(ElementType::F64, 8), (ElementType::I16, 2), (ElementType::I64, 8)] {
            let fold = fold(DatatypeClass::Pair(element), MpiOperator::MinLoc);
            let stride = fold.stride();
            let theirs = vec![7_u8; 2 * stride];
            // SAFETY: two elements are there.
            let mut ours = unsafe { fold.load(theirs.as_ptr(), 2) };
            assert_eq!(ours.iter().filter(|byte| **byte == 7).count(), 2 * (value + 4));
            ours.fill(1);
            let mut back = vec![7_u8; 2 * stride];
            // SAFETY: there is room for two.
            unsafe { fold.store(&ours, back.as_mut_ptr()) };
            assert_eq!(back.iter().filter(|byte| **byte == 7).count(), 2 * (stride - value - 4));
        }
    }
}
