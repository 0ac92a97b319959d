//! Allocates edge numbers: 23 bits, unique in the whole cluster (P-79).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::ids::GroupKey;

/// Queue pairs 0 and 1 are InfiniBand's management queue pairs.
const FIRST_EDGE_NUMBER: u32 = 2;
const LAST_EDGE_NUMBER: u32 = super::limits::MAX_EDGE_NUMBER;

#[derive(Debug)]
pub(super) struct EdgeNumberAllocator {
    next: u32,
    owner_by_number: BTreeMap<u32, GroupKey>,
    numbers_by_group: BTreeMap<GroupKey, Vec<u32>>,
}

impl EdgeNumberAllocator {
    /// Starts at a random number: after a restart, a collision with numbers that nodes use but have not reported is unlikely.
    pub(super) fn new(start: u32) -> Self {
        let next = FIRST_EDGE_NUMBER + start % (LAST_EDGE_NUMBER - FIRST_EDGE_NUMBER + 1);
        Self { next, owner_by_number: BTreeMap::new(), numbers_by_group: BTreeMap::new() }
    }

    /// Allocates `count` numbers, or none. A freed number is reused only after all others.
    pub(super) fn take(&mut self, count: usize, group: GroupKey) -> Option<Vec<u32>> {
        if count > (LAST_EDGE_NUMBER - FIRST_EDGE_NUMBER) as usize + 1 - self.owner_by_number.len() {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let number = self.next;
            self.next = if number == LAST_EDGE_NUMBER { FIRST_EDGE_NUMBER } else { number + 1 };
            if self.mark(number, group) {
                taken.push(number);
            }
        }
        Some(taken)
    }

    /// Marks numbers that a node reports for a group. False, without any change, if another group has one of them.
    #[must_use]
    pub(super) fn claim(&mut self, runs: &[(u32, u32)], group: GroupKey) -> bool {
        let max = super::limits::MAX_LEADERS as u64 + 1;
        let is_valid = |(first, length): &(u32, u32)| {
            *first >= FIRST_EDGE_NUMBER && u64::from(*first) + u64::from(*length) <= u64::from(LAST_EDGE_NUMBER) + 1
        };
        if !runs.iter().all(is_valid) || runs.iter().map(|(_, length)| u64::from(*length)).sum::<u64>() > max {
            return false;
        }
        let numbers = || runs.iter().flat_map(|(first, length)| *first..first + length);
        if numbers().any(|number| self.owner_by_number.get(&number).is_some_and(|user| *user != group)) {
            return false;
        }
        numbers().for_each(|number| {
            self.mark(number, group);
        });
        true
    }

    pub(super) fn free(&mut self, group: GroupKey) {
        for number in self.numbers_by_group.remove(&group).unwrap_or_default() {
            self.owner_by_number.remove(&number);
        }
    }

    /// Marks a number; true if it was free.
    fn mark(&mut self, number: u32, group: GroupKey) -> bool {
        let Entry::Vacant(entry) = self.owner_by_number.entry(number) else { return false };
        entry.insert(group);
        self.numbers_by_group.entry(group).or_default().push(number);
        true
    }

    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.owner_by_number.len()
    }
}

/// Numbers as runs: first number and length.
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
    fn a_claim_on_another_groups_number_has_no_effect() {
        let mut numbers = EdgeNumberAllocator::new(0);
        assert!(numbers.claim(&to_runs([9, 7, 8, 20]), group(1)));
        assert!(numbers.claim(&[(20, 2)], group(1)), "a neighbour's seat has the same edge");
        assert!(!numbers.claim(&[(21, 1), (40, 1)], group(2)));
        assert!(!numbers.claim(&[(100, u32::MAX)], group(2)));
        assert_eq!(numbers.in_use(), 5);
    }
}
