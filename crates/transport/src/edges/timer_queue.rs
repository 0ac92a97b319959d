//! Which machine wants to be called when.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use units::Time;

/// Alarms of machines that are named by `K`; each has at most one that counts.
#[derive(Debug)]
pub struct TimerQueue<K> {
    queue: BinaryHeap<Reverse<(Time, K)>>,
    set: BTreeMap<K, Time>,
}

impl<K: Copy + Ord> Default for TimerQueue<K> {
    fn default() -> Self {
        Self { queue: BinaryHeap::new(), set: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> TimerQueue<K> {
    /// A machine wants to be called at a time; an earlier alarm that it has stays.
    pub fn set(&mut self, who: K, at: Time) {
        if at == Time::NEVER || self.set.get(&who).is_some_and(|earlier| *earlier <= at) {
            return;
        }
        self.set.insert(who, at);
        self.queue.push(Reverse((at, who)));
    }

    /// A machine is gone.
    pub fn forget(&mut self, who: K) {
        self.set.remove(&who);
    }

    /// A machine whose time has come; it must be asked anew when it wants to be called next.
    pub fn ring(&mut self, now: Time) -> Option<K> {
        while let Some(Reverse((at, who))) = self.queue.peek().copied() {
            if at > now {
                return None;
            }
            self.queue.pop();
            if self.set.get(&who) == Some(&at) {
                self.set.remove(&who);
                return Some(who);
            }
        }
        None
    }

    /// When the next one may go off.
    pub fn next(&self) -> Option<Time> {
        self.queue.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_is_called_once_at_its_earliest_time() {
        let at = |nanos: u64| Time::from_picos(nanos * 1_000);
        let mut alarms = TimerQueue::default();
        alarms.set('a', at(9));
        alarms.set('a', at(5));
        alarms.set('a', at(7));
        alarms.set('b', at(6));
        alarms.set('c', at(1));
        alarms.set('d', Time::NEVER);
        alarms.forget('c');
        assert_eq!(alarms.ring(at(4)), None);
        assert_eq!(alarms.ring(at(10)), Some('a'));
        assert_eq!(alarms.ring(at(10)), Some('b'));
        assert_eq!(alarms.ring(at(10)), None);
        alarms.set('a', at(11));
        assert_eq!(alarms.next(), Some(at(11)));
    }
}
