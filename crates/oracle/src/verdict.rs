//! The verdict on a run.
//!
//! In: violations, as they are found. Out: a bounded list of them, their number, and what was checked, so that "no
//! violations" cannot mean "nothing was checked".

use std::fmt;

use units::{OpId, Rank};

/// The most violations and partial failures that a verdict lists; the rest are only counted.
pub const MAX_LISTED: usize = 64;

/// The verdict on a run of collective operations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Verdict {
    /// The first [`MAX_LISTED`] violations.
    pub violations: Vec<Violation>,
    /// The number of further violations.
    pub unlisted_violations: u64,
    /// Deliveries compared with a reference.
    pub checked: u64,
    /// Deliveries compared only with those of other ranks, for lack of a reference.
    pub cross_checked: u64,
    /// Operations that failed at a rank, with a cause.
    pub failed: u64,
    /// The first [`MAX_LISTED`] operations that some ranks delivered and others failed. Not a violation by itself: the caller
    /// decides how far the outcomes of ranks may differ.
    pub partial_failures: Vec<PartialFailure>,
    /// The number of further such operations.
    pub unlisted_partial_failures: u64,
}

impl Verdict {
    /// Whether there is no violation.
    pub fn is_clean(&self) -> bool {
        self.violation_count() == 0
    }

    /// The number of all violations, listed or not.
    pub fn violation_count(&self) -> u64 {
        self.violations.len() as u64 + self.unlisted_violations
    }

    pub(crate) fn add(&mut self, violation: Violation) {
        push_bounded(&mut self.violations, &mut self.unlisted_violations, violation);
    }

    pub(crate) fn add_partial_failure(&mut self, failure: PartialFailure) {
        push_bounded(&mut self.partial_failures, &mut self.unlisted_partial_failures, failure);
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
            "{} violations; {} deliveries checked, {} compared only among ranks, {} failures, {} partial failures",
            self.violation_count(),
            self.checked,
            self.cross_checked,
            self.failed,
            self.partial_failures.len() as u64 + self.unlisted_partial_failures,
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

/// An operation that some ranks delivered and others failed.
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

/// A violation by a rank in an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Violation {
    /// A result differs from the reference.
    WrongBits {
        /// The rank that delivered it.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The first element that differs.
        element: usize,
        /// How many elements differ.
        differing: usize,
        /// The first differing element of the reference, little-endian.
        expected: Vec<u8>,
        /// The first differing element of the delivery.
        got: Vec<u8>,
    },
    /// Two ranks delivered different results of one operation without a reference.
    Disagreement {
        /// The rank that delivered later.
        rank: Rank,
        /// The rank that delivered first.
        first: Rank,
        /// The operation.
        op: OpId,
        /// The first byte that differs.
        byte: usize,
    },
    /// A result has a wrong length.
    WrongLength {
        /// The rank that delivered it.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The expected number of bytes.
        expected: usize,
        /// The number of bytes delivered.
        got: usize,
    },
    /// A rank delivered the same operation again.
    DeliveredTwice {
        /// The rank.
        rank: Rank,
        /// The operation.
        op: OpId,
    },
    /// A rank delivered and failed the same operation.
    DeliveredAndFailed {
        /// The rank.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The failure's cause.
        cause: String,
    },
    /// A rank neither delivered nor failed: it would wait forever.
    NeverDelivered {
        /// The rank.
        rank: Rank,
        /// The operation.
        op: OpId,
    },
    /// A rank left a synchronizing operation before all ranks had entered it.
    LeftBarrierEarly {
        /// The rank.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The number of ranks that had not entered.
        absent: u32,
    },
    /// A rank failed an operation although the run had only transient faults.
    UnexpectedFailure {
        /// The rank.
        rank: Rank,
        /// The operation.
        op: OpId,
        /// The failure's cause.
        cause: String,
    },
    /// A record names a rank or operation that the run does not have.
    UnknownRankOrOp {
        /// The rank named.
        rank: Rank,
        /// The operation.
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
                write!(f, "{op}, {rank}: differs from the delivery of {first}, from byte {byte} on")
            }
            Self::WrongLength { rank, op, expected, got } => {
                write!(f, "{op}, {rank}: delivered {got} bytes instead of {expected}")
            }
            Self::DeliveredTwice { rank, op } => write!(f, "{op}, {rank}: delivered twice"),
            Self::DeliveredAndFailed { rank, op, cause } => {
                write!(f, "{op}, {rank}: delivered and also failed ({cause})")
            }
            Self::NeverDelivered { rank, op } => write!(f, "{op}, {rank}: neither delivered nor failed"),
            Self::LeftBarrierEarly { rank, op, absent } => {
                write!(f, "{op}, {rank}: left before {absent} ranks had entered")
            }
            Self::UnexpectedFailure { rank, op, cause } => {
                write!(f, "{op}, {rank}: failed although all faults were transient ({cause})")
            }
            Self::UnknownRankOrOp { rank, op } => {
                write!(f, "{op}, {rank}: no such rank or operation in this run")
            }
        }
    }
}

/// Little-endian bytes as a number: `0x3ff0000000000000`.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.0.iter().rev().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
