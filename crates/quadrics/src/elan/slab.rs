//! Things with numbers: a number is given again once its thing is gone.

#[derive(Debug)]
pub(super) struct Slab<T> {
    things: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { things: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, thing: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.things[number as usize] = Some(thing);
                number
            }
            None => {
                self.things.push(Some(thing));
                self.things.len() as u32 - 1
            }
        }
    }

    pub(super) fn get(&self, number: u32) -> &T {
        self.things[number as usize].as_ref().expect("a number in use")
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut T {
        self.things[number as usize].as_mut().expect("a number in use")
    }

    pub(super) fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        self.things[number as usize].take().expect("a number in use")
    }
}
