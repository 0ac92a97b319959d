//! Values in numbered places; a freed place is used again.
//!
//! Places are handed out in an order that depends on the calls alone, so numbers can go into a run's trace.

use std::ops::{Index, IndexMut};

/// See the module.
pub struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Stores a value; the number of its place.
    pub fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = Some(value);
                number
            }
            None => {
                self.places.push(Some(value));
                self.places.len() as u32 - 1
            }
        }
    }

    /// Takes a value out and frees its place; none if the place is free already.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// The value in a place.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    /// The value in a place.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// All values, in the order of their places.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }

    /// The places in use.
    pub fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.iter().enumerate().filter(|(_, value)| value.is_some()).map(|(place, _)| place as u32)
    }

    /// How many values are stored.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether no value is stored.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The value in a place.
///
/// # Panics
/// If the place is free.
impl<T> Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, number: u32) -> &T {
        self.get(number).expect("the number is in use")
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.get_mut(number).expect("the number is in use")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_place_is_used_again() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((a, b, slab.len()), (0, 1, 2));
        assert_eq!((slab.remove(a), slab.remove(a), slab.len()), (Some('a'), None, 1));
        assert_eq!((slab.insert('c'), slab.get(0).copied(), slab.get_mut(1).copied()), (0, Some('c'), Some('b')));
    }
}
