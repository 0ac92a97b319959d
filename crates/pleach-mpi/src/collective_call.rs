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
}

impl MpiCollective {
    /// True if no rank completes it before every rank has entered it.
    pub(crate) fn synchronizes(self) -> bool {
        match self {
            Self::Barrier | Self::AllReduce | Self::ReduceScatter => true,
            // The first rank of a scan needs nothing of the others.
            Self::Broadcast | Self::Reduce | Self::Scan | Self::ExclusiveScan => false,
        }
    }
}

/// The arguments of a collective call, as machine words. The buffer of a broadcast is `receive`.
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
}

impl FallbackReason {
    pub(crate) const ALL: [Self; 16] = [
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
        }
    }
}
