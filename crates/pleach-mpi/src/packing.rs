//! Broadcasts of elements that do not lie one behind the other: the MPI packs and unpacks them.

use crate::collective_call::CollectiveCall;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;

/// The elements of the root's buffer, one behind the other.
pub(crate) fn pack(job: &MpiJob, call: &CollectiveCall, bytes: usize) -> Result<Vec<u8>, pleach::Error> {
    let mut packed = vec![0_u8; bytes];
    let mut position = 0_i32;
    let function = job.mpi.real.Pack.ok_or_else(|| broken("the MPI has no MPI_Pack"))?;
    // SAFETY: the user's buffer, and a place for all its bytes.
    let status = unsafe {
        invoke!(function; call.receive, call.count, call.datatype, packed.as_mut_ptr(), bytes, &raw mut position, call.communicator)
    };
    if status == 0 && usize::try_from(position) == Ok(bytes) { Ok(packed) } else { Err(broken("MPI_Pack failed")) }
}

/// Puts them where they belong.
pub(crate) fn unpack(job: &MpiJob, call: &CollectiveCall, packed: &[u8]) -> Result<(), pleach::Error> {
    let mut position = 0_i32;
    let function = job.mpi.real.Unpack.ok_or_else(|| broken("the MPI has no MPI_Unpack"))?;
    // SAFETY: the user's buffer, and all its bytes.
    let status = unsafe {
        invoke!(function; packed.as_ptr(), packed.len(), &raw mut position, call.receive, call.count, call.datatype, call.communicator)
    };
    if status == 0 { Ok(()) } else { Err(broken("MPI_Unpack failed")) }
}

/// True if this MPI packs nothing but the elements themselves.
pub(crate) fn is_plain(job: &MpiJob) -> bool {
    let value = 0x0102_0304_0506_0708_i64;
    let call = CollectiveCall {
        verb: crate::collective_call::MpiCollective::Broadcast,
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

fn broken(what: &str) -> pleach::Error {
    pleach::Error::Broken { what: what.to_owned() }
}
