//! The oracle's own description of a reduction.

use std::fmt;
use std::str::FromStr;

/// A reduction of `count` elements over all ranks of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduction {
    /// The type of an element.
    pub element: ReductionElement,
    /// The operator.
    pub operator: ReductionOperator,
    /// Elements in each rank's vector.
    pub count: usize,
}

impl Reduction {
    /// Bytes of one element; for `minloc` and `maxloc`, of one pair in C layout.
    pub fn element_bytes(&self) -> usize {
        if self.operator.is_located() { 2 * self.index_offset() } else { self.element.bytes() }
    }

    /// Bytes of a rank's whole vector.
    pub fn bytes(&self) -> usize {
        self.count * self.element_bytes()
    }

    /// False for bitwise operators on floats, and for anything but the sum of wide elements.
    pub fn is_defined(&self) -> bool {
        let bits = matches!(self.operator, ReductionOperator::And | ReductionOperator::Or | ReductionOperator::Xor);
        !(self.element.is_float() && bits || self.element.is_wide() && self.operator != ReductionOperator::Sum)
    }

    /// The offset of a pair's index: aligned to four bytes, or to the value if that is wider.
    pub(crate) fn index_offset(&self) -> usize {
        self.element.bytes().max(4)
    }
}

impl fmt::Display for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.element, self.operator, self.count)
    }
}

macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    $(Self::$variant => $text,)*
                })
            }
        }

        impl FromStr for $name {
            type Err = UnknownReductionName;

            fn from_str(name: &str) -> Result<Self, UnknownReductionName> {
                match name {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(UnknownReductionName { what: $what, name: name.to_owned() }),
                }
            }
        }
    };
}

named!(
    /// The type of an element.
    ReductionElement, "element" {
        /// Signed, 8 bits.
        I8 = "i8",
        /// Unsigned, 8 bits.
        U8 = "u8",
        /// Signed, 16 bits.
        I16 = "i16",
        /// Unsigned, 16 bits.
        U16 = "u16",
        /// Signed, 32 bits.
        I32 = "i32",
        /// Unsigned, 32 bits.
        U32 = "u32",
        /// Signed, 64 bits.
        I64 = "i64",
        /// Unsigned, 64 bits.
        U64 = "u64",
        /// IEEE 754 binary16.
        F16 = "f16",
        /// The upper half of a binary32.
        Bf16 = "bf16",
        /// IEEE 754 binary32.
        F32 = "f32",
        /// IEEE 754 binary64.
        F64 = "f64",
        /// An exact sum of `f32`.
        WideF32 = "wide-f32",
        /// An exact sum of `f64`.
        WideF64 = "wide-f64",
    }
);

named!(
    /// The operator of a reduction.
    ReductionOperator, "operator" {
        /// Integers wrap.
        Sum = "sum",
        /// Integers wrap.
        Prod = "prod",
        /// NaN wins; -0 is below +0.
        Min = "min",
        /// NaN wins; -0 is below +0.
        Max = "max",
        /// On pairs; of equal values, the smaller index.
        MinLoc = "minloc",
        /// On pairs; of equal values, the smaller index.
        MaxLoc = "maxloc",
        /// On the bits of integers.
        And = "and",
        /// On the bits of integers.
        Or = "or",
        /// On the bits of integers.
        Xor = "xor",
    }
);

impl ReductionElement {
    /// Bytes of one number.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::WideF32 => 40,
            Self::WideF64 => 272,
        }
    }

    /// True for the four float types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// True for exact sums, which do not depend on the order.
    pub fn is_wide(self) -> bool {
        matches!(self, Self::WideF32 | Self::WideF64)
    }

    pub(crate) fn is_signed_integer(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }
}

impl ReductionOperator {
    /// True if the operator works on pairs of value and index.
    pub fn is_located(self) -> bool {
        matches!(self, Self::MinLoc | Self::MaxLoc)
    }
}

/// A name that no element type or operator has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownReductionName {
    /// What the name should denote: an element or an operator.
    pub what: &'static str,
    /// The name.
    pub name: String,
}

impl fmt::Display for UnknownReductionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}", self.what, self.name)
    }
}

impl std::error::Error for UnknownReductionName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_to_what_they_denote() {
        for element in ReductionElement::ALL {
            assert_eq!(element.to_string().parse(), Ok(*element));
        }
        for operator in ReductionOperator::ALL {
            assert_eq!(operator.to_string().parse(), Ok(*operator));
        }
        assert_eq!("mean".parse::<ReductionOperator>().unwrap_err().to_string(), "unknown operator \"mean\"");
    }

    #[test]
    fn pairs_have_the_layout_of_c() {
        let sizes = [
            (ReductionElement::I8, 8),
            (ReductionElement::F16, 8),
            (ReductionElement::I32, 8),
            (ReductionElement::F64, 16),
        ];
        for (element, bytes) in sizes {
            let operation = Reduction { element, operator: ReductionOperator::MinLoc, count: 3 };
            assert_eq!((operation.element_bytes(), operation.bytes()), (bytes, 3 * bytes));
        }
    }
}
