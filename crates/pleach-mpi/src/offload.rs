//! Runs a blocking call on Pleach, and falls back to the native MPI if Pleach fails.

use crate::call_plan::{self, CallPayload, CallPlan, OffloadedOperation};
use crate::call_statistics::CallMode;
use crate::choice_table::{ChoiceKey, NextCall};
use crate::collective_call::{CallOutcome, CollectiveCall, FallbackReason, MpiCollective, ServedBy};
use crate::communicator_forming;
use crate::communicator_table::OffloadedCommunicator;
use crate::configuration::ChoiceMode;
use crate::datatypes::{ElementLayout, MpiReduction, slice};
use crate::measured_call::MeasuredCall;
use crate::mpi_job::{MpiJob, job};
use crate::native_calls;
use crate::progress;
use crate::recovery;
use crate::trial::Way;

/// Runs a call and blocks until it is complete.
#[inline]
pub(crate) fn run(call: &CollectiveCall) -> Result<CallOutcome, FallbackReason> {
    let job = job().ok_or(FallbackReason::Off)?;
    if job.choice == ChoiceMode::Native {
        return Err(FallbackReason::Chosen);
    }
    let plan = CallPlan::of(job, call)?;
    let offloaded = communicator_forming::lookup_or_form(job, call.communicator)?;
    if offloaded.leaves_blocks(job, call.collective) {
        return Err(FallbackReason::BlocksBetweenHosts);
    }
    let plan = plan.completed(job, call, offloaded.position)?;
    let bytes = plan.bytes;
    // The rare paths get copies, so that the plan itself can stay in registers.
    let copy = || plan;
    if bytes == 0 && call.collective != MpiCollective::Barrier {
        return Ok(CallOutcome { status: 0, bytes, served_by: ServedBy::Pleach }); // No rank contributes anything, and no rank must wait.
    }
    let key = ChoiceKey::of(call.collective, bytes);
    if offloaded.has_failed() {
        return Ok(run_after_failure(job, call, bytes, offloaded, key));
    }
    match offloaded.choices.next(key) {
        NextCall::Settled(Way::Pleach) => Ok(run_and_recover(job, call, plan, offloaded)),
        NextCall::Settled(Way::Native) => Ok(MeasuredCall { job, call, plan: &copy(), offloaded, key }.leave()),
        NextCall::Tried => Ok(MeasuredCall { job, call, plan: &copy(), offloaded, key }.try_both_ways()),
    }
}

/// Does a call with Pleach.
#[inline(never)]
pub(crate) fn run_by_pleach(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: &CallPlan,
    offloaded: &OffloadedCommunicator,
) -> CallOutcome {
    if offloaded.has_failed() {
        // It became known during an exchange just before.
        let status = recovery::run_after_failure(job, call, offloaded);
        return CallOutcome { status, bytes: plan.bytes, served_by: ServedBy::Native(FallbackReason::Failed) };
    }
    run_and_recover(job, call, *plan, offloaded)
}

#[inline(always)]
fn run_and_recover(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: CallPlan,
    offloaded: &OffloadedCommunicator,
) -> CallOutcome {
    let bytes = plan.bytes;
    let copy = || plan;
    offloaded.log_input(
        call,
        CallMode::Blocking,
        || copy().input_bytes(call, offloaded.position),
        |into| call_plan::input_of(job, call, &copy(), offloaded.position, into),
    );
    match run_on(job, call, plan, offloaded) {
        Ok(()) => {
            if offloaded.complete() {
                recovery::replay_late_completion(job, offloaded);
            }
            CallOutcome { status: 0, bytes, served_by: ServedBy::Pleach }
        }
        Err(error) => {
            let status = recovery::recover(job, call, &copy(), offloaded, &error);
            CallOutcome { status, bytes, served_by: ServedBy::Native(FallbackReason::Failed) }
        }
    }
}

