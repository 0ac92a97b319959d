//! Elements that are not contiguous: the native MPI packs and unpacks them.

use crate::collective_call::CollectiveCall;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;

/// Elements in the user's memory.
#[derive(Clone, Copy)]
pub(crate) struct UserElements {
    pub(crate) address: usize,
    pub(crate) count: usize,
    pub(crate) datatype: usize,
    /// Any communicator of the native MPI; it has the same pack format on all of them.
    pub(crate) communicator: usize,
}

impl UserElements {
    /// The elements of a broadcast, whose count is not negative.
    pub(crate) fn of_broadcast(call: &CollectiveCall) -> Self {
        let CollectiveCall { receive: address, datatype, communicator, .. } = *call;
        Self { address, count: call.count as usize, datatype, communicator }
    }
}

/// Packs elements of `bytes` bytes.
pub(crate) fn pack(job: &MpiJob, elements: UserElements, bytes: usize) -> Result<Vec<u8>, pleach::Error> {
    let UserElements { address, count, datatype, communicator } = elements;
    let mut packed = vec![0_u8; bytes];
    let mut position = 0_i32;
    let function = job.mpi.real.Pack.ok_or_else(|| internal("the native MPI has no MPI_Pack"))?;
    // SAFETY: the user's buffer, and room for all its bytes.
    let status = unsafe {
        invoke!(function; address, count, datatype, packed.as_mut_ptr(), bytes, &raw mut position, communicator)
    };
    if status == 0 && usize::try_from(position) == Ok(bytes) { Ok(packed) } else { Err(internal("MPI_Pack failed")) }
}

/// Unpacks them into the user's buffer.
pub(crate) fn unpack(job: &MpiJob, elements: UserElements, packed: &[u8]) -> Result<(), pleach::Error> {
    let UserElements { address, count, datatype, communicator } = elements;
    let mut position = 0_i32;
    let function = job.mpi.real.Unpack.ok_or_else(|| internal("the native MPI has no MPI_Unpack"))?;
    // SAFETY: the user's buffer, and all its bytes.
    let status = unsafe {
        invoke!(function; packed.as_ptr(), packed.len(), &raw mut position, address, count, datatype, communicator)
    };
    if status == 0 { Ok(()) } else { Err(internal("MPI_Unpack failed")) }
}

/// True if the pack format of this MPI is the elements themselves.
pub(crate) fn is_plain(job: &MpiJob) -> bool {
    let value = 0x0102_0304_0506_0708_i64;
    let address = &raw const value as usize;
    let elements = UserElements { address, count: 1, datatype: job.abi.int64, communicator: job.abi.world };
    pack(job, elements, size_of::<i64>()).is_ok_and(|packed| packed == value.to_ne_bytes())
}

fn internal(what: &str) -> pleach::Error {
    pleach::Error::Internal { what: what.to_owned() }
}
