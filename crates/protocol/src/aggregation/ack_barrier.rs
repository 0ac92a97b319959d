//! When members must confirm that they have all multicasts (P-51).

/// Counts member multicasts and says when an acknowledgement barrier is due (P-51). A pure function of the sequence
/// of operations, so that all members agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckBarrierCounter {
    every: u32,
    since: u32,
}

impl AckBarrierCounter {
    /// The smallest window that allows multicasts.
    pub const MIN_WINDOW: u32 = 8;

    /// A counter for members with this window; none if it is too small for multicasts.
    pub const fn new(window: u32) -> Option<Self> {
        if window < Self::MIN_WINDOW {
            return None;
        }
        Some(Self { every: window / 2, since: 0 })
    }

    /// True if all members must contribute to the next operation.
    pub const fn is_due(&self) -> bool {
        self.since >= self.every
    }

    /// True if some multicasts are not acknowledged yet.
    pub const fn is_open(&self) -> bool {
        self.since > 0
    }

    /// A multicast operation starts.
    pub fn note_multicast(&mut self) {
        self.since += 1;
    }

    /// An operation to which all members contribute starts.
    pub fn note_contributions(&mut self) {
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_barrier_is_due_after_half_a_window() {
        assert_eq!(AckBarrierCounter::new(7), None);
        let mut counter = AckBarrierCounter::new(16).expect("the window allows multicasts");
        for _ in 0..8 {
            assert!(!counter.is_due());
            counter.note_multicast();
        }
        assert!(counter.is_due() && counter.is_open());
        counter.note_contributions();
        assert!(!counter.is_due() && !counter.is_open());
    }
}
