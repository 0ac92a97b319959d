//! What the ranks of a communicator tell each other in one allreduce of minima: how far each has come, whether Pleach has failed, and
//! a ballot for the trial of both ways.
//!
//! The recovery after a failure and the exchanges of a trial send the same values, so one can meet the other: a rank that wants to
//! try something learns in that very exchange that another rank needs its help.

use crate::trial::{AgreedBudget, RoundTimes};

const BALLOT_VALUES: usize = 4 + size_of::<RoundTimes>() / size_of::<u64>();
const VALUES: usize = 3 + BALLOT_VALUES;

/// One rank's knowledge for the trial, or that of all ranks after they have agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TrialBallot {
    /// The job's time so far. The least counts.
    pub(crate) elapsed_ns: u64,
    /// How long the last exchange took. The least counts: the other ranks waited for the last one.
    pub(crate) exchange_ns: u64,
    /// What trials have cost this rank. The most counts.
    pub(crate) lost_ns: u64,
    /// Pleach did calls on other communicators between hosts. True if it did at any rank.
    pub(crate) is_used_elsewhere: bool,
    /// Times of a round. The most count.
    pub(crate) times: RoundTimes,
}

impl TrialBallot {
    pub(crate) fn budget(&self) -> AgreedBudget {
        AgreedBudget { elapsed_ns: self.elapsed_ns, lost_ns: self.lost_ns }
    }

    /// As values whose minima are the agreement.
    pub(crate) fn encode(&self) -> [i64; BALLOT_VALUES] {
        let number = |value: u64| value.min(i64::MAX as u64) as i64;
        let mut values = [0; BALLOT_VALUES];
        values[0] = number(self.elapsed_ns);
        values[1] = number(self.exchange_ns);
        values[2] = -number(self.lost_ns);
        values[3] = -i64::from(self.is_used_elsewhere);
        for (value, time) in values[4..].iter_mut().zip(self.times) {
            *value = -number(time);
        }
        values
    }

    pub(crate) fn decode(values: &[i64; BALLOT_VALUES]) -> Self {
        let mut times = RoundTimes::default();
        for (time, value) in times.iter_mut().zip(&values[4..]) {
            *time = value.unsigned_abs();
        }
        let [elapsed_ns, exchange_ns, lost_ns] = [0, 1, 2].map(|at: usize| values[at].unsigned_abs());
        Self { elapsed_ns, exchange_ns, lost_ns, is_used_elsewhere: values[3] != 0, times }
    }
}

/// How many calls a rank has started and completed on a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CallProgress {
    pub(crate) completed: u64,
    pub(crate) started: u64,
}

/// The progress of the ranks of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgreedProgress {
    /// Calls that all ranks have completed, and that any of them has started.
    pub(crate) all_completed: u64,
    pub(crate) any_started: u64,
    /// Pleach has failed at some rank.
    pub(crate) has_failed: bool,
    pub(crate) ballot: TrialBallot,
}

impl AgreedProgress {
    /// The values of one rank.
    pub(crate) fn encode(progress: CallProgress, has_failed: bool, ballot: &TrialBallot) -> Vec<i64> {
        let mut values = vec![progress.completed as i64, -(progress.started as i64), -i64::from(has_failed)];
        values.extend(ballot.encode());
        values
    }

    /// The agreement, from the minima. `values` has as many elements as `encode` returns.
    pub(crate) fn decode(values: &[i64]) -> Self {
        let values: &[i64; VALUES] = values.try_into().expect("as many as were encoded");
        let ballot = values[3..].try_into().expect("the rest of them");
        Self {
            all_completed: values[0] as u64,
            any_started: values[1].unsigned_abs(),
            has_failed: values[2] != 0,
            ballot: TrialBallot::decode(ballot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minima_are_the_agreement() {
        let [mut one, mut other] = [TrialBallot::default(); 2];
        (one.elapsed_ns, other.elapsed_ns) = (900, 1000);
        (one.exchange_ns, other.exchange_ns) = (70, 20);
        (one.lost_ns, other.lost_ns) = (5, 9);
        other.is_used_elsewhere = true;
        (one.times, other.times) = ([1, 2, 3, 4], [4, 1, 7, 0]);
        let progress = |completed, started| CallProgress { completed, started };
        let values = AgreedProgress::encode(progress(12, 13), false, &one);
        let minima: Vec<i64> = values
            .iter()
            .zip(AgreedProgress::encode(progress(11, 11), true, &other))
            .map(|(a, b)| *a.min(&b))
            .collect();
        let agreed = AgreedProgress::decode(&minima);
        assert_eq!((agreed.all_completed, agreed.any_started, agreed.has_failed), (11, 13, true));
        assert_eq!(agreed.ballot.budget(), AgreedBudget { elapsed_ns: 900, lost_ns: 9 });
        assert_eq!((agreed.ballot.exchange_ns, agreed.ballot.is_used_elsewhere), (20, true));
        assert_eq!(agreed.ballot.times, [4, 2, 7, 4]);
        let alone = AgreedProgress::decode(&values);
        assert_eq!((alone.all_completed, alone.any_started, alone.has_failed, alone.ballot), (12, 13, false, one));
    }
}
