//! Deadlines of machines, the earliest first.
//!
//! In: the deadline that a machine asks for. Out: the machines whose deadline has passed. Each machine has at most one
//! timer, at the earliest deadline it asked for since its timer last fired.

use std::collections::{BTreeMap, BTreeSet};

use units::Time;

/// The timers of machines that are named by `K`.
#[derive(Debug)]
pub struct TimerQueue<K> {
    by_time: BTreeSet<(Time, K)>,
    by_key: BTreeMap<K, Time>,
    /// Kept beside the set, because every turn of an event loop asks for it.
    earliest: Time,
}

impl<K: Copy + Ord> Default for TimerQueue<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new(), earliest: Time::NEVER }
    }
}

impl<K: Copy + Ord> TimerQueue<K> {
    /// Arms the timer of a machine. A timer that is due earlier stays; [`Time::NEVER`] arms nothing.
    pub fn set(&mut self, key: K, at: Time) {
        if at == Time::NEVER {
            return;
        }
        if let Some(armed) = self.by_key.get(&key).copied() {
            if armed <= at {
                return;
            }
            self.by_time.remove(&(armed, key));
        }
        self.by_key.insert(key, at);
        self.by_time.insert((at, key));
        self.earliest = self.earliest.min(at);
    }

    /// Disarms the timer of a machine.
    pub fn cancel(&mut self, key: K) {
        if let Some(armed) = self.by_key.remove(&key) {
            self.by_time.remove(&(armed, key));
            self.update_earliest();
        }
    }

    /// Disarms one timer that is due and returns its machine. The machine asks for its next deadline anew.
    pub fn pop_expired(&mut self, now: Time) -> Option<K> {
        if self.earliest > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.by_key.remove(&key);
        self.update_earliest();
        Some(key)
    }

    /// The earliest deadline; [`Time::NEVER`] if no timer is armed.
    pub fn earliest(&self) -> Time {
        self.earliest
    }

    fn update_earliest(&mut self) {
        self.earliest = self.by_time.first().map_or(Time::NEVER, |(at, _)| *at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + units::Span::from_micros(micros)
    }

    #[test]
    fn each_machine_fires_once_at_its_earliest_deadline() {
        let mut timers = TimerQueue::default();
        assert_eq!((timers.earliest(), timers.pop_expired(Time::ZERO)), (Time::NEVER, None));
        timers.set('a', at(9));
        timers.set('a', at(5));
        timers.set('a', at(7));
        timers.set('b', at(6));
        timers.set('c', at(1));
        timers.set('d', Time::NEVER);
        timers.cancel('c');
        timers.cancel('c');
        assert_eq!((timers.by_time.len(), timers.earliest()), (2, at(5)));
        assert_eq!(timers.pop_expired(at(4)), None);
        assert_eq!(timers.pop_expired(at(10)), Some('a'));
        assert_eq!(timers.pop_expired(at(10)), Some('b'));
        assert_eq!(timers.pop_expired(at(10)), None);
        timers.set('a', at(11));
        assert_eq!(timers.earliest(), at(11));
        timers.cancel('a');
        assert_eq!((timers.by_key.len(), timers.earliest()), (0, Time::NEVER));
    }
}
