//! The functions of an MPI whose programs go on after a rank's death. `ulfm` says what Pleach does there.

use crate::abi::{AbiFamily, MpiAbi};
use crate::native_mpi::{MpiFunction, NativeMpi, invoke};

/// The functions of this MPI for what follows a failure.
pub(crate) struct Ulfm {
    pub(crate) revoke: MpiFunction,
    is_revoked: MpiFunction,
    pub(crate) shrink: MpiFunction,
    get_failed: MpiFunction,
    pub(crate) call_error_handler: MpiFunction,
    group_size: MpiFunction,
    set_error_handler: MpiFunction,
    errors_return: usize,
}

impl Ulfm {
    /// None unless this job was started with it.
    pub(crate) fn of(mpi: &NativeMpi, abi: &MpiAbi) -> Option<Self> {
        if abi.family != AbiFamily::OpenMpi {
            return None;
        }
        let is_enabled = mpi.library.object("ompi_ftmpi_enabled")?;
        // SAFETY: a `bool` of Open MPI, which does not change after `MPI_Init`.
        if unsafe { *(is_enabled as *const u8) } == 0 {
            return None;
        }
        let function = |name| mpi.library.function(name);
        Some(Self {
            revoke: function("PMPIX_Comm_revoke")?,
            is_revoked: function("PMPIX_Comm_is_revoked")?,
            shrink: function("PMPIX_Comm_shrink")?,
            get_failed: function("PMPIX_Comm_get_failed")?,
            call_error_handler: function("PMPI_Comm_call_errhandler")?,
            group_size: function("PMPI_Group_size")?,
            set_error_handler: function("PMPI_Comm_set_errhandler")?,
            errors_return: mpi.library.object("ompi_mpi_errors_return")?,
        })
    }

    /// The dead ranks of a communicator, as far as the native MPI knows.
    pub(crate) fn failed_ranks(&self, mpi: &NativeMpi, communicator: usize) -> Option<usize> {
        let (mut group, mut size) = (0_usize, 0_i32);
        // SAFETY: the user's communicator, and places for the results.
        unsafe {
            if invoke!(self.get_failed; communicator, &raw mut group) != 0 {
                return None;
            }
            invoke!(self.group_size; group, &raw mut size);
            invoke!(mpi.real.Group_free?; &raw mut group);
        }
        usize::try_from(size).ok()
    }

    /// Errors of calls on a communicator of this library must not end the job.
    pub(crate) fn return_errors(&self, communicator: usize) {
        // SAFETY: our own communicator, and a predefined handler.
        unsafe { invoke!(self.set_error_handler; communicator, self.errors_return) };
    }

    pub(crate) fn is_revoked(&self, communicator: usize) -> bool {
        let mut is_revoked = 0_i32;
        // SAFETY: the user's communicator, and a place for the result.
        let status = unsafe { invoke!(self.is_revoked; communicator, &raw mut is_revoked) };
        status == 0 && is_revoked != 0
    }
}
