//! What a collective call means to Pleach: which operation, on which bytes.
//!
//! In: the arguments of the call. Out: a plan, or the reason why the native MPI does the call. The reason is the same on all ranks,
//! because it follows only from what the standard requires to be the same on all of them: the operation and its order, count,
//! datatype and operator of reductions, the bytes of a broadcast, the root.

use pleach::Communicator;

use crate::abi::size_of_type;
use crate::collective_call::{CollectiveCall, FallbackReason, MpiCollective, RankAndSize};
use crate::datatypes::{ElementLayout, MpiReduction, slice};
use crate::mpi_job::MpiJob;
use crate::packing;

/// If the ranks of a host are not contiguous, a scan gathers the vectors of all ranks: at most so many bytes.
const MAX_GATHERED_BYTES: usize = 1 << 30;

/// What to do for a call.
#[derive(Clone, Copy)]
pub(crate) struct CallPlan {
    /// Elements of this rank's own vector.
    count: usize,
    /// Bytes of this rank's own vector: without padding in a broadcast, with padding in a reduction.
    pub(crate) bytes: usize,
    pub(crate) payload: CallPayload,
}

#[derive(Clone, Copy)]
pub(crate) enum CallPayload {
    Nothing,
    /// Contiguous bytes, or elements that the native MPI must pack.
    Bytes {
        is_contiguous: bool,
    },
    Elements(MpiReduction),
}

impl CallPlan {
    #[inline(always)]
    pub(crate) fn of(job: &MpiJob, call: &CollectiveCall) -> Result<Self, FallbackReason> {
        if call.collective == MpiCollective::Barrier {
            return Ok(Self { count: 0, bytes: 0, payload: CallPayload::Nothing });
        }
        let count = usize::try_from(call.count).map_err(|_| FallbackReason::Argument)?;
        let class = job.abi.class(job.mpi, call.datatype);
        if call.collective == MpiCollective::Broadcast {
            let (size, is_contiguous) = match class {
                Some(class) => (class.size(), class.is_contiguous()),
                None => (size_of_type(job.mpi, call.datatype).ok_or(FallbackReason::Type)?, false),
            };
            let bytes = count.checked_mul(size).ok_or(FallbackReason::TooLarge)?;
            return Ok(Self { count, bytes, payload: CallPayload::Bytes { is_contiguous } });
        }
        let operator = job.abi.operator(call.operator).ok_or(FallbackReason::Operator)?;
        let fold = MpiReduction::of(class.ok_or(FallbackReason::Type)?, operator).ok_or(FallbackReason::Type)?;
        let bytes = count.checked_mul(fold.stride()).ok_or(FallbackReason::TooLarge)?;
        Ok(Self { count, bytes, payload: CallPayload::Elements(fold) })
    }

