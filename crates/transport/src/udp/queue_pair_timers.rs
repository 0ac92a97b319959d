//! When each queue pair is to be woken, the earliest first.

use std::collections::BTreeSet;

use units::{QpNumber, Time};

/// At most one alarm for each queue pair: one that is set earlier takes the place of the one that was.
#[derive(Debug)]
pub(super) struct QueuePairTimers {
    set: BTreeSet<(Time, QpNumber)>,
    /// Asked for in every turn.
    earliest: Time,
}

impl Default for QueuePairTimers {
    fn default() -> Self {
        Self { set: BTreeSet::new(), earliest: Time::NEVER }
    }
}

impl QueuePairTimers {
    /// When the next one goes off; never, if none is set.
    pub(super) fn earliest(&self) -> Time {
        self.earliest
    }

    /// Sets the alarm of a queue pair, that was set for `before` or never.
    pub(super) fn set(&mut self, number: QpNumber, before: Time, at: Time) {
        self.set.remove(&(before, number));
        self.set.insert((at, number));
        self.look();
    }

    /// Takes back the alarm of a queue pair, that was set for `before` or never.
    pub(super) fn clear(&mut self, number: QpNumber, before: Time) {
        self.set.remove(&(before, number));
        self.look();
    }

    /// Takes one that has gone off by now.
    pub(super) fn pop(&mut self, now: Time) -> Option<QpNumber> {
        if self.earliest > now {
            return None;
        }
        let (_, number) = self.set.pop_first()?;
        self.look();
        Some(number)
    }

    fn look(&mut self) {
        self.earliest = self.set.first().map_or(Time::NEVER, |(at, _)| *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_has_one_alarm_at_most() {
        let mut alarms = QueuePairTimers::default();
        assert_eq!((alarms.earliest(), alarms.pop(Time::ZERO)), (Time::NEVER, None));
        let at = |micros| Time::ZERO + units::Span::from_micros(micros);
        alarms.set(QpNumber(7), Time::NEVER, at(30));
        alarms.set(QpNumber(8), Time::NEVER, at(20));
        alarms.set(QpNumber(7), at(30), at(10));
        assert_eq!((alarms.set.len(), alarms.earliest()), (2, at(10)));
        assert_eq!(alarms.pop(at(9)), None);
        assert_eq!(alarms.pop(at(25)), Some(QpNumber(7)));
        assert_eq!(alarms.pop(at(25)), Some(QpNumber(8)));
        assert_eq!(alarms.pop(at(99)), None);
        alarms.set(QpNumber(7), Time::NEVER, at(40));
        alarms.clear(QpNumber(7), at(40));
        assert_eq!((alarms.set.len(), alarms.earliest()), (0, Time::NEVER));
    }
}
