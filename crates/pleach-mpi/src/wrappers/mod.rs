//! The wrappers: every MPI function that this library interposes, under both of its names.
//!
//! Both, because the Fortran bindings of some MPIs call `PMPI_…`. Names in `_c` are the forms with large counts. `collectives` are those of
//! one vector, `block_collectives` those in which ranks have different parts of a vector; the rest is here.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call_statistics::{self, CallMode};
use crate::collective_call::{CallOutcome, CollectiveCall, FallbackReason, ServedBy};
use crate::configuration;
use crate::lifecycle;
use crate::mpi_job::job;
use crate::native_calls::NO_SUCH_FUNCTION;
use crate::native_mpi::{MpiFunction, invoke, mpi};
use crate::offload;
use crate::profiler::ProfilerFunction;
use crate::progress;
use crate::recovery;
use crate::requests;
use crate::trial_budget;
use crate::ulfm;

/// Exports a function under two names.
macro_rules! export {
    ($mpi:literal, $pmpi:literal, ($($argument:ident),*) $body:block) => {
        const _: () = {
            #[allow(clippy::too_many_arguments)] // As many as the standard defines.
            extern "C" fn work($($argument: usize),*) -> c_int $body

            #[inline(always)] // Both names share one copy of the code.
            #[allow(clippy::too_many_arguments)]
            fn enter($($argument: usize),*) -> c_int {
                work($($argument),*)
            }

            static PROFILER: ProfilerFunction = ProfilerFunction::new($mpi, $pmpi);

            #[unsafe(export_name = $mpi)]
            #[allow(clippy::too_many_arguments)]
            extern "C" fn by_name($($argument: usize),*) -> c_int {
                match PROFILER.get() {
                    None => enter($($argument),*),
                    // SAFETY: the user's own arguments, for a function of the same name.
                    Some(profiler) => unsafe { invoke!(profiler; $($argument),*) },
                }
            }

            #[unsafe(export_name = $pmpi)]
            #[allow(clippy::too_many_arguments)]
            extern "C" fn by_profiling_name($($argument: usize),*) -> c_int {
                enter($($argument),*)
            }
        };
    };
}

/// A collective call, with the function of the native MPI to fall back to.
macro_rules! collective {
    ($mpi:literal, $pmpi:literal, $function:expr, ($($argument:ident),*), $call:expr) => {
        export!($mpi, $pmpi, ($($argument),*) {
            // SAFETY: the user's own arguments, for the function that the user called.
            blocking(&$call, || $function.map(|function| unsafe { invoke!(function; $($argument),*) }))
        });
    };
}

/// The same, non-blocking: the last argument is the address for the request.
macro_rules! non_blocking {
    ($mpi:literal, $pmpi:literal, $function:expr, ($($argument:ident),*), $call:expr) => {
        export!($mpi, $pmpi, ($($argument),*, request) {
            starting(&$call, request, || {
                // SAFETY: as above.
                $function.map(|function| unsafe { invoke!(function; $($argument),*, request) })
            })
        });
    };
}

/// An `int` count from a register, whose upper half is undefined.
fn plain(count: usize) -> i64 {
    i64::from(count as i32)
}

fn large(count: usize) -> i64 {
    count as i64
}

/// Older MPIs lack the functions for large counts. A program that finds ours there gets the plain function, if its counts fit.
fn if_short(counts: &[usize], function: Option<MpiFunction>) -> Option<MpiFunction> {
    function.filter(|_| counts.iter().all(|count| i32::try_from(large(*count)).is_ok()))
}