    /// Rejects vectors that are too long, and arguments that the native MPI should report as wrong.
    #[inline]
    pub(crate) fn check(
        &self,
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
    ) -> Result<(), FallbackReason> {
        let total = self.bytes.checked_mul(position.size as usize).ok_or(FallbackReason::TooLarge)?;
        let fits = match call.collective {
            MpiCollective::ReduceScatter => total <= job.max_bytes,
            MpiCollective::Scan | MpiCollective::ExclusiveScan => {
                self.bytes <= job.max_bytes && total <= MAX_GATHERED_BYTES
            }
            _ => self.bytes <= job.max_bytes,
        };
        if !fits {
            return Err(FallbackReason::TooLarge);
        }
        let has_root = matches!(call.collective, MpiCollective::Broadcast | MpiCollective::Reduce);
        if has_root && !u32::try_from(call.root).is_ok_and(|root| root < position.size) {
            return Err(FallbackReason::Argument);
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let is_root = call.root as u32 == position.rank;
        let in_place = call.send == job.abi.in_place;
        let is_valid = match call.collective {
            MpiCollective::Barrier => true,
            MpiCollective::Broadcast => {
                call.receive != job.abi.in_place && (call.receive != 0 || !self.is_contiguous())
            }
            MpiCollective::Reduce if !is_root => call.send != 0 && !in_place,
            _ => {
                call.receive != 0
                    && call.receive != job.abi.in_place
                    && call.send != 0
                    && (in_place || !overlap(call.send, call.receive, self.bytes))
            }
        };
        if is_valid { Ok(()) } else { Err(FallbackReason::Argument) }
    }

    fn is_contiguous(&self) -> bool {
        matches!(self.payload, CallPayload::Bytes { is_contiguous: true })
    }

    /// True if the call overwrites its input before it is complete.
    pub(crate) fn overwrites_input(&self, job: &MpiJob, call: &CollectiveCall) -> bool {
        call.send == job.abi.in_place
            && matches!(call.collective, MpiCollective::Reduce | MpiCollective::AllReduce)
            && matches!(self.payload, CallPayload::Elements(MpiReduction { layout: ElementLayout::Plain, .. }))
    }
}

/// True if two vectors of `bytes` bytes overlap.
fn overlap(one: usize, other: usize, bytes: usize) -> bool {
    one.abs_diff(other) < bytes
}

/// The operation of Pleach that does a call.
pub(crate) enum OffloadedOperation {
    Barrier,
    Broadcast,
    Reduce(MpiReduction),
    AllReduce(MpiReduction),
    ReduceScatter(MpiReduction),
    Scan(MpiReduction),
    ExclusiveScan(MpiReduction),
}

impl OffloadedOperation {
    pub(crate) fn of(call: &CollectiveCall, plan: &CallPlan) -> Self {
        match (call.collective, plan.payload) {
            (MpiCollective::Reduce, CallPayload::Elements(fold)) => Self::Reduce(fold),
            (MpiCollective::AllReduce, CallPayload::Elements(fold)) => Self::AllReduce(fold),
            (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => Self::ReduceScatter(fold),
            (MpiCollective::Scan, CallPayload::Elements(fold)) => Self::Scan(fold),
            (MpiCollective::ExclusiveScan, CallPayload::Elements(fold)) => Self::ExclusiveScan(fold),
            (_, CallPayload::Bytes { .. }) => Self::Broadcast,
            _ => Self::Barrier,
        }
    }

    /// Starts the operation of a call.
    pub(crate) fn start(
        call: &CollectiveCall,
        plan: &CallPlan,
        communicator: &Communicator,
        bytes: Vec<u8>,
    ) -> Result<pleach::OwnedRequest, pleach::Error> {
        match Self::of(call, plan) {
            Self::Barrier => communicator.start_owned_barrier(),
            Self::Broadcast => communicator.start_owned_broadcast(bytes, call.root as u32),
            Self::Reduce(fold) => communicator.start_owned_reduce(bytes, fold.kind, call.root as u32),
            Self::AllReduce(fold) => communicator.start_owned_all_reduce(bytes, fold.kind),
            Self::ReduceScatter(fold) => communicator.start_owned_reduce_scatter(bytes, fold.kind),
            Self::Scan(fold) => communicator.start_owned_scan(bytes, fold.kind),
            Self::ExclusiveScan(fold) => communicator.start_owned_exclusive_scan(bytes, fold.kind),
        }
    }
}

/// This rank's input, in a buffer that later holds the result.
pub(crate) fn prepare(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
) -> Result<Vec<u8>, pleach::Error> {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let ranks = position.size as usize;
    // SAFETY: the user guarantees that many elements there.
    let load = |fold: MpiReduction, count: usize| unsafe { fold.load(from, count) };
    match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => Ok(Vec::new()),
        (_, CallPayload::Bytes { .. }) if call.root as u32 != position.rank => Ok(vec![0; plan.bytes]),
        (_, CallPayload::Bytes { is_contiguous: true }) => {
            // SAFETY: the user guarantees that many bytes there.
            Ok(unsafe { slice(call.receive as *const u8, plan.bytes) }.to_vec())
        }
        (_, CallPayload::Bytes { .. }) => packing::pack(job, call, plan.bytes),
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => Ok(load(fold, plan.count * ranks)),
        (_, CallPayload::Elements(fold)) => Ok(load(fold, plan.count)),
    }
}

/// Copies the result to the user's buffer.
pub(crate) fn finish(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
    bytes: &[u8],
) -> Result<(), pleach::Error> {
    if plan.bytes == 0 {
        return Ok(());
    }
    let to = call.receive as *mut u8;
    let is_root = call.root as u32 == position.rank;
    match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => {}
        (_, CallPayload::Bytes { .. }) if is_root => {}
        // SAFETY: the user guarantees room for that many bytes there.
        (_, CallPayload::Bytes { is_contiguous: true }) => unsafe {
            bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len())
        },
        (_, CallPayload::Bytes { .. }) => packing::unpack(job, call, bytes)?,
        (MpiCollective::Reduce, _) if !is_root => {}
        // The first rank has no predecessors: its buffer stays as it is.
        (MpiCollective::ExclusiveScan, _) if position.rank == 0 => {}
        // SAFETY: the user guarantees room for that many elements there.
        (_, CallPayload::Elements(fold)) => unsafe { fold.store(bytes, to) },
    }
    Ok(())
}

/// This rank's input in the format of the native MPI, for the replay log; false if it cannot be packed.
pub(crate) fn input_of(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
    into: &mut Vec<u8>,
) -> bool {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let (fold, count) = match (call.collective, plan.payload) {
        (_, CallPayload::Nothing) => return true,
        // The bytes of other ranks than the root do not matter.
        (MpiCollective::Broadcast, _) if call.root as u32 != position.rank => {
            into.resize(plan.bytes, 0);
            return true;
        }
        (_, CallPayload::Bytes { is_contiguous: true }) => {
            // SAFETY: the user guarantees that many bytes there.
            into.extend_from_slice(unsafe { slice(call.receive as *const u8, plan.bytes) });
            return true;
        }
        (_, CallPayload::Bytes { .. }) => {
            return prepare(job, call, plan, position).map(|bytes| *into = bytes).is_ok();
        }
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => (fold, plan.count * position.size as usize),
        (_, CallPayload::Elements(fold)) => (fold, plan.count),
    };
    // SAFETY: the user guarantees that many elements there.
    unsafe { fold.load_into(into, from, count) };
    true
}
