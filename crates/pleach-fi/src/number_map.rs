//! Maps by numbers that this process chose itself. They need no hash that resists an attacker, and messages are short.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers of this process.
pub(crate) type NumberMap<T> = HashMap<u64, T, BuildHasherDefault<NumberHasher>>;

/// Multiplies: consecutive numbers spread over the whole table.
#[derive(Clone, Copy, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(self.0 ^ u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_are_found_again() {
        let mut map = NumberMap::default();
        (0..10_000u64).for_each(|number| assert!(map.insert(number, number * 3).is_none()));
        assert!((0..10_000).all(|number| map.get(&number) == Some(&(number * 3))));
        assert!(map.remove(&5).is_some() && !map.contains_key(&5));
    }
}
