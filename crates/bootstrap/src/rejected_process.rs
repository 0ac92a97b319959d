//! Processes that rank 0 rejects while it waits for its ranks.
//!
//! In: what does not fit. Out: one report for each kind of mismatch, however many processes there are, since a stranger may cause them too;
//! and a count of each kind for the error, if ranks are missing in the end.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::endpoint_record::{RecordReader, RecordWriter};

/// Other reasons for which a connection was closed: how many distinct ones are kept.
const MAX_OTHER_REASONS: usize = 8;

/// What of a process that wants to join differs from rank 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum JoinMismatch {
    /// Its token, or without one the job's name, from which the token is then made.
    Token,
    /// Its version.
    Version,
    /// The number of ranks.
    Size,
    /// Nothing: another process has its rank already.
    Rank,
}

/// A process that rank 0 rejected. Its text says what to set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RejectedProcess {
    /// Where it runs.
    pub address: IpAddr,
    /// What is wrong.
    pub mismatch: JoinMismatch,
    /// Its rank and its number of ranks; unknown if it cannot be understood.
    pub claim: Option<(u32, u32)>,
    /// The number of ranks for which rank 0 waits.
    pub expected_size: u32,
}

/// The connections that rank 0 closed before all ranks had joined.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RejectedConnections {
    /// How many did not fit, by what was wrong.
    pub mismatches: BTreeMap<JoinMismatch, u32>,
    /// Why others were closed; known to rank 0 only.
    pub other_reasons: Vec<&'static str>,
}

impl JoinMismatch {
    const ALL: [Self; 4] = [Self::Token, Self::Version, Self::Size, Self::Rank];

    fn because(self) -> &'static str {
        match self {
            Self::Token => "another PLEACH_TOKEN or PLEACH_JOB",
            Self::Version => "another version of Pleach",
            Self::Size => "another PLEACH_SIZE",
            Self::Rank => "a PLEACH_RANK that another process has",
        }
    }
}

impl RejectedConnections {
    /// Counts a process; true if it is the first of its kind.
    pub(super) fn count(&mut self, mismatch: JoinMismatch) -> bool {
        let count = self.mismatches.entry(mismatch).or_default();
        *count = count.saturating_add(1);
        *count == 1
    }

    pub(super) fn note(&mut self, why: &'static str) {
        if self.other_reasons.len() < MAX_OTHER_REASONS && !self.other_reasons.contains(&why) {
            self.other_reasons.push(why);
        }
    }

    /// Writes how many did not fit.
    pub(super) fn write(&self, writer: &mut RecordWriter) {
        for mismatch in JoinMismatch::ALL {
            writer.number(self.mismatches.get(&mismatch).copied().unwrap_or(0));
        }
    }

    /// What was written; nothing if it is missing, as in messages of older versions.
    pub(super) fn read(reader: &mut RecordReader<'_>) -> Self {
        let counts = JoinMismatch::ALL.map(|mismatch| (mismatch, reader.number().unwrap_or(0)));
        let mismatches = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        Self { mismatches, other_reasons: Vec::new() }
    }
}

impl fmt::Display for RejectedProcess {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.claim {
            Some((rank, _)) => write!(formatter, "rank {rank} at {} was rejected: ", self.address)?,
            None => write!(formatter, "a process at {} was rejected: ", self.address)?,
        }
        match (self.mismatch, self.claim) {
            (JoinMismatch::Token, _) => formatter.write_str(
                "its PLEACH_TOKEN, or without one its PLEACH_JOB, is not rank 0's; set the same in every process",
            ),
            (JoinMismatch::Version, _) => {
                formatter.write_str("it runs another version of Pleach; install the same version on all hosts")
            }
            (JoinMismatch::Size, Some((_, size))) => write!(
                formatter,
                "its PLEACH_SIZE is {size}, rank 0's is {}; set the same in every process",
                self.expected_size
            ),
            (JoinMismatch::Size, None) => {
                formatter.write_str("its PLEACH_SIZE is not rank 0's; set the same in every process")
            }
            (JoinMismatch::Rank, _) => formatter.write_str(
                "another process has this PLEACH_RANK already; give every process a PLEACH_RANK of its own",
            ),
        }
    }
}

/// Continues a sentence about missing ranks.
impl fmt::Display for RejectedConnections {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (mismatch, count) in &self.mismatches {
            let subject = if *count == 1 { "connection was" } else { "connections were" };
            write!(formatter, "; {count} {subject} rejected because of {}", mismatch.because())?;
        }
        self.other_reasons.iter().try_for_each(|why| write!(formatter, "; rejected: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_each_kind_is_reported_and_all_are_counted() {
        let mut rejected = RejectedConnections::default();
        let is_first = [JoinMismatch::Token, JoinMismatch::Token, JoinMismatch::Size, JoinMismatch::Token]
            .map(|mismatch| rejected.count(mismatch));
        assert_eq!(is_first, [true, false, true, false]);
        let mut writer = RecordWriter::default();
        rejected.write(&mut writer);
        assert_eq!(RejectedConnections::read(&mut RecordReader { rest: &writer.bytes }), rejected);
        let of_an_older_version = RejectedConnections::read(&mut RecordReader { rest: &[] });
        assert_eq!(of_an_older_version, RejectedConnections::default());
        for _ in 0..2 {
            rejected.note("a connection is not a Pleach client");
        }
        assert_eq!(
            rejected.to_string(),
            "; 3 connections were rejected because of another PLEACH_TOKEN or PLEACH_JOB; 1 connection was rejected because of another \
             PLEACH_SIZE; rejected: a connection is not a Pleach client"
        );
    }

    #[test]
    fn a_report_names_the_process_and_the_variable() {
        let address = IpAddr::from([10, 0, 0, 2]);
        let text = |mismatch, claim| RejectedProcess { address, mismatch, claim, expected_size: 4 }.to_string();
        assert_eq!(
            text(JoinMismatch::Size, Some((2, 5))),
            "rank 2 at 10.0.0.2 was rejected: its PLEACH_SIZE is 5, rank 0's is 4; set the same in every process"
        );
        let token = text(JoinMismatch::Token, None);
        assert!(token.starts_with("a process at 10.0.0.2 was rejected: its PLEACH_TOKEN"), "{token}");
        let rank = text(JoinMismatch::Rank, Some((1, 4)));
        assert!(rank.starts_with("rank 1 at 10.0.0.2 was rejected: another process has this PLEACH_RANK"), "{rank}");
    }
}