/// The four forms of a call: blocking and non-blocking, with plain and large counts.
macro_rules! four_forms {
    (
        ($mpi:literal, $pmpi:literal, $real:ident),
        ($mpi_c:literal, $pmpi_c:literal, $real_c:ident),
        ($mpi_i:literal, $pmpi_i:literal, $real_i:ident),
        ($mpi_ic:literal, $pmpi_ic:literal, $real_ic:ident),
        ($($argument:ident),*), ($($count:ident),*), $measure:ident, $call:expr
    ) => {
        collective!($mpi, $pmpi, mpi().real.$real, ($($argument),*), { let $measure = plain; $call });
        non_blocking!($mpi_i, $pmpi_i, mpi().real.$real_i, ($($argument),*), { let $measure = plain; $call });
        collective!(
            $mpi_c, $pmpi_c, mpi().real.$real_c.or(if_short(&[$($count),*], mpi().real.$real)), ($($argument),*),
            { let $measure = large; $call }
        );
        non_blocking!(
            $mpi_ic, $pmpi_ic, mpi().real.$real_ic.or(if_short(&[$($count),*], mpi().real.$real_i)), ($($argument),*),
            { let $measure = large; $call }
        );
    };
}

mod block_collectives;
mod collectives;

#[inline]
fn blocking(call: &CollectiveCall, native: impl FnOnce() -> Option<c_int>) -> c_int {
    let began = call_statistics::begin();
    match offload::run(call) {
        Ok(CallOutcome { status, bytes, served_by: ServedBy::Pleach }) => {
            call_statistics::count_offloaded(call.collective, CallMode::Blocking, bytes, began);
            status
        }
        Ok(CallOutcome { status, served_by: ServedBy::Native(reason), .. }) => {
            call_statistics::count_fallback(call.collective, CallMode::Blocking, reason, began);
            status
        }
        Err(reason) => fall_back(call, CallMode::Blocking, reason, began, native),
    }
}

#[inline]
fn starting(call: &CollectiveCall, request: usize, native: impl FnOnce() -> Option<c_int>) -> c_int {
    let began = call_statistics::begin();
    match requests::start(call, request) {
        Ok(CallOutcome { status, bytes, served_by: ServedBy::Pleach }) => {
            call_statistics::count_offloaded(call.collective, CallMode::NonBlocking, bytes, began);
            status
        }
        Ok(CallOutcome { status, served_by: ServedBy::Native(reason), .. }) => {
            call_statistics::count_fallback(call.collective, CallMode::NonBlocking, reason, began);
            status
        }
        Err(reason) => fall_back(call, CallMode::NonBlocking, reason, began, native),
    }
}

/// Does a call with the native MPI.
fn fall_back(
    call: &CollectiveCall,
    mode: CallMode,
    reason: FallbackReason,
    began: Option<std::time::Instant>,
    native: impl FnOnce() -> Option<c_int>,
) -> c_int {
    if recovery::has_failed()
        && let Some(job) = job()
    {
        recovery::before_native_call(job, call.communicator);
    }
    let status = native().unwrap_or(NO_SUCH_FUNCTION);
    call_statistics::count_fallback(call.collective, mode, reason, began);
    status
}

/// The two functions that free a communicator collectively.
macro_rules! freeing {
    ($mpi:literal, $pmpi:literal, $real:ident) => {
        export!($mpi, $pmpi, (address) {
            let Some(function) = mpi().real.$real else { return NO_SUCH_FUNCTION };
            if let Some(job) = job()
                && address != 0
            {
                // SAFETY: the user's own communicator: 32 bits or a word.
                recovery::settle(job, unsafe { job.abi.read_handle(address) });
            }
            // SAFETY: the user's own argument.
            unsafe { invoke!(function; address) }
        });
    };
}

freeing!("MPI_Comm_free", "PMPI_Comm_free", Comm_free);
freeing!("MPI_Comm_disconnect", "PMPI_Comm_disconnect", Comm_disconnect);

export!("MPIX_Comm_revoke", "PMPIX_Comm_revoke", (communicator) {
    let Some(function) = mpi().library.function("PMPIX_Comm_revoke") else { return NO_SUCH_FUNCTION };
    // SAFETY: the user's own argument.
    let status = unsafe { invoke!(function; communicator) };
    if status == 0
        && let Some(job) = job()
    {
        ulfm::revoked(job, communicator);
    }
    status
});

