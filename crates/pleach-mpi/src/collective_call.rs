//! One collective call of the user's, in whichever of its many spellings it came.
//!
//! In: the arguments. Out: either the call is done by Pleach, or a reason why the MPI does it. The reason is the same on all ranks,
//! because it follows from what the standard wants to be the same on all of them: the verb and its order, count, datatype and operator
//! of reductions, the bytes of a broadcast, the root.

use std::ffi::c_int;

use pleach::Communicator;

use crate::abi::size_of_type;
use crate::call_statistics::FallbackReason;
use crate::communicator_table::{self, OffloadedCommunicator};
use crate::datatypes::{ElementLayout, MpiReduction, slice};
use crate::mpi_job::{MpiJob, job};
use crate::native_mpi::{MpiFunction, NativeMpi, invoke};
use crate::packing;
use crate::progress;
use crate::recovery;

/// What the ranks do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
    /// True if nobody is through with it before everybody has come.
    pub(crate) fn joins_all(self) -> bool {
        match self {
            Self::Barrier | Self::AllReduce | Self::ReduceScatter | Self::Scan | Self::ExclusiveScan => true,
            Self::Broadcast | Self::Reduce => false,
        }
    }
}

/// The arguments of a collective call, as words; a broadcast's buffer is `receive`.
#[derive(Clone, Copy)]
pub(crate) struct CollectiveCall {
    pub(crate) verb: MpiCollective,
    pub(crate) send: usize,
    pub(crate) receive: usize,
    pub(crate) count: i64,
    pub(crate) datatype: usize,
    pub(crate) operator: usize,
    pub(crate) root: i32,
    pub(crate) communicator: usize,
}

/// Where this rank stands in its communicator.
#[derive(Clone, Copy)]
pub(crate) struct RankAndSize {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// Who did a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedBy {
    Pleach,
    /// After Pleach had failed.
    Mpi,
}

/// How a call ended, and how many bytes this rank's vector had.
pub(crate) struct CallOutcome {
    pub(crate) status: c_int,
    pub(crate) bytes: usize,
    pub(crate) by: ServedBy,
}

/// A scan is a gathering of what all ranks have: so many bytes of it at most.
const LARGEST_SCAN_BYTES: usize = 64 << 10;
/// A reduce-scatter gives everyone everything first: so many bytes at most.
const LARGEST_SCATTER_BYTES: usize = 1 << 20;

/// What a call means to Pleach.
#[derive(Clone, Copy)]
pub(crate) struct CallPlan {
    /// Elements of this rank's own vector.
    count: usize,
    /// Bytes of this rank's own vector: without gaps in a broadcast, with gaps in a reduction.
    pub(crate) bytes: usize,
    what: CallPayload,
}

#[derive(Clone, Copy)]
enum CallPayload {
    Nothing,
    /// Bytes as they lie, or elements that must be packed.
    Bytes {
        is_dense: bool,
    },
    Elements(MpiReduction),
}

impl CallPlan {
    #[inline(always)]
    pub(crate) fn of(job: &MpiJob, call: &CollectiveCall) -> Result<Self, FallbackReason> {
        if call.verb == MpiCollective::Barrier {
            return Ok(Self { count: 0, bytes: 0, what: CallPayload::Nothing });
        }
        let count = usize::try_from(call.count).map_err(|_| FallbackReason::Argument)?;
        let class = job.abi.class(job.mpi, call.datatype);
        if call.verb == MpiCollective::Broadcast {
            let (size, is_dense) = match class {
                Some(class) => (class.size(), class.is_dense()),
                None => (size_of_type(job.mpi, call.datatype).ok_or(FallbackReason::Type)?, false),
            };
            let bytes = count.checked_mul(size).ok_or(FallbackReason::Large)?;
            return Ok(Self { count, bytes, what: CallPayload::Bytes { is_dense } });
        }
        let operator = job.abi.operator(call.operator).ok_or(FallbackReason::Operator)?;
        let fold = MpiReduction::of(class.ok_or(FallbackReason::Type)?, operator).ok_or(FallbackReason::Type)?;
        let bytes = count.checked_mul(fold.stride()).ok_or(FallbackReason::Large)?;
        Ok(Self { count, bytes, what: CallPayload::Elements(fold) })
    }