/// Does a call on a communicator that has failed.
#[cold]
fn run_after_failure(
    job: &MpiJob,
    call: &CollectiveCall,
    bytes: usize,
    offloaded: &OffloadedCommunicator,
    key: ChoiceKey,
) -> CallOutcome {
    // Ranks that do not know of the failure yet do such a call without any exchange: so must this one.
    let is_left = recovery::has_deferred(offloaded) && offloaded.choices.next(key) == NextCall::Settled(Way::Native);
    let (status, reason) = match is_left {
        // SAFETY: the user's own arguments.
        true => (unsafe { native_calls::run(job.mpi, call) }, FallbackReason::Slower),
        false => (recovery::run_after_failure(job, call, offloaded), FallbackReason::Failed),
    };
    CallOutcome { status, bytes, served_by: ServedBy::Native(reason) }
}

#[inline(always)]
fn run_on(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: CallPlan,
    offloaded: &OffloadedCommunicator,
) -> Result<(), pleach::Error> {
    let OffloadedCommunicator { communicator, position, .. } = offloaded;
    let (send, receive) = (call.send as *const u8, call.receive as *mut u8);
    let in_place = call.send == job.abi.in_place;
    // SAFETY: the user guarantees that many bytes there, and `CallPlan::check` has rejected overlapping buffers.
    let input = || unsafe { slice(send, plan.bytes) };
    // SAFETY: as above.
    let output = || unsafe { std::slice::from_raw_parts_mut(receive, plan.bytes) };
    match (call.collective, plan.payload) {
        (MpiCollective::Barrier, _) => communicator.barrier().inspect(|()| progress::after_barrier()),
        (MpiCollective::Broadcast, CallPayload::Bytes { is_contiguous: true }) => {
            communicator.broadcast(output(), call.root as u32)
        }
        (MpiCollective::AllReduce, CallPayload::Elements(MpiReduction { kind, layout: ElementLayout::Plain })) => {
            if in_place {
                communicator.all_reduce_bytes(output(), kind)
            } else {
                communicator.all_reduce_out_of_place(input(), output(), kind)
            }
        }
        (MpiCollective::Reduce, CallPayload::Elements(MpiReduction { kind, layout: ElementLayout::Plain })) => {
            if call.root as u32 != position.rank {
                communicator.reduce_send_only(input(), kind, call.root as u32)
            } else if in_place {
                communicator.reduce_bytes(output(), kind, position.rank)
            } else {
                communicator.reduce_out_of_place(input(), output(), kind)
            }
        }
        _ => run_prepared(job, call, plan, offloaded),
    }
}

/// Runs a call whose elements need packing or conversion, or whose result is not as long as its input.
#[inline(never)]
fn run_prepared(
    job: &MpiJob,
    call: &CollectiveCall,
    plan: CallPlan,
    offloaded: &OffloadedCommunicator,
) -> Result<(), pleach::Error> {
    let OffloadedCommunicator { communicator, position, .. } = offloaded;
    let mut bytes = call_plan::prepare(job, call, &plan, *position)?;
    match OffloadedOperation::of(call, &plan, *position) {
        OffloadedOperation::Barrier => communicator.barrier()?,
        OffloadedOperation::Broadcast => communicator.broadcast(&mut bytes, call.root as u32)?,
        OffloadedOperation::Reduce(fold) => communicator.reduce_bytes(&mut bytes, fold.kind, call.root as u32)?,
        OffloadedOperation::AllReduce(fold) => communicator.all_reduce_bytes(&mut bytes, fold.kind)?,
        OffloadedOperation::ReduceScatter(fold) => bytes = communicator.reduce_scatter_owned(bytes, fold.kind)?,
        OffloadedOperation::Scan(fold) => bytes = communicator.scan_owned(bytes, fold.kind)?,
        OffloadedOperation::ExclusiveScan(fold) => bytes = communicator.exclusive_scan_owned(bytes, fold.kind)?,
        OffloadedOperation::Blocks(collective, lengths) => {
            bytes = communicator.run_owned_blocks(collective, lengths, bytes)?;
        }
    }
    call_plan::finish(job, call, &plan, *position, &bytes)
}
