//! The element types of a payload.

use std::fmt;
use std::str::FromStr;

/// The type of one element. The discriminant is the wire code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ElementType {
    /// Signed, 8 bits.
    I8 = 1,
    /// Unsigned, 8 bits.
    U8 = 2,
    /// Signed, 16 bits.
    I16 = 3,
    /// Unsigned, 16 bits.
    U16 = 4,
    /// Signed, 32 bits.
    I32 = 5,
    /// Unsigned, 32 bits.
    U32 = 6,
    /// Signed, 64 bits.
    I64 = 7,
    /// Unsigned, 64 bits.
    U64 = 8,
    /// IEEE 754 binary16.
    F16 = 9,
    /// The upper half of a binary32.
    Bf16 = 10,
    /// IEEE 754 binary32.
    F32 = 11,
    /// IEEE 754 binary64.
    F64 = 12,
    /// An exact sum of `f32`, 40 bytes.
    WideF32 = 13,
    /// An exact sum of `f64`, 272 bytes.
    WideF64 = 14,
}

impl ElementType {
    /// All types, by rising code.
    pub const ALL: [Self; 14] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::WideF32,
        Self::WideF64,
    ];

    /// The wire code, 1 to 14.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this wire code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::WideF32 => 40,
            Self::WideF64 => 272,
        }
    }

    /// True for the four float types. Exact sums are integers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// True for the two exact sums.
    pub const fn is_wide(self) -> bool {
        matches!(self, Self::WideF32 | Self::WideF64)
    }

    /// The name in command lines and files: `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::WideF32 => "wide-f32",
            Self::WideF64 => "wide-f64",
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ElementType {
    type Err = UnknownElementType;

    fn from_str(name: &str) -> Result<Self, UnknownElementType> {
        Self::ALL.into_iter().find(|element| element.name() == name).ok_or_else(|| UnknownElementType(name.into()))
    }
}

/// The name of an element type that does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownElementType(pub String);

impl fmt::Display for UnknownElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown element type {:?}", self.0)
    }
}

impl std::error::Error for UnknownElementType {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for (position, element) in ElementType::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(element.code()), position + 1);
            assert_eq!(ElementType::from_code(element.code()), Some(element));
            assert_eq!(element.name().parse(), Ok(element));
        }
    }

    #[test]
    fn unknown_codes_and_names_are_rejected() {
        assert_eq!(ElementType::from_code(0), None);
        assert_eq!(ElementType::from_code(15), None);
        assert_eq!("f128".parse::<ElementType>(), Err(UnknownElementType("f128".into())));
    }
}
