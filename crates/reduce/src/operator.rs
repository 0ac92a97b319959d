//! The operators that combine two elements.

use std::fmt;
use std::str::FromStr;

/// The operator that combines two elements. The discriminant is the wire code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Operator {
    /// The sum. Integers wrap.
    Sum = 1,
    /// The product. Integers wrap.
    Prod = 2,
    /// The minimum. NaN wins; -0 is below +0.
    Min = 3,
    /// The maximum. NaN wins; -0 is below +0.
    Max = 4,
    /// The pair with the minimum value; of equal values, the smaller index.
    MinLoc = 5,
    /// The pair with the maximum value; of equal values, the smaller index.
    MaxLoc = 6,
    /// Bitwise and; integers only.
    And = 7,
    /// Bitwise or; integers only.
    Or = 8,
    /// Bitwise exclusive or; integers only.
    Xor = 9,
}

impl Operator {
    /// All operators, by rising code.
    pub const ALL: [Self; 9] =
        [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::MinLoc, Self::MaxLoc, Self::And, Self::Or, Self::Xor];

    /// The wire code, 1 to 9.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operator with this wire code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// True for bitwise operators.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }

    /// True for operators on pairs of value and index.
    pub const fn is_located(self) -> bool {
        matches!(self, Self::MinLoc | Self::MaxLoc)
    }

    /// The name in command lines and files: `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::MinLoc => "minloc",
            Self::MaxLoc => "maxloc",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Operator {
    type Err = UnknownOperator;

    fn from_str(name: &str) -> Result<Self, UnknownOperator> {
        Self::ALL.into_iter().find(|operator| operator.name() == name).ok_or_else(|| UnknownOperator(name.into()))
    }
}

/// The name of an operator that does not exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownOperator(pub String);

impl fmt::Display for UnknownOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown operator {:?}", self.0)
    }
}

impl std::error::Error for UnknownOperator {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for (position, operator) in Operator::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(operator.code()), position + 1);
            assert_eq!(Operator::from_code(operator.code()), Some(operator));
            assert_eq!(operator.name().parse(), Ok(operator));
        }
    }

    #[test]
    fn unknown_codes_and_names_are_rejected() {
        assert_eq!(Operator::from_code(0), None);
        assert_eq!(Operator::from_code(10), None);
        assert_eq!("mean".parse::<Operator>(), Err(UnknownOperator("mean".into())));
    }
}
