//! Operations under way, by name.
//!
//! In and out: as a B-tree map. There are few at a time, and they begin and end nearly in the order of their names. So they lie in one
//! piece of memory, which stays allocated: a B-tree allocates a node for the first entry and frees it with the last, for each operation.

use std::collections::VecDeque;

/// A map that is sorted by key.
pub(super) struct OperationMap<K, V>(VecDeque<(K, V)>);

impl<K, V> Default for OperationMap<K, V> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<K: Ord, V> OperationMap<K, V> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        Some(&self.0[self.position(key).ok()?].1)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let position = self.position(key).ok()?;
        Some(&mut self.0[position].1)
    }

    /// Adds an entry; replaces the one that has this key.
    pub(super) fn insert(&mut self, key: K, value: V) {
        match self.position(&key) {
            Ok(position) => self.0[position].1 = value,
            Err(position) if position == self.0.len() => self.0.push_back((key, value)),
            Err(position) => self.0.insert(position, (key, value)),
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let position = self.position(key).ok()?;
        let entry = if position == 0 { self.0.pop_front() } else { self.0.remove(position) };
        entry.map(|(_, value)| value)
    }

    /// The entries in the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// As [`Self::iter`], to change them.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.0.iter_mut().map(|(key, value)| (&*key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Removes the entries for which `keep` is false.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain_mut(|(key, value)| keep(key, value));
    }

    /// Removes all entries.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (K, V)> + '_ {
        self.0.drain(..)
    }

    fn position(&self, key: &K) -> Result<usize, usize> {
        // Most often it is the only one, or the last one.
        match self.0.back() {
            Some((last, _)) if last < key => Err(self.0.len()),
            Some((last, _)) if last == key => Ok(self.0.len() - 1),
            _ => self.0.binary_search_by(|(other, _)| other.cmp(key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u8),
        Remove(u8),
        RetainAbove(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let key = 0_u8..16;
        let step = prop_oneof![
            4 => key.clone().prop_map(Step::Insert),
            3 => key.clone().prop_map(Step::Remove),
            1 => key.prop_map(Step::RetainAbove),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn it_does_what_a_b_tree_map_does(steps in steps()) {
            let (mut map, mut reference) = (OperationMap::default(), BTreeMap::new());
            for (value, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert(key) => {
                        map.insert(key, value);
                        reference.insert(key, value);
                    }
                    Step::Remove(key) => prop_assert_eq!(map.remove(&key), reference.remove(&key)),
                    Step::RetainAbove(least) => {
                        map.retain(|key, _| *key > least);
                        reference.retain(|key, _| *key > least);
                    }
                }
                prop_assert!(map.iter().eq(reference.iter()));
                prop_assert!(map.keys().eq(reference.keys()));
                prop_assert_eq!(map.is_empty(), reference.is_empty());
                for key in 0..16 {
                    prop_assert_eq!(map.get(&key), reference.get(&key));
                }
            }
        }
    }
}