/// Functions that create an RMA window. From then on a barrier also makes the native MPI progress: a program that tests after it
/// whether an access epoch is complete, which it is, expects true.
macro_rules! windows {
    ($($mpi:literal, $pmpi:literal, $real:ident, $plain:ident, ($($argument:ident),*);)*) => {$(
        export!($mpi, $pmpi, ($($argument),*) {
            let Some(function) = mpi().real.$real.or(mpi().real.$plain) else { return NO_SUCH_FUNCTION };
            progress::note_rma_window();
            // SAFETY: the user's own arguments.
            unsafe { invoke!(function; $($argument),*) }
        });
    )*};
}

windows! {
    "MPI_Win_create", "PMPI_Win_create", Win_create, Win_create, (base, size, unit, info, comm, window);
    "MPI_Win_create_c", "PMPI_Win_create_c", Win_create_c, Win_create, (base, size, unit, info, comm, window);
    "MPI_Win_allocate", "PMPI_Win_allocate", Win_allocate, Win_allocate, (size, unit, info, comm, base, window);
    "MPI_Win_allocate_c", "PMPI_Win_allocate_c", Win_allocate_c, Win_allocate, (size, unit, info, comm, base, window);
    "MPI_Win_allocate_shared", "PMPI_Win_allocate_shared", Win_allocate_shared, Win_allocate_shared,
        (size, unit, info, comm, base, window);
    "MPI_Win_allocate_shared_c", "PMPI_Win_allocate_shared_c", Win_allocate_shared_c, Win_allocate_shared,
        (size, unit, info, comm, base, window);
    "MPI_Win_create_dynamic", "PMPI_Win_create_dynamic", Win_create_dynamic, Win_create_dynamic, (info, comm, window);
}

/// Depth of nested calls of the functions below: an MPI may implement one by another.
static DEPTH: AtomicU32 = AtomicU32::new(0);

/// Runs one of them; true if it is the outermost.
fn outermost(run: impl FnOnce() -> c_int) -> (c_int, bool) {
    DEPTH.fetch_add(1, Ordering::AcqRel);
    let status = run();
    (status, DEPTH.fetch_sub(1, Ordering::AcqRel) == 1)
}

/// Starts offloading, after the native MPI was initialized.
fn open(thread_level: i32) {
    lifecycle::open(thread_level);
    if configuration::wants_explanation() {
        lifecycle::close();
        if let Some(finalize) = mpi().real.Finalize {
            // SAFETY: initialized, and not finalized yet.
            unsafe { invoke!(finalize;) };
        }
        std::process::exit(0);
    }
}

export!("MPI_Init", "PMPI_Init", (count, arguments) {
    trial_budget::start_clock();
    let Some(function) = mpi().real.Init else { return NO_SUCH_FUNCTION };
    // SAFETY: the user's own arguments.
    let (status, is_outermost) = outermost(|| unsafe { invoke!(function; count, arguments) });
    if status == 0 && is_outermost {
        open(0);
    }
    status
});

export!("MPI_Init_thread", "PMPI_Init_thread", (count, arguments, required, provided) {
    trial_budget::start_clock();
    let Some(function) = mpi().real.Init_thread else { return NO_SUCH_FUNCTION };
    // SAFETY: the user's own arguments.
    let (status, is_outermost) = outermost(|| unsafe { invoke!(function; count, arguments, required, provided) });
    if status == 0 && is_outermost {
        // SAFETY: the native MPI has just written there.
        open(if provided == 0 { 0 } else { unsafe { *(provided as *const c_int) } });
    }
    status
});

export!("MPI_Finalize", "PMPI_Finalize", () {
    let Some(function) = mpi().real.Finalize else { return NO_SUCH_FUNCTION };
    if DEPTH.load(Ordering::Acquire) == 0 {
        lifecycle::close();
    }
    // SAFETY: the user calls it.
    outermost(|| unsafe { invoke!(function;) }).0
});
