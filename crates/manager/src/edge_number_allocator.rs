//! Hands out the numbers of edges: 23 bits, each in use once in the whole cluster (P-53).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::message::GroupKey;

/// Zero and one are the management queue pairs of InfiniBand.
const FIRST_EDGE_NUMBER: u32 = 2;
const LAST_EDGE_NUMBER: u32 = super::limits::MAX_EDGE_NUMBER;

#[derive(Debug)]
pub(super) struct EdgeNumberAllocator {
    next: u32,
    used_by: BTreeMap<u32, GroupKey>,
    numbers_of: BTreeMap<GroupKey, Vec<u32>>,
}

impl EdgeNumberAllocator {
    /// Starts anywhere: after a restart, numbers that nodes still use but have not reported are unlikely to be met.
    pub(super) fn new(start: u32) -> Self {
        let next = FIRST_EDGE_NUMBER + start % (LAST_EDGE_NUMBER - FIRST_EDGE_NUMBER + 1);
        Self { next, used_by: BTreeMap::new(), numbers_of: BTreeMap::new() }
    }

    /// So many numbers that nobody uses, or none at all. A freed number comes again only after all others.
    pub(super) fn take(&mut self, count: usize, group: GroupKey) -> Option<Vec<u32>> {
        if count > (LAST_EDGE_NUMBER - FIRST_EDGE_NUMBER) as usize + 1 - self.used_by.len() {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let number = self.next;
            self.next = if number == LAST_EDGE_NUMBER { FIRST_EDGE_NUMBER } else { number + 1 };
            if self.note(number, group) {
                taken.push(number);
            }
        }
        Some(taken)
    }

    /// Numbers that a node says a group has. False, and nothing noted, if another group has one of them.
    #[must_use]
    pub(super) fn claim(&mut self, runs: &[(u32, u32)], group: GroupKey) -> bool {
        let most = super::limits::MAX_LEADERS as u64 + 1;
        let is_sound = |(first, length): &(u32, u32)| {
            *first >= FIRST_EDGE_NUMBER && u64::from(*first) + u64::from(*length) <= u64::from(LAST_EDGE_NUMBER) + 1
        };
        if !runs.iter().all(is_sound) || runs.iter().map(|(_, length)| u64::from(*length)).sum::<u64>() > most {
            return false;
        }
        let numbers = || runs.iter().flat_map(|(first, length)| *first..first + length);
        if numbers().any(|number| self.used_by.get(&number).is_some_and(|user| *user != group)) {
            return false;
        }
        numbers().for_each(|number| {
            self.note(number, group);
        });
        true
    }

    pub(super) fn free(&mut self, group: GroupKey) {
        for number in self.numbers_of.remove(&group).unwrap_or_default() {
            self.used_by.remove(&number);
        }
    }

    /// True if it was free.
    fn note(&mut self, number: u32, group: GroupKey) -> bool {
        let Entry::Vacant(entry) = self.used_by.entry(number) else { return false };
        entry.insert(group);
        self.numbers_of.entry(group).or_default().push(number);
        true
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.used_by.len()
    }
}

/// Sorted numbers as runs: first number and length.
pub(super) fn to_runs(numbers: impl IntoIterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut sorted: Vec<u32> = numbers.into_iter().collect();
    sorted.sort_unstable();
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some((first, length)) if *first + *length == number => *length += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Epoch, GroupId};

    fn group(number: u32) -> GroupKey {
        GroupKey { group: GroupId(number), epoch: Epoch(0) }
    }

    #[test]
    fn numbers_wrap_and_skip_what_is_in_use() {
        let mut numbers = EdgeNumberAllocator::new(LAST_EDGE_NUMBER - FIRST_EDGE_NUMBER - 1);
        assert_eq!(numbers.take(3, group(1)), Some(vec![LAST_EDGE_NUMBER - 1, LAST_EDGE_NUMBER, FIRST_EDGE_NUMBER]));
        numbers.next = LAST_EDGE_NUMBER;
        assert_eq!(numbers.take(2, group(2)), Some(vec![FIRST_EDGE_NUMBER + 1, FIRST_EDGE_NUMBER + 2]));
        numbers.free(group(1));
        assert_eq!(numbers.in_use(), 2);
        assert_eq!(numbers.take(usize::MAX, group(3)), None);
    }

    #[test]
    fn a_claim_on_another_groups_number_changes_nothing() {
        let mut numbers = EdgeNumberAllocator::new(0);
        assert!(numbers.claim(&to_runs([9, 7, 8, 20]), group(1)));
        assert!(numbers.claim(&[(20, 2)], group(1)), "a neighbour's seat has the same edge");
        assert!(!numbers.claim(&[(21, 1), (40, 1)], group(2)));
        assert!(!numbers.claim(&[(100, u32::MAX)], group(2)));
        assert_eq!(numbers.in_use(), 5);
    }
}
