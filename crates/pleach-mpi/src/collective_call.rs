//! The vocabulary of a collective call: its arguments, its outcome, and why a call falls back to the native MPI.

use std::ffi::c_int;

/// A collective operation of MPI.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MpiCollective {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    ReduceScatter,
    Scan,
    ExclusiveScan,
    /// `MPI_Reduce_scatter`: blocks of different lengths. `ReduceScatter` is `MPI_Reduce_scatter_block`.
    ReduceScatterV,
    AllGather,
    AllGatherV,
    Gather,
    Scatter,
    AllToAll,
}

impl MpiCollective {
    /// How many there are.
    pub(crate) const NUMBER: usize = Self::AllToAll as usize + 1;

    /// Those that copy blocks from rank to rank.
    pub(crate) const COPIES: [Self; 5] =
        [Self::AllGather, Self::AllGatherV, Self::Gather, Self::Scatter, Self::AllToAll];

    /// True if no rank completes it before every rank has entered it. Calls that move no bytes are not among these.
    pub(crate) fn synchronizes(self) -> bool {
        match self {
            Self::Barrier | Self::AllReduce | Self::ReduceScatter | Self::AllGather | Self::AllToAll => true,
            // The first rank of a scan needs nothing of the others.
            Self::Broadcast | Self::Reduce | Self::Scan | Self::ExclusiveScan | Self::Gather | Self::Scatter => false,
            // Nobody needs a rank whose block is empty.
            Self::AllGatherV | Self::ReduceScatterV => false,
        }
    }

    /// True if it copies blocks from rank to rank: send side and receive side have a count and a type each.
    #[inline]
    pub(crate) fn copies_blocks(self) -> bool {
        matches!(self, Self::AllGather | Self::AllGatherV | Self::Gather | Self::Scatter | Self::AllToAll)
    }

    /// True if there is a count for each rank.
    #[inline]
    pub(crate) fn has_counts(self) -> bool {
        matches!(self, Self::AllGatherV | Self::ReduceScatterV)
    }

    /// True if one rank has another part than all others.
    #[inline]
    pub(crate) fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }
}

/// The arguments of a collective call, as machine words. The buffer of a broadcast is `receive`. Count and datatype are those of the
/// send side, if there are two.
#[derive(Clone, Copy)]
pub(crate) struct CollectiveCall {
    pub(crate) collective: MpiCollective,
    pub(crate) send: usize,
    pub(crate) receive: usize,
    pub(crate) count: i64,
    pub(crate) datatype: usize,
    pub(crate) operator: usize,
    pub(crate) root: i32,
    pub(crate) communicator: usize,
    pub(crate) receive_count: i64,
    pub(crate) receive_datatype: usize,
    pub(crate) counts: CountArrays,
}

impl CollectiveCall {
    /// A call without arguments.
    #[inline(always)]
    pub(crate) fn of(collective: MpiCollective, communicator: usize) -> Self {
        let (send, receive, count, datatype, operator, root) = (0, 0, 0, 0, 0, 0);
        let (receive_count, receive_datatype, counts) = (0, 0, CountArrays::NONE);
        Self {
            collective,
            send,
            receive,
            count,
            datatype,
            operator,
            root,
            communicator,
            receive_count,
            receive_datatype,
            counts,
        }
    }
}

/// Counts of all ranks in the user's memory, and the displacements of their blocks in the receive buffer; zeroes without them.
#[derive(Clone, Copy)]
pub(crate) struct CountArrays {
    pub(crate) counts: usize,
    pub(crate) displacements: usize,
    pub(crate) width: CountWidth,
}

/// The type of counts and displacements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountWidth {
    /// `int`.
    Plain,
    /// `MPI_Count` and `MPI_Aint`, both of 64 bits.
    Large,
}

impl CountArrays {
    pub(crate) const NONE: Self = Self { counts: 0, displacements: 0, width: CountWidth::Plain };

    /// The count of a rank.
    ///
    /// # Safety
    /// There is a count for this rank.
    pub(crate) unsafe fn count(&self, rank: usize) -> i64 {
        // SAFETY: the caller guarantees it.
        unsafe { self.number(self.counts, rank) }
    }

    /// The displacement of a rank's block, in elements.
    ///
    /// # Safety
    /// There is a displacement for this rank.
    pub(crate) unsafe fn displacement(&self, rank: usize) -> i64 {
        // SAFETY: the caller guarantees it.
        unsafe { self.number(self.displacements, rank) }
    }

    /// # Safety
    /// An array of numbers of this width is at the address, with more than `index` of them.
    unsafe fn number(&self, address: usize, index: usize) -> i64 {
        // SAFETY: the caller guarantees it.
        unsafe {
            match self.width {
                CountWidth::Plain => i64::from(*(address as *const i32).add(index)),
                CountWidth::Large => *(address as *const i64).add(index),
            }
        }
    }
}

/// Copies of the arrays of a non-blocking call. The standard lets a program change them only after the call is complete, but MPIs read them
/// at its start, and programs get away with changing them then.
pub(crate) struct OwnedCounts {
    counts: Vec<u64>,
    displacements: Vec<u64>,
    width: CountWidth,
}