    /// Refuses what is too large, and what the MPI should complain about.
    #[inline]
    pub(crate) fn check(
        &self,
        job: &MpiJob,
        call: &CollectiveCall,
        position: RankAndSize,
    ) -> Result<(), FallbackReason> {
        let of_all = self.bytes.checked_mul(position.size as usize).ok_or(FallbackReason::Large)?;
        let fits = match call.verb {
            MpiCollective::Scan | MpiCollective::ExclusiveScan => of_all <= LARGEST_SCAN_BYTES.min(job.largest),
            MpiCollective::ReduceScatter => of_all <= LARGEST_SCATTER_BYTES.min(job.largest),
            _ => self.bytes <= job.largest,
        };
        if !fits {
            return Err(FallbackReason::Large);
        }
        let has_root = matches!(call.verb, MpiCollective::Broadcast | MpiCollective::Reduce);
        if has_root && !u32::try_from(call.root).is_ok_and(|root| root < position.size) {
            return Err(FallbackReason::Argument);
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let is_root = call.root as u32 == position.rank;
        let in_place = call.send == job.abi.in_place;
        let is_sound = match call.verb {
            MpiCollective::Barrier => true,
            MpiCollective::Broadcast => call.receive != job.abi.in_place && (call.receive != 0 || !self.is_dense()),
            MpiCollective::Reduce if !is_root => call.send != 0 && !in_place,
            _ => {
                call.receive != 0
                    && call.receive != job.abi.in_place
                    && call.send != 0
                    && (in_place || !overlap(call.send, call.receive, self.bytes))
            }
        };
        if is_sound { Ok(()) } else { Err(FallbackReason::Argument) }
    }

    fn is_dense(&self) -> bool {
        matches!(self.what, CallPayload::Bytes { is_dense: true })
    }

    /// True if a call overwrites its input while it is under way.
    pub(crate) fn overwrites_input(&self, job: &MpiJob, call: &CollectiveCall) -> bool {
        call.send == job.abi.in_place
            && matches!(call.verb, MpiCollective::Reduce | MpiCollective::AllReduce)
            && matches!(self.what, CallPayload::Elements(MpiReduction { form: ElementLayout::Plain, .. }))
    }
}

/// Two vectors of so many bytes share some.
fn overlap(one: usize, other: usize, bytes: usize) -> bool {
    one.abs_diff(other) < bytes
}

/// Does a call, and waits for its end.
#[inline]
pub(crate) fn run(call: &CollectiveCall) -> Result<CallOutcome, FallbackReason> {
    let job = job().ok_or(FallbackReason::Off)?;
    let plan = CallPlan::of(job, call)?;
    let member = communicator_table::member_or_form(job, call.communicator)?;
    plan.check(job, call, member.position)?;
    let bytes = plan.bytes;
    // What seldom happens gets copies, so that the plan itself can stay in registers.
    let copy = || plan;
    if bytes == 0 && call.verb != MpiCollective::Barrier {
        return Ok(CallOutcome { status: 0, bytes, by: ServedBy::Pleach }); // Nobody has anything to say, and nobody must wait.
    }
    if member.has_failed() {
        return Ok(CallOutcome { status: recovery::pass(job, call, member), bytes, by: ServedBy::Mpi });
    }
    member.keep(call, bytes, |into| input_of(job, call, &copy(), member.position, into));
    match run_on(job, call, plan, member) {
        Ok(()) => {
            member.complete();
            Ok(CallOutcome { status: 0, bytes, by: ServedBy::Pleach })
        }
        Err(error) => Ok(CallOutcome {
            status: recovery::recover(job, call, &copy(), member, &error),
            bytes,
            by: ServedBy::Mpi,
        }),
    }
}

#[inline(always)]
fn run_on(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: CallPlan,
    member: &OffloadedCommunicator,
) -> Result<(), pleach::Error> {
    let OffloadedCommunicator { communicator, position, .. } = member;
    let (send, receive) = (call.send as *const u8, call.receive as *mut u8);
    let in_place = call.send == job.abi.in_place;
    // SAFETY: the user has so many bytes there, and input and result do not overlap: `CallPlan::check` looked.
    let input = || unsafe { slice(send, plan.bytes) };
    // SAFETY: as above.
    let output = || unsafe { std::slice::from_raw_parts_mut(receive, plan.bytes) };
    match (call.verb, plan.what) {
        (MpiCollective::Barrier, _) => communicator.barrier().inspect(|()| progress::after_barrier()),
        (MpiCollective::Broadcast, CallPayload::Bytes { is_dense: true }) => {
            communicator.broadcast(output(), call.root as u32)
        }
        (MpiCollective::AllReduce, CallPayload::Elements(MpiReduction { kind, form: ElementLayout::Plain })) => {
            if in_place {
                communicator.all_reduce_bytes(output(), kind)
            } else {
                communicator.all_reduce_apart(input(), output(), kind)
            }
        }
        (MpiCollective::Reduce, CallPayload::Elements(MpiReduction { kind, form: ElementLayout::Plain })) => {
            if call.root as u32 != position.rank {
                communicator.give_to_reduce(input(), kind, call.root as u32)
            } else if in_place {
                communicator.reduce_bytes(output(), kind, position.rank)
            } else {
                communicator.reduce_apart(input(), output(), kind)
            }
        }
        _ => run_prepared(job, call, plan, member),
    }
}

/// A call whose bytes do not lie as Pleach wants them.
#[inline(never)]
fn run_prepared(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: CallPlan,
    member: &OffloadedCommunicator,
) -> Result<(), pleach::Error> {
    let OffloadedCommunicator { communicator, position, .. } = member;
    let mut bytes = prepare(job, call, &plan, *position)?;
    match OffloadedOperation::of(call, &plan) {
        OffloadedOperation::Barrier => communicator.barrier()?,
        OffloadedOperation::Broadcast => communicator.broadcast(&mut bytes, call.root as u32)?,
        OffloadedOperation::Reduce(fold) => communicator.reduce_bytes(&mut bytes, fold.kind, call.root as u32)?,
        OffloadedOperation::AllReduce(fold) => communicator.all_reduce_bytes(&mut bytes, fold.kind)?,
        OffloadedOperation::Gather => communicator.all_reduce(&mut bytes, pleach::Operator::Or)?,
    }
    finish(job, call, &plan, *position, &bytes)
}

/// What Pleach does for a call.
pub(crate) enum OffloadedOperation {
    Barrier,
    Broadcast,
    Reduce(MpiReduction),
    AllReduce(MpiReduction),
    /// Everyone's vectors side by side: each rank brings its own and zeroes.
    Gather,
}

impl OffloadedOperation {
    fn of(call: &CollectiveCall, plan: &CallPlan) -> Self {
        match (call.verb, plan.what) {
            (MpiCollective::Reduce, CallPayload::Elements(fold)) => Self::Reduce(fold),
            (MpiCollective::AllReduce | MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => {
                Self::AllReduce(fold)
            }
            (MpiCollective::Scan | MpiCollective::ExclusiveScan, CallPayload::Elements(_)) => Self::Gather,
            (_, CallPayload::Bytes { .. }) => Self::Broadcast,
            _ => Self::Barrier,
        }
    }

    /// Starts it.
    pub(crate) fn launch(
        call: &CollectiveCall,
        plan: &CallPlan,
        communicator: &Communicator,
        bytes: Vec<u8>,
    ) -> Result<pleach::OwnedRequest, pleach::Error> {
        match Self::of(call, plan) {
            Self::Barrier => communicator.launch_barrier(),
            Self::Broadcast => communicator.launch_broadcast(bytes, call.root as u32),
            Self::Reduce(fold) => communicator.launch_reduce(bytes, fold.kind, call.root as u32),
            Self::AllReduce(fold) => communicator.launch_all_reduce(bytes, fold.kind),
            Self::Gather => {
                let kind = pleach::ReductionKind::new(pleach::ElementType::U8, pleach::Operator::Or)
                    .expect("bytes have bits");
                communicator.launch_all_reduce(bytes, kind)
            }
        }
    }
}

/// What this rank brings, in a buffer of its own that holds the result later.
pub(crate) fn prepare(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    position: RankAndSize,
) -> Result<Vec<u8>, pleach::Error> {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let everyone = position.size as usize;
    // SAFETY: the user has so many elements there.
    let load = |fold: MpiReduction, count: usize| unsafe { fold.load(from, count) };
    match (call.verb, plan.what) {
        (_, CallPayload::Nothing) => Ok(Vec::new()),
        (_, CallPayload::Bytes { .. }) if call.root as u32 != position.rank => Ok(vec![0; plan.bytes]),
        // SAFETY: the user has so many bytes there.
        (_, CallPayload::Bytes { is_dense: true }) => {
            Ok(unsafe { slice(call.receive as *const u8, plan.bytes) }.to_vec())
        }
        (_, CallPayload::Bytes { .. }) => packing::pack(job, call, plan.bytes),
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => Ok(load(fold, plan.count * everyone)),
        (MpiCollective::Scan | MpiCollective::ExclusiveScan, CallPayload::Elements(fold)) => {
            let mut all = vec![0; plan.bytes * everyone];
            all[position.rank as usize * plan.bytes..][..plan.bytes].copy_from_slice(&load(fold, plan.count));
            Ok(all)
        }
        (_, CallPayload::Elements(fold)) => Ok(load(fold, plan.count)),
    }
}

/// Puts the result where the user wants it.
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
    let own = || &bytes[position.rank as usize * plan.bytes..][..plan.bytes];
    match (call.verb, plan.what) {
        (_, CallPayload::Nothing) => {}
        (_, CallPayload::Bytes { .. }) if is_root => {}
        // SAFETY: the user has room for so many bytes there.
        (_, CallPayload::Bytes { is_dense: true }) => unsafe {
            bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len())
        },
        (_, CallPayload::Bytes { .. }) => packing::unpack(job, call, bytes)?,
        (MpiCollective::Reduce, _) if !is_root => {}
        // SAFETY: the user has room for so many elements there.
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => unsafe { fold.store(own(), to) },
        (MpiCollective::Scan | MpiCollective::ExclusiveScan, CallPayload::Elements(fold)) => {
            let ranks = position.rank as usize + usize::from(call.verb == MpiCollective::Scan);
            if ranks > 0 {
                let vectors = bytes.chunks_exact(plan.bytes).take(ranks);
                let folded = fold.kind.fold_all(vectors).expect("whole elements, and at least one vector");
                // SAFETY: as above.
                unsafe { fold.store(&folded, to) };
            }
        }
        // SAFETY: as above.
        (_, CallPayload::Elements(fold)) => unsafe { fold.store(bytes, to) },
    }
    Ok(())
}

