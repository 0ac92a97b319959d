//! Times that were measured when a communicator formed. They correct the estimates, which do not know the machine.
//!
//! In: the times of an allreduce of two lengths, among the hosts and through the aggregation nodes, agreed by all ranks. Out: an
//! estimate multiplied by what was measured for such a length, and divided by what was estimated for it.

/// The lengths of the measured allreduces in bytes.
pub const MEASURED_BYTES: [u32; 2] = [8, 4 << 10];
/// From this length on, the longer measurement is the better guide: packets have more data than headers.
const LONG_FROM_BYTES: u32 = 512;

/// The times of a method for the lengths [`MEASURED_BYTES`], as the slowest rank saw them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodTimes {
    /// In nanoseconds.
    pub ns: [u64; MEASURED_BYTES.len()],
}

/// The measured times of both methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeasuredTimes {
    /// Among the hosts, with the algorithm that the estimates favour.
    pub point_to_point: MethodTimes,
    /// Through the aggregation nodes.
    pub aggregation: MethodTimes,
}

/// Which of the measurements applies to a vector of so many bytes.
pub(super) fn nearest_measurement(bytes: u32) -> usize {
    usize::from(bytes >= LONG_FROM_BYTES)
}

/// A measured time and the estimate for the same operation.
#[derive(Clone, Copy)]
pub(super) struct EstimateCorrection {
    pub measured_ns: u64,
    pub estimate_ns: u64,
}

impl EstimateCorrection {
    /// An estimate for a similar operation, corrected.
    pub(super) fn apply(self, estimate_ns: u64) -> u64 {
        let corrected = u128::from(estimate_ns) * u128::from(self.measured_ns) / u128::from(self.estimate_ns.max(1));
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}
