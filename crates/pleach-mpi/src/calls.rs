//! One collective call of the user's, in whichever of its many spellings it came.
//!
//! In: the arguments. Out: either the call is done by Pleach, or a reason why the MPI does it. The reason is the same on all ranks,
//! because it follows from what the standard wants to be the same on all of them: the verb and its order, count, datatype and operator
//! of reductions, the bytes of a broadcast, the root.

use std::ffi::c_int;

use pleach::Communicator;

use crate::abi::size_of_type;
use crate::communicators::{self, Member};
use crate::job::{Job, job};
use crate::packing;
use crate::progress;
use crate::real::{Function, Mpi, invoke};
use crate::recovery;
use crate::tally::Why;
use crate::types::{Fold, Form, slice};

/// What the ranks do together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    Barrier,
    Broadcast,
    Reduce,
    AllReduce,
    ReduceScatter,
    Scan,
    ExclusiveScan,
}

impl Verb {
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
pub(crate) struct Call {
    pub(crate) verb: Verb,
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
pub(crate) struct Position {
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

/// Who did a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Pleach,
    /// After Pleach had failed.
    Mpi,
}

/// How a call ended, and how many bytes this rank's vector had.
pub(crate) struct Done {
    pub(crate) status: c_int,
    pub(crate) bytes: usize,
    pub(crate) by: By,
}

/// A scan is a gathering of what all ranks have: so many bytes of it at most.
const LARGEST_SCAN: usize = 64 << 10;
/// A reduce-scatter gives everyone everything first: so many bytes at most.
const LARGEST_SCATTER: usize = 1 << 20;

/// What a call means to Pleach.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Elements of this rank's own vector.
    count: usize,
    /// Bytes of this rank's own vector: without gaps in a broadcast, with gaps in a reduction.
    pub(crate) bytes: usize,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Nothing,
    /// Bytes as they lie, or elements that must be packed.
    Bytes {
        is_dense: bool,
    },
    Elements(Fold),
}

impl Plan {
    #[inline(always)]
    pub(crate) fn of(job: &Job, call: &Call) -> Result<Self, Why> {
        if call.verb == Verb::Barrier {
            return Ok(Self { count: 0, bytes: 0, what: What::Nothing });
        }
        let count = usize::try_from(call.count).map_err(|_| Why::Argument)?;
        let class = job.abi.class(job.mpi, call.datatype);
        if call.verb == Verb::Broadcast {
            let (size, is_dense) = match class {
                Some(class) => (class.size(), class.is_dense()),
                None => (size_of_type(job.mpi, call.datatype).ok_or(Why::Type)?, false),
            };
            let bytes = count.checked_mul(size).ok_or(Why::Large)?;
            return Ok(Self { count, bytes, what: What::Bytes { is_dense } });
        }
        let operator = job.abi.operator(call.operator).ok_or(Why::Operator)?;
        let fold = Fold::of(class.ok_or(Why::Type)?, operator).ok_or(Why::Type)?;
        let bytes = count.checked_mul(fold.stride()).ok_or(Why::Large)?;
        Ok(Self { count, bytes, what: What::Elements(fold) })
    }

    /// Refuses what is too large, and what the MPI should complain about.
    #[inline]
    pub(crate) fn check(&self, job: &Job, call: &Call, position: Position) -> Result<(), Why> {
        let of_all = self.bytes.checked_mul(position.size as usize).ok_or(Why::Large)?;
        let fits = match call.verb {
            Verb::Scan | Verb::ExclusiveScan => of_all <= LARGEST_SCAN.min(job.largest),
            Verb::ReduceScatter => of_all <= LARGEST_SCATTER.min(job.largest),
            _ => self.bytes <= job.largest,
        };
        if !fits {
            return Err(Why::Large);
        }
        let has_root = matches!(call.verb, Verb::Broadcast | Verb::Reduce);
        if has_root && !u32::try_from(call.root).is_ok_and(|root| root < position.size) {
            return Err(Why::Argument);
        }
        if self.bytes == 0 {
            return Ok(());
        }
        let is_root = call.root as u32 == position.rank;
        let in_place = call.send == job.abi.in_place;
        let is_sound = match call.verb {
            Verb::Barrier => true,
            Verb::Broadcast => call.receive != job.abi.in_place && (call.receive != 0 || !self.is_dense()),
            Verb::Reduce if !is_root => call.send != 0 && !in_place,
            _ => {
                call.receive != 0
                    && call.receive != job.abi.in_place
                    && call.send != 0
                    && (in_place || !overlap(call.send, call.receive, self.bytes))
            }
        };
        if is_sound { Ok(()) } else { Err(Why::Argument) }
    }