/// This rank's input as the MPI would take it, for the case that a call must be repeated; false if it cannot be had.
fn input_of(job: &MpiJob, call: &CollectiveCall, plan: &CallPlan, position: RankAndSize, into: &mut Vec<u8>) -> bool {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let (fold, count) = match (call.verb, plan.what) {
        (_, CallPayload::Nothing) => return true,
        (_, CallPayload::Bytes { .. }) => {
            return prepare(job, call, plan, position).map(|bytes| *into = bytes).is_ok();
        }
        (MpiCollective::ReduceScatter, CallPayload::Elements(fold)) => (fold, plan.count * position.size as usize),
        (_, CallPayload::Elements(fold)) => (fold, plan.count),
    };
    // SAFETY: the user has so many elements there.
    unsafe { fold.load_into(into, from, count) };
    true
}

/// Starts a call on the MPI's own.
///
/// # Safety
/// The arguments are those of the user, or as good, and stay so until the request is complete.
pub(crate) unsafe fn start_on_mpi(mpi: &NativeMpi, call: &CollectiveCall, request: &mut usize) -> c_int {
    let CollectiveCall { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = match call.verb {
        MpiCollective::Barrier => real.Ibarrier,
        MpiCollective::Broadcast => real.Ibcast,
        MpiCollective::Reduce => real.Ireduce,
        MpiCollective::AllReduce => real.Iallreduce,
        MpiCollective::ReduceScatter => real.Ireduce_scatter_block,
        MpiCollective::Scan => real.Iscan,
        MpiCollective::ExclusiveScan => real.Iexscan,
    };
    let function = function.expect("every MPI has the non-blocking forms");
    let request = &raw mut *request;
    // SAFETY: so the caller says.
    unsafe {
        match call.verb {
            MpiCollective::Barrier => invoke!(function; communicator, request),
            MpiCollective::Broadcast => invoke!(function; receive, count, datatype, root, communicator, request),
            MpiCollective::Reduce => {
                invoke!(function; send, receive, count, datatype, operator, root, communicator, request)
            }
            _ => invoke!(function; send, receive, count, datatype, operator, communicator, request),
        }
    }
}

/// Does a call on the MPI's own.
///
/// # Safety
/// The arguments are those of the user, or as good.
pub(crate) unsafe fn run_on_mpi(mpi: &NativeMpi, call: &CollectiveCall) -> c_int {
    let CollectiveCall { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = |function: Option<MpiFunction>| function.expect("every MPI has the plain forms");
    // SAFETY: so the caller says.
    unsafe {
        match call.verb {
            MpiCollective::Barrier => invoke!(function(real.Barrier); communicator),
            MpiCollective::Broadcast => invoke!(function(real.Bcast); receive, count, datatype, root, communicator),
            MpiCollective::Reduce => {
                invoke!(function(real.Reduce); send, receive, count, datatype, operator, root, communicator)
            }
            MpiCollective::AllReduce => {
                invoke!(function(real.Allreduce); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::ReduceScatter => {
                invoke!(function(real.Reduce_scatter_block); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::Scan => {
                invoke!(function(real.Scan); send, receive, count, datatype, operator, communicator)
            }
            MpiCollective::ExclusiveScan => {
                invoke!(function(real.Exscan); send, receive, count, datatype, operator, communicator)
            }
        }
    }
}