impl OwnedCounts {
    /// # Safety
    /// There are numbers for so many ranks in each of the arrays that exist.
    pub(crate) unsafe fn of(arrays: &CountArrays, ranks: usize) -> Self {
        let bytes = match arrays.width {
            CountWidth::Plain => ranks * size_of::<i32>(),
            CountWidth::Large => ranks * size_of::<i64>(),
        };
        let copy = |address: usize| {
            let mut words = vec![0_u64; if address == 0 { 0 } else { bytes.div_ceil(size_of::<u64>()) }];
            if address != 0 {
                // SAFETY: the caller guarantees the numbers, and the words have room for them.
                unsafe { (address as *const u8).copy_to_nonoverlapping(words.as_mut_ptr().cast(), bytes) };
            }
            words
        };
        Self { counts: copy(arrays.counts), displacements: copy(arrays.displacements), width: arrays.width }
    }

    /// Where they are, as long as they exist.
    pub(crate) fn arrays(&self) -> CountArrays {
        let (counts, displacements) = (self.counts.as_ptr() as usize, self.displacements.as_ptr() as usize);
        CountArrays { counts, displacements, width: self.width }
    }
}

/// This rank and the size of its communicator.
#[derive(Clone, Copy)]
pub(crate) struct RankAndSize {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// What completed a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedBy {
    Pleach,
    /// The native MPI, for this reason.
    Native(FallbackReason),
}

/// The status of a call, and the bytes of this rank's vector.
pub(crate) struct CallOutcome {
    pub(crate) status: c_int,
    pub(crate) bytes: usize,
    pub(crate) served_by: ServedBy,
}

/// Why the native MPI does a call. The same on all ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FallbackReason {
    Off,
    Argument,
    Type,
    Operator,
    TooLarge,
    Intercommunicator,
    OneRank,
    OtherWorld,
    NotFormed,
    Failed,
    NotYetFormed,
    NoProgress,
    Disabled,
    Chosen,
    Tried,
    Slower,
    BlocksBetweenHosts,
}

impl FallbackReason {
    pub(crate) const ALL: [Self; 17] = [
        Self::Off,
        Self::Argument,
        Self::Type,
        Self::Operator,
        Self::TooLarge,
        Self::Intercommunicator,
        Self::OneRank,
        Self::OtherWorld,
        Self::NotFormed,
        Self::Failed,
        Self::NotYetFormed,
        Self::NoProgress,
        Self::Disabled,
        Self::Chosen,
        Self::Tried,
        Self::Slower,
        Self::BlocksBetweenHosts,
    ];

    /// For the report.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Off => "Pleach is off",
            Self::Argument => "invalid argument",
            Self::Type => "unsupported datatype",
            Self::Operator => "user-defined operator",
            Self::TooLarge => "vector too long",
            Self::Intercommunicator => "intercommunicator",
            Self::OneRank => "one rank",
            Self::OtherWorld => "ranks of another job",
            Self::NotFormed => "communicator could not be formed",
            Self::Failed => "Pleach failed before",
            Self::NotYetFormed => "no blocking call before",
            Self::NoProgress => "no way to complete requests with this MPI",
            Self::Disabled => "PLEACH_MPI=blocking",
            Self::Chosen => "PLEACH_MPI_CHOICE=mpi",
            Self::Tried => "tried both ways",
            Self::Slower => "Pleach is slower",
            Self::BlocksBetweenHosts => "blocks between hosts",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_in_their_width() {
        let (plain, large) = ([3_i32, -1], [1_i64 << 40, 7]);
        let arrays = |counts, displacements, width| CountArrays { counts, displacements, width };
        let of_plain = arrays(plain.as_ptr() as usize, plain.as_ptr() as usize, CountWidth::Plain);
        let of_large = arrays(large.as_ptr() as usize, large.as_ptr() as usize, CountWidth::Large);
        // SAFETY: both arrays have two numbers.
        unsafe {
            assert_eq!((of_plain.count(0), of_plain.displacement(1)), (3, -1));
            assert_eq!((of_large.count(0), of_large.displacement(1)), (1 << 40, 7));
        }
    }

    #[test]
    fn copied_counts_outlive_the_arrays_of_the_user() {
        let (mut plain, large) = (vec![3_i32, -1, 5], [1_i64 << 40, 7, 9]);
        let arrays = |counts, displacements, width| CountArrays { counts, displacements, width };
        // SAFETY: the arrays have three numbers each.
        let (of_plain, of_large) = unsafe {
            let of_plain = arrays(plain.as_ptr() as usize, 0, CountWidth::Plain);
            let of_large = arrays(large.as_ptr() as usize, large.as_ptr() as usize, CountWidth::Large);
            (OwnedCounts::of(&of_plain, 3), OwnedCounts::of(&of_large, 3))
        };
        plain.fill(0);
        // SAFETY: as above.
        unsafe {
            assert_eq!([0, 1, 2].map(|rank| of_plain.arrays().count(rank)), [3, -1, 5]);
            assert_eq!((of_large.arrays().count(0), of_large.arrays().displacement(2)), (1 << 40, 9));
        }
        assert!(of_plain.displacements.is_empty());
    }
}