    fn is_dense(&self) -> bool {
        matches!(self.what, What::Bytes { is_dense: true })
    }

    /// True if a call overwrites its input while it is under way.
    pub(crate) fn overwrites_input(&self, job: &Job, call: &Call) -> bool {
        call.send == job.abi.in_place
            && matches!(call.verb, Verb::Reduce | Verb::AllReduce)
            && matches!(self.what, What::Elements(Fold { form: Form::Plain, .. }))
    }
}

/// Two vectors of so many bytes share some.
fn overlap(one: usize, other: usize, bytes: usize) -> bool {
    one.abs_diff(other) < bytes
}

/// Does a call, and waits for its end.
#[inline]
pub(crate) fn run(call: &Call) -> Result<Done, Why> {
    let job = job().ok_or(Why::Off)?;
    let plan = Plan::of(job, call)?;
    let member = communicators::member_or_form(job, call.communicator)?;
    plan.check(job, call, member.position)?;
    let bytes = plan.bytes;
    // What seldom happens gets copies, so that the plan itself can stay in registers.
    let copy = || plan;
    if bytes == 0 && call.verb != Verb::Barrier {
        return Ok(Done { status: 0, bytes, by: By::Pleach }); // Nobody has anything to say, and nobody must wait.
    }
    if member.has_failed() {
        return Ok(Done { status: recovery::pass(job, call, member), bytes, by: By::Mpi });
    }
    member.keep(call, bytes, |into| input_of(job, call, &copy(), member.position, into));
    match run_on(job, call, plan, member) {
        Ok(()) => {
            member.complete();
            Ok(Done { status: 0, bytes, by: By::Pleach })
        }
        Err(error) => Ok(Done { status: recovery::recover(job, call, &copy(), member, &error), bytes, by: By::Mpi }),
    }
}

#[inline(always)]
fn run_on(job: &Job, call: &Call, plan: Plan, member: &Member) -> Result<(), pleach::Error> {
    let Member { communicator, position, .. } = member;
    let (send, receive) = (call.send as *const u8, call.receive as *mut u8);
    let in_place = call.send == job.abi.in_place;
    // SAFETY: the user has so many bytes there, and input and result do not overlap: `Plan::check` looked.
    let input = || unsafe { slice(send, plan.bytes) };
    // SAFETY: as above.
    let output = || unsafe { std::slice::from_raw_parts_mut(receive, plan.bytes) };
    match (call.verb, plan.what) {
        (Verb::Barrier, _) => communicator.barrier().inspect(|()| progress::after_barrier()),
        (Verb::Broadcast, What::Bytes { is_dense: true }) => communicator.broadcast(output(), call.root as u32),
        (Verb::AllReduce, What::Elements(Fold { kind, form: Form::Plain })) => {
            if in_place {
                communicator.all_reduce_bytes(output(), kind)
            } else {
                communicator.all_reduce_apart(input(), output(), kind)
            }
        }
        (Verb::Reduce, What::Elements(Fold { kind, form: Form::Plain })) => {
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
fn run_prepared(job: &Job, call: &Call, plan: Plan, member: &Member) -> Result<(), pleach::Error> {
    let Member { communicator, position, .. } = member;
    let mut bytes = prepare(job, call, &plan, *position)?;
    match Part::of(call, &plan) {
        Part::Barrier => communicator.barrier()?,
        Part::Broadcast => communicator.broadcast(&mut bytes, call.root as u32)?,
        Part::Reduce(fold) => communicator.reduce_bytes(&mut bytes, fold.kind, call.root as u32)?,
        Part::AllReduce(fold) => communicator.all_reduce_bytes(&mut bytes, fold.kind)?,
        Part::Gather => communicator.all_reduce(&mut bytes, pleach::Operator::Or)?,
    }
    finish(job, call, &plan, *position, &bytes)
}

/// What Pleach does for a call.
pub(crate) enum Part {
    Barrier,
    Broadcast,
    Reduce(Fold),
    AllReduce(Fold),
    /// Everyone's vectors side by side: each rank brings its own and zeroes.
    Gather,
}

impl Part {
    fn of(call: &Call, plan: &Plan) -> Self {
        match (call.verb, plan.what) {
            (Verb::Reduce, What::Elements(fold)) => Self::Reduce(fold),
            (Verb::AllReduce | Verb::ReduceScatter, What::Elements(fold)) => Self::AllReduce(fold),
            (Verb::Scan | Verb::ExclusiveScan, What::Elements(_)) => Self::Gather,
            (_, What::Bytes { .. }) => Self::Broadcast,
            _ => Self::Barrier,
        }
    }

    /// Starts it.
    pub(crate) fn launch(
        call: &Call,
        plan: &Plan,
        communicator: &Communicator,
        bytes: Vec<u8>,
    ) -> Result<pleach::Started, pleach::Error> {
        match Self::of(call, plan) {
            Self::Barrier => communicator.launch_barrier(),
            Self::Broadcast => communicator.launch_broadcast(bytes, call.root as u32),
            Self::Reduce(fold) => communicator.launch_reduce(bytes, fold.kind, call.root as u32),
            Self::AllReduce(fold) => communicator.launch_all_reduce(bytes, fold.kind),
            Self::Gather => {
                let kind = pleach::Kind::new(pleach::ElementType::U8, pleach::Operator::Or).expect("bytes have bits");
                communicator.launch_all_reduce(bytes, kind)
            }
        }
    }
}

/// What this rank brings, in a buffer of its own that holds the result later.
pub(crate) fn prepare(job: &Job, call: &Call, plan: &Plan, position: Position) -> Result<Vec<u8>, pleach::Error> {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let everyone = position.size as usize;
    // SAFETY: the user has so many elements there.
    let load = |fold: Fold, count: usize| unsafe { fold.load(from, count) };
    match (call.verb, plan.what) {
        (_, What::Nothing) => Ok(Vec::new()),
        (_, What::Bytes { .. }) if call.root as u32 != position.rank => Ok(vec![0; plan.bytes]),
        // SAFETY: the user has so many bytes there.
        (_, What::Bytes { is_dense: true }) => Ok(unsafe { slice(call.receive as *const u8, plan.bytes) }.to_vec()),
        (_, What::Bytes { .. }) => packing::pack(job, call, plan.bytes),
        (Verb::ReduceScatter, What::Elements(fold)) => Ok(load(fold, plan.count * everyone)),
        (Verb::Scan | Verb::ExclusiveScan, What::Elements(fold)) => {
            let mut all = vec![0; plan.bytes * everyone];
            all[position.rank as usize * plan.bytes..][..plan.bytes].copy_from_slice(&load(fold, plan.count));
            Ok(all)
        }
        (_, What::Elements(fold)) => Ok(load(fold, plan.count)),
    }
}

/// Puts the result where the user wants it.
pub(crate) fn finish(
    job: &Job,
    call: &Call,
    plan: &Plan,
    position: Position,
    bytes: &[u8],
) -> Result<(), pleach::Error> {
    if plan.bytes == 0 {
        return Ok(());
    }
    let to = call.receive as *mut u8;
    let is_root = call.root as u32 == position.rank;
    let own = || &bytes[position.rank as usize * plan.bytes..][..plan.bytes];
    match (call.verb, plan.what) {
        (_, What::Nothing) => {}
        (_, What::Bytes { .. }) if is_root => {}
        // SAFETY: the user has room for so many bytes there.
        (_, What::Bytes { is_dense: true }) => unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len()) },
        (_, What::Bytes { .. }) => packing::unpack(job, call, bytes)?,
        (Verb::Reduce, _) if !is_root => {}
        // SAFETY: the user has room for so many elements there.
        (Verb::ReduceScatter, What::Elements(fold)) => unsafe { fold.store(own(), to) },
        (Verb::Scan | Verb::ExclusiveScan, What::Elements(fold)) => {
            let ranks = position.rank as usize + usize::from(call.verb == Verb::Scan);
            if ranks > 0 {
                let vectors = bytes.chunks_exact(plan.bytes).take(ranks);
                let folded = fold.kind.fold_all(vectors).expect("whole elements, and at least one vector");
                // SAFETY: as above.
                unsafe { fold.store(&folded, to) };
            }
        }
        // SAFETY: as above.
        (_, What::Elements(fold)) => unsafe { fold.store(bytes, to) },
    }
    Ok(())
}

/// This rank's input as the MPI would take it, for the case that a call must be repeated; false if it cannot be had.
fn input_of(job: &Job, call: &Call, plan: &Plan, position: Position, into: &mut Vec<u8>) -> bool {
    let from = if call.send == job.abi.in_place { call.receive } else { call.send } as *const u8;
    let (fold, count) = match (call.verb, plan.what) {
        (_, What::Nothing) => return true,
        (_, What::Bytes { .. }) => return prepare(job, call, plan, position).map(|bytes| *into = bytes).is_ok(),
        (Verb::ReduceScatter, What::Elements(fold)) => (fold, plan.count * position.size as usize),
        (_, What::Elements(fold)) => (fold, plan.count),
    };
    // SAFETY: the user has so many elements there.
    unsafe { fold.load_into(into, from, count) };
    true
}

/// Starts a call on the MPI's own.
///
/// # Safety
/// The arguments are those of the user, or as good, and stay so until the request is complete.
pub(crate) unsafe fn start_on_mpi(mpi: &Mpi, call: &Call, request: &mut usize) -> c_int {
    let Call { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = match call.verb {
        Verb::Barrier => real.Ibarrier,
        Verb::Broadcast => real.Ibcast,
        Verb::Reduce => real.Ireduce,
        Verb::AllReduce => real.Iallreduce,
        Verb::ReduceScatter => real.Ireduce_scatter_block,
        Verb::Scan => real.Iscan,
        Verb::ExclusiveScan => real.Iexscan,
    };
    let function = function.expect("every MPI has the non-blocking forms");
    let request = &raw mut *request;
    // SAFETY: so the caller says.
    unsafe {
        match call.verb {
            Verb::Barrier => invoke!(function; communicator, request),
            Verb::Broadcast => invoke!(function; receive, count, datatype, root, communicator, request),
            Verb::Reduce => invoke!(function; send, receive, count, datatype, operator, root, communicator, request),
            _ => invoke!(function; send, receive, count, datatype, operator, communicator, request),
        }
    }
}

/// Does a call on the MPI's own.
///
/// # Safety
/// The arguments are those of the user, or as good.
pub(crate) unsafe fn run_on_mpi(mpi: &Mpi, call: &Call) -> c_int {
    let Call { send, receive, count, datatype, operator, root, communicator, .. } = *call;
    let real = &mpi.real;
    let function = |function: Option<Function>| function.expect("every MPI has the plain forms");
    // SAFETY: so the caller says.
    unsafe {
        match call.verb {
            Verb::Barrier => invoke!(function(real.Barrier); communicator),
            Verb::Broadcast => invoke!(function(real.Bcast); receive, count, datatype, root, communicator),
            Verb::Reduce => {
                invoke!(function(real.Reduce); send, receive, count, datatype, operator, root, communicator)
            }
            Verb::AllReduce => {
                invoke!(function(real.Allreduce); send, receive, count, datatype, operator, communicator)
            }
            Verb::ReduceScatter => {
                invoke!(function(real.Reduce_scatter_block); send, receive, count, datatype, operator, communicator)
            }
            Verb::Scan => invoke!(function(real.Scan); send, receive, count, datatype, operator, communicator),
            Verb::ExclusiveScan => {
                invoke!(function(real.Exscan); send, receive, count, datatype, operator, communicator)
            }
        }
    }
}
