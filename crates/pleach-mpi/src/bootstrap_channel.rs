//! Collective communication over the native MPI: to bootstrap, to agree, and to compare progress during recovery.

use std::time::{Duration, Instant};

use crate::abi::MpiAbi;
use crate::native_mpi::{NativeMpi, invoke};

/// A communicator of the native MPI, for messages between the ranks' copies of this library.
#[derive(Clone, Copy)]
pub(crate) struct BootstrapChannel<'a> {
    pub(crate) mpi: &'a NativeMpi,
    pub(crate) abi: &'a MpiAbi,
    pub(crate) communicator: usize,
}

/// A call of the native MPI failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BootstrapFailed;

/// A non-blocking allreduce in flight. The native MPI writes to the values until the request is complete.
pub(crate) struct PendingAllreduce {
    values: Box<[i64]>,
    request: usize,
}

impl PendingAllreduce {
    pub(crate) fn request(&mut self) -> &mut usize {
        &mut self.request
    }

    /// The result, after the request is complete.
    pub(crate) fn values(&self) -> &[i64] {
        &self.values
    }
}

impl BootstrapChannel<'_> {
    /// The minimum over all ranks, element by element.
    pub(crate) fn all_reduce_min(&self, values: &mut [i64]) -> Result<(), BootstrapFailed> {
        self.all_reduce(values, self.abi.min)
    }

    /// The sum over all ranks, element by element.
    pub(crate) fn all_reduce_sum(&self, values: &mut [i64]) -> Result<(), BootstrapFailed> {
        self.all_reduce(values, self.abi.sum)
    }

    fn all_reduce(&self, values: &mut [i64], operator: usize) -> Result<(), BootstrapFailed> {
        let function = self.mpi.real.Allreduce.ok_or(BootstrapFailed)?;
        let MpiAbi { in_place, int64, .. } = *self.abi;
        // SAFETY: `values.len()` values of that type are there.
        let status = unsafe {
            invoke!(function; in_place, values.as_mut_ptr(), values.len(), int64, operator, self.communicator)
        };
        if status == 0 { Ok(()) } else { Err(BootstrapFailed) }
    }

    /// Starts the minimum over all ranks without waiting for it: other ranks may join at a time of their own.
    pub(crate) fn start_all_reduce_min(&self, values: Vec<i64>) -> Option<PendingAllreduce> {
        let MpiAbi { in_place, int64, min, .. } = *self.abi;
        let start = self.mpi.real.Iallreduce?;
        let mut pending = PendingAllreduce { values: values.into_boxed_slice(), request: 0 };
        let (values, count) = (pending.values.as_mut_ptr(), pending.values.len());
        // SAFETY: `count` values of that type are there, and live until the request is complete. MPICH uses the lower half of the
        // request.
        let status = unsafe {
            invoke!(start; in_place, values, count, int64, min, self.communicator, &raw mut pending.request)
        };
        (status == 0).then_some(pending)
    }

    /// As [`Self::all_agree`], but `None` if some rank does not take part within this time. Non-blocking collectives do not match the blocking
    /// ones that a rank without this library calls.
    pub(crate) fn all_agree_within(
        &self,
        rank: u32,
        agrees: bool,
        limit: Duration,
    ) -> Option<Result<(), Option<u32>>> {
        let first_dissenter = if agrees { i64::MAX } else { i64::from(rank) };
        let Some(mut pending) = self.start_all_reduce_min(vec![first_dissenter]) else { return Some(Err(None)) };
        let Some(test) = self.mpi.real.Test else { return Some(Err(None)) };
        let began = Instant::now();
        loop {
            let (mut is_complete, mut status) = (0_i32, [0_u64; 16]);
            // SAFETY: our own request; the status has room for that of any MPI.
            let failed =
                unsafe { invoke!(test; &raw mut pending.request, &raw mut is_complete, status.as_mut_ptr()) } != 0;
            if failed {
                return Some(Err(None));
            }
            if is_complete != 0 {
                break;
            }
            if began.elapsed() > limit {
                std::mem::forget(pending); // The native MPI may still write to it.
                return None;
            }
            std::thread::yield_now();
        }
        let first_dissenter = pending.values()[0];
        Some(if first_dissenter == i64::MAX { Ok(()) } else { Err(u32::try_from(first_dissenter).ok()) })
    }

    /// Ok if all ranks agree; otherwise the first rank that does not, if the native MPI works.
    pub(crate) fn all_agree(&self, rank: u32, agrees: bool) -> Result<(), Option<u32>> {
        let mut first_dissenter = [if agrees { i64::MAX } else { i64::from(rank) }];
        self.all_reduce_min(&mut first_dissenter).map_err(|BootstrapFailed| None)?;
        if first_dissenter[0] == i64::MAX { Ok(()) } else { Err(u32::try_from(first_dissenter[0]).ok()) }
    }

    /// Broadcasts from rank 0.
    pub(crate) fn broadcast(&self, bytes: &mut [u8]) -> Result<(), BootstrapFailed> {
        let function = self.mpi.real.Bcast.ok_or(BootstrapFailed)?;
        // SAFETY: `bytes.len()` bytes are there.
        let status =
            unsafe { invoke!(function; bytes.as_mut_ptr(), bytes.len(), self.abi.byte, 0_usize, self.communicator) };
        if status == 0 { Ok(()) } else { Err(BootstrapFailed) }
    }

    /// This process's rank, and the number of ranks.
    pub(crate) fn rank_and_size(&self) -> Option<(u32, u32)> {
        let (mut rank, mut size) = (-1_i32, -1_i32);
        // SAFETY: both results have a place.
        let statuses = unsafe {
            [
                invoke!(self.mpi.real.Comm_rank?; self.communicator, &raw mut rank),
                invoke!(self.mpi.real.Comm_size?; self.communicator, &raw mut size),
            ]
        };
        (statuses == [0, 0]).then_some(())?;
        Some((u32::try_from(rank).ok()?, u32::try_from(size).ok()?))
    }
}
