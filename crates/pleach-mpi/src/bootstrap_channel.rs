//! What ranks say to each other over the MPI itself: to meet, to agree, and to find out where each of them stands.

use crate::abi::MpiAbi;
use crate::native_mpi::{NativeMpi, invoke};

/// The MPI, as a means to agree.
#[derive(Clone, Copy)]
pub(crate) struct BootstrapChannel<'a> {
    pub(crate) mpi: &'a NativeMpi,
    pub(crate) abi: &'a MpiAbi,
    /// Among whom.
    pub(crate) communicator: usize,
}

/// The MPI did not carry a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BootstrapFailed;

/// Values that were asked for: numbers that are the others' business until the request is complete.
pub(crate) struct PendingAllreduce {
    values: Box<[i64]>,
    request: usize,
}

impl PendingAllreduce {
    pub(crate) fn request(&mut self) -> &mut usize {
        &mut self.request
    }

    /// To be read when the request is complete.
    pub(crate) fn values(&self) -> &[i64] {
        &self.values
    }
}

impl BootstrapChannel<'_> {
    /// The smallest of everyone's values, one by one.
    pub(crate) fn least(&self, values: &mut [i64]) -> Result<(), BootstrapFailed> {
        self.fold(values, self.abi.min)
    }

    /// The sum of everyone's values, one by one.
    pub(crate) fn sum(&self, values: &mut [i64]) -> Result<(), BootstrapFailed> {
        self.fold(values, self.abi.sum)
    }

    fn fold(&self, values: &mut [i64], operator: usize) -> Result<(), BootstrapFailed> {
        let function = self.mpi.real.Allreduce.ok_or(BootstrapFailed)?;
        let MpiAbi { in_place, int64, .. } = *self.abi;
        // SAFETY: so many values are there, of that type.
        let status = unsafe {
            invoke!(function; in_place, values.as_mut_ptr(), values.len(), int64, operator, self.communicator)
        };
        if status == 0 { Ok(()) } else { Err(BootstrapFailed) }
    }

    /// Asks for the smallest of everyone's values without waiting for it. Others may answer at a time of their own.
    pub(crate) fn ask_least(&self, values: Vec<i64>) -> Option<PendingAllreduce> {
        let MpiAbi { in_place, int64, min, .. } = *self.abi;
        let ask = self.mpi.real.Iallreduce?;
        let mut asked = PendingAllreduce { values: values.into_boxed_slice(), request: 0 };
        let (values, count) = (asked.values.as_mut_ptr(), asked.values.len());
        // SAFETY: so many values are there, of that type; what is asked for is kept until it is answered. Of the request MPICH uses the
        // lower half.
        let status =
            unsafe { invoke!(ask; in_place, values, count, int64, min, self.communicator, &raw mut asked.request) };
        (status == 0).then_some(asked)
    }

    /// True if all say yes; if not, also who is the first to say no.
    pub(crate) fn all(&self, rank: u32, yes: bool) -> Result<(), Option<u32>> {
        let mut first_no = [if yes { i64::MAX } else { i64::from(rank) }];
        self.least(&mut first_no).map_err(|BootstrapFailed| None)?;
        if first_no[0] == i64::MAX { Ok(()) } else { Err(u32::try_from(first_no[0]).ok()) }
    }

    /// What rank 0 says.
    pub(crate) fn hear_first(&self, bytes: &mut [u8]) -> Result<(), BootstrapFailed> {
        let function = self.mpi.real.Bcast.ok_or(BootstrapFailed)?;
        // SAFETY: so many bytes are there.
        let status =
            unsafe { invoke!(function; bytes.as_mut_ptr(), bytes.len(), self.abi.byte, 0_usize, self.communicator) };
        if status == 0 { Ok(()) } else { Err(BootstrapFailed) }
    }

    /// The caller's rank among them, and how many they are.
    pub(crate) fn place(&self) -> Option<(u32, u32)> {
        let (mut rank, mut size) = (-1_i32, -1_i32);
        // SAFETY: the numbers have places.
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
