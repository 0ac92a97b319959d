//! A pool that reuses payload allocations: most messages are as long as the previous one, and an allocation costs
//! more than filling it.

use std::sync::Arc;

use crate::PayloadBytes;

/// Buffers that no payload uses any more serve later payloads of the same length.
#[derive(Debug)]
pub struct BufferPool {
    buffers: Vec<Arc<[u8]>>,
    capacity: usize,
    /// The buffer to try first.
    next: usize,
}

/// How many buffers to try. Buffers in use are adjacent.
const PROBES: usize = 2;

impl BufferPool {
    /// An empty pool for at most so many buffers. It is useless if more are in use at a time.
    pub fn new(capacity: usize) -> Self {
        Self { buffers: Vec::new(), capacity: capacity.max(1), next: 0 }
    }

    /// A copy of these bytes.
    #[inline]
    pub fn copy(&mut self, bytes: &[u8]) -> PayloadBytes {
        PayloadBytes::inline(bytes).unwrap_or_else(|| PayloadBytes::shared(self.shared_copy(bytes)))
    }

    fn shared_copy(&mut self, bytes: &[u8]) -> Arc<[u8]> {
        for _ in 0..PROBES {
            let free = self.buffers.get_mut(self.next).and_then(Arc::get_mut);
            if let Some(buffer) = free.filter(|buffer| buffer.len() == bytes.len()) {
                buffer.copy_from_slice(bytes);
                return self.buffers[self.next].clone();
            }
            self.next = (self.next + 1) % self.capacity;
        }
        let new: Arc<[u8]> = bytes.into();
        match self.buffers.get_mut(self.next) {
            Some(buffer) => *buffer = new.clone(),
            None => {
                self.next = self.buffers.len();
                self.buffers.push(new.clone());
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, VecDeque};

    use super::*;

    #[test]
    fn a_pool_never_reuses_a_buffer_in_use() {
        let mut pool = BufferPool::new(64);
        let mut in_use: VecDeque<(PayloadBytes, Vec<u8>)> = VecDeque::new();
        for turn in 0..5_000_usize {
            // Both the lengths and the number of buffers in use change from time to time.
            let bytes = vec![turn as u8; [100, 40, 8][turn / 700 % 3]];
            in_use.push_back((pool.copy(&bytes), bytes));
            while in_use.len() > turn / 300 % 4 * 40 {
                in_use.pop_front();
            }
            assert!(in_use.iter().all(|(found, bytes)| **found == **bytes));
        }
        assert!(pool.buffers.len() <= 64);
    }

    #[test]
    fn a_pool_reuses_free_buffers() {
        let mut pool = BufferPool::new(64);
        let first = pool.copy(&[1; 100]).as_ptr();
        assert!((0..100).all(|byte| pool.copy(&[byte; 100]).as_ptr() == first));
        // It allocates as many as are in use at once, and no more.
        for turn in 0..100 {
            let taken: Vec<PayloadBytes> = (0..20).map(|child| pool.copy(&[turn ^ child; 100])).collect();
            assert!(taken.iter().zip(0..).all(|(found, child)| **found == [turn ^ child; 100]));
        }
        assert!(pool.buffers.len() <= 64);
        let buffers: Vec<*const u8> = pool.buffers.iter().map(|buffer| buffer.as_ptr()).collect();
        let again: Vec<PayloadBytes> = (0..20).map(|_| pool.copy(&[0; 100])).collect();
        assert!(again.iter().all(|bytes| buffers.contains(&bytes.as_ptr())), "nothing was allocated");
    }

    #[test]
    fn a_queue_that_fits_the_pool_allocates_nothing() {
        let mut pool = BufferPool::new(22);
        let mut queue: VecDeque<PayloadBytes> = (0..20).map(|byte| pool.copy(&[byte; 100])).collect();
        let mut buffers = BTreeSet::new();
        for turn in 0..100 {
            queue.push_back(pool.copy(&[turn; 100]));
            buffers.insert(queue[20].as_ptr());
            queue.pop_front();
        }
        assert!(buffers.len() <= 22, "{}", buffers.len());
    }
}
