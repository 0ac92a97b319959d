//! Broadcasts of elements that are not contiguous: the native MPI packs and unpacks them.

use crate::collective_call::{CollectiveCall, MpiCollective};
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;

/// Packs the elements of the root's buffer.
pub(crate) fn pack(job: &MpiJob, call: &CollectiveCall, bytes: usize) -> Result<Vec<u8>, pleach::Error> {
    let mut packed = vec![0_u8; bytes];
    let mut position = 0_i32;
    let function = job.mpi.real.Pack.ok_or_else(|| internal("the native MPI has no MPI_Pack"))?;
    // SAFETY: the user's buffer, and room for all its bytes.
    let status = unsafe {
        invoke!(function; call.receive, call.count, call.datatype, packed.as_mut_ptr(), bytes, &raw mut position, call.communicator)
    };
    if status == 0 && usize::try_from(position) == Ok(bytes) { Ok(packed) } else { Err(internal("MPI_Pack failed")) }
}

/// Unpacks them into the user's buffer.
pub(crate) fn unpack(job: &MpiJob, call: &CollectiveCall, packed: &[u8]) -> Result<(), pleach::Error> {
    let mut position = 0_i32;
    let function = job.mpi.real.Unpack.ok_or_else(|| internal("the native MPI has no MPI_Unpack"))?;
    // SAFETY: the user's buffer, and all its bytes.
    let status = unsafe {
        invoke!(function; packed.as_ptr(), packed.len(), &raw mut position, call.receive, call.count, call.datatype, call.communicator)
    };
    if status == 0 { Ok(()) } else { Err(internal("MPI_Unpack failed")) }
}

/// True if the pack format of this MPI is the elements themselves.
pub(crate) fn is_plain(job: &MpiJob) -> bool {
    let value = 0x0102_0304_0506_0708_i64;
    let call = CollectiveCall {
        collective: MpiCollective::Broadcast,
        send: 0,
        receive: &raw const value as usize,
        count: 1,
        datatype: job.abi.int64,
        operator: 0,
        root: 0,
        communicator: job.abi.world,
    };
    pack(job, &call, size_of::<i64>()).is_ok_and(|packed| packed == value.to_ne_bytes())
}

fn internal(what: &str) -> pleach::Error {
    pleach::Error::Internal { what: what.to_owned() }
}
