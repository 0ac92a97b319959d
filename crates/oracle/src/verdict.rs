//! What the judges say.
//!
//! In: violations, as they are found. Out: a bounded list of them, the number of all, and what was checked,
//! so that "no violations" cannot mean "nothing was looked at".

use std::fmt;

use units::{OpId, Rank};

/// Violations and splits that a verdict lists; the rest are only counted.
pub const MAX_LISTED: usize = 64;

/// What a run of collective operations was worth.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// What went wrong, the first [`MAX_LISTED`] of it.
    pub violations: Vec<Violation>,
    /// What went wrong beyond the list.
    pub unlisted_violations: u64,
    /// Deliveries whose bytes were compared with a reference.
    pub checked: u64,
    /// Deliveries that could only be compared with those of other ranks, since no reference was given.
    pub only_agreed: u64,
    /// Operations that failed at a rank, with a cause.
    pub failed: u64,
    /// Operations that some ranks delivered and others failed, the first [`MAX_LISTED`]. Not a violation
    /// by itself: the caller decides how far apart ranks may end.
    pub splits: Vec<PartialFailure>,
    /// Such operations beyond the list.
    pub unlisted_splits: u64,
}

impl Verdict {
    /// True if nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.violation_count() == 0
    }

    /// All violations, listed or not.
    pub fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.unlisted_violations
    }

    pub(crate) fn add(&mut self, violation: Violation) {
        push_bounded(&mut self.violations, &mut self.unlisted_violations, violation);
    }

    pub(crate) fn add_split(&mut self, split: PartialFailure) {
        push_bounded(&mut self.splits, &mut self.unlisted_splits, split);
    }
}

/// Keeps the first [`MAX_LISTED`] and counts the rest.
pub(crate) fn push_bounded<T>(listed: &mut Vec<T>, unlisted: &mut u64, finding: T) {
    if listed.len() < MAX_LISTED {
        listed.push(finding);
    } else {
        *unlisted += 1;
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} violations; {} deliveries checked, {} compared among ranks only, {} failures, {} operations split",
            self.violation_count(),
            self.checked,
            self.only_agreed,
            self.failed,
            self.splits.len() as u64 + self.unlisted_splits,
        )?;
        for violation in &self.violations {
            write!(f, "\n  {violation}")?;
        }
        if self.unlisted_violations > 0 {
            write!(f, "\n  and {} more", self.unlisted_violations)?;
        }
        Ok(())
    }
}

/// An operation that ended well at some ranks and badly at others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartialFailure {
    /// The operation.
    pub op: OpId,
    /// Ranks that delivered it.
    pub delivered: u32,
    /// Ranks that failed it.
    pub failed: u32,
    /// The first cause that was recorded.
    pub cause: String,
}

impl fmt::Display for PartialFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, delivered, failed, cause } = self;
        write!(f, "{op}: {delivered} ranks delivered, {failed} failed ({cause})")
    }
}

/// One thing that must not happen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A result differs from the reference.
    WrongBits {
        /// Who delivered it.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The first element that differs.
        element: usize,
        /// How many elements differ.
        differing: usize,
        /// The first differing element as it should be, little-endian.
        expected: Vec<u8>,
        /// The first differing element as it was delivered.
        got: Vec<u8>,
    },
    /// Two ranks delivered different results of one operation, and there is no reference to say who is right.
    Disagreement {
        /// Who delivered later.
        rank: Rank,
        /// Who delivered first.
        first: Rank,
        /// The operation.
        op: OpId,
        /// The first byte that differs.
        byte: usize,
    },
    /// A result is longer or shorter than it should be.
    LengthWrong {
        /// Who delivered it.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// Bytes that it should have.
        expected: usize,
        /// Bytes that it has.
        got: usize,
    },
    /// A rank got the same operation's result again.
    DeliveredTwice {
        /// Who got it.
        rank: Rank,
        /// The operation.
        op: OpId,
    },
    /// A rank got a result and a failure of the same operation.
    DeliveredAndFailed {
        /// Who got both.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The failure's cause.
        cause: String,
    },
    /// A rank got neither a result nor a failure: it would wait for ever.
    NeverDelivered {
        /// Who waits.
        rank: Rank,
        /// The operation.
        op: OpId,
    },
    /// A rank went on from an operation that waits for all before all had come.
    LeftTooSoon {
        /// Who went on.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// Ranks that had not come.
        absent: u32,
    },
    /// A rank failed an operation though the faults of this run were soft.
    FailedThoughSoft {
        /// Who failed.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The failure's cause.
        cause: String,
    },
    /// Something was recorded for a rank or operation that the run does not have.
    UnknownRankOrOp {
        /// The rank named.
        rank: Rank,
        /// The operation named.
        op: OpId,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongBits { rank, op, element, differing, expected, got } => {
                let (expected, got) = (Hex(expected), Hex(got));
                write!(f, "{op}, {rank}: element {element} is {got}, should be {expected}; {differing} differ")
            }
            Self::Disagreement { rank, first, op, byte } => {
                write!(f, "{op}, {rank}: differs from what {first} delivered, from byte {byte} on")
            }
            Self::LengthWrong { rank, op, expected, got } => {
                write!(f, "{op}, {rank}: delivered {got} bytes instead of {expected}")
            }
            Self::DeliveredTwice { rank, op } => write!(f, "{op}, {rank}: delivered twice"),
            Self::DeliveredAndFailed { rank, op, cause } => {
                write!(f, "{op}, {rank}: delivered, and failed too ({cause})")
            }
            Self::NeverDelivered { rank, op } => write!(f, "{op}, {rank}: neither delivered nor failed"),
            Self::LeftTooSoon { rank, op, absent } => write!(f, "{op}, {rank}: went on before {absent} had come"),
            Self::FailedThoughSoft { rank, op, cause } => {
                write!(f, "{op}, {rank}: failed though every fault was soft ({cause})")
            }
            Self::UnknownRankOrOp { rank, op } => {
                write!(f, "{op}, {rank}: no such rank or operation in this run")
            }
        }
    }
}

/// Bytes of a little-endian number, as one reads numbers: `0x3ff0000000000000`.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
