//! How often frames of a short operation are sent, from the errors that the peer reports (P-126).
//!
//! In: packets sent, NAKs received. Out: a number of copies. It rises at once when errors are frequent, and falls only when they have been rare for
//! thousands of packets, so that it does not change back and forth. The peer needs to know nothing.

/// Packets after which old ones count half.
const MEMORY_PACKETS: u32 = 8192;
/// Two copies from one error in so many packets on, and until there is less than one in so many.
const SECOND_COPY: ErrorRates = ErrorRates { from: 2_000, until: 8_000 };
/// The same for three.
const THIRD_COPY: ErrorRates = ErrorRates { from: 32, until: 64 };
/// Errors are counted in parts, so that old ones can count half, and half of that.
const ERROR: u32 = 16;
/// A single error is an accident.
const LEAST_ERRORS: u32 = 2 * ERROR;
/// Copies are sent while fewer frames are unacknowledged: more belong to a long operation, whose bytes take longer than a repair.
pub(super) const SHORT_OPERATION_FRAMES: usize = 4;

/// One error in so many packets.
struct ErrorRates {
    from: u32,
    until: u32,
}

/// The errors of one direction of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LinkErrors {
    packets: u32,
    /// In parts of [`ERROR`].
    errors: u32,
    copies: u8,
}

impl Default for LinkErrors {
    fn default() -> Self {
        Self { packets: 0, errors: 0, copies: 1 }
    }
}

impl LinkErrors {
    /// How often a frame should be sent.
    pub(super) fn copies(&self) -> u8 {
        self.copies
    }

    /// So many packets were sent.
    pub(super) fn note_sent(&mut self, packets: u8) {
        self.packets += u32::from(packets);
        if self.packets >= MEMORY_PACKETS {
            (self.packets, self.errors) = (self.packets / 2, self.errors / 2);
            self.choose();
        }
    }

    /// The peer reports an error.
    pub(super) fn note_error(&mut self) {
        self.errors = self.errors.saturating_add(ERROR);
        self.choose();
    }

    fn choose(&mut self) {
        let is_worse_than =
            |one_in: u32| u64::from(self.errors) * u64::from(one_in) >= u64::from(self.packets) * u64::from(ERROR);
        let wanted = |range: &ErrorRates, has_it: bool| {
            let (one_in, least) = if has_it { (range.until, 1) } else { (range.from, LEAST_ERRORS) };
            self.errors >= least && is_worse_than(one_in)
        };
        self.copies = if wanted(&THIRD_COPY, self.copies >= 3) {
            3
        } else if wanted(&SECOND_COPY, self.copies >= 2) {
            2
        } else {
            1
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends frames, of whose packets one in so many is damaged.
    fn after(errors: &mut LinkErrors, frames: u32, one_in: u32) -> u8 {
        let mut packets = 0_u32;
        for _ in 0..frames {
            for _ in 0..errors.copies() {
                packets += 1;
                if one_in > 0 && packets.is_multiple_of(one_in) {
                    errors.note_error();
                }
            }
            errors.note_sent(errors.copies());
        }
        errors.copies()
    }

    #[test]
    fn copies_follow_the_rate_of_errors_in_both_directions() {
        let mut errors = LinkErrors::default();
        assert_eq!(after(&mut errors, 100_000, 0), 1, "a good link");
        assert_eq!(after(&mut errors, 100_000, 20_000), 1, "one error in 20,000 packets");
        assert_eq!(after(&mut errors, 10_000, 1_000), 2, "one in 1,000");
        assert_eq!(after(&mut errors, 20_000, 4_000), 2, "one in 4,000: it does not go back and forth");
        assert_eq!(after(&mut errors, 10_000, 20), 3, "one in 20");
        assert_eq!(after(&mut errors, 60_000, 1_000), 2, "one in 1,000 again");
        assert_eq!(after(&mut errors, 60_000, 0), 1, "the link is good again");
    }

    #[test]
    fn one_error_is_an_accident() {
        let mut errors = LinkErrors::default();
        errors.note_sent(1);
        errors.note_error();
        assert_eq!(errors.copies(), 1);
        errors.note_error();
        assert!(errors.copies() > 1, "two in a row are none");
    }
}
