//! Profilers: libraries that define `MPI_X`, count or time the call, and call `PMPI_X`.
//!
//! One that is preloaded before this library calls us anyway. One that the program is linked with comes after us in the linker's order:
//! our `MPI_X` calls its `MPI_X`, and its `PMPI_X` is ours.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::native_mpi::{MpiFunction, is_mpi_library, mpi, next_function};

/// A profiler's function of one name, looked up at the first call.
pub(crate) struct ProfilerFunction {
    mpi_name: &'static str,
    pmpi_name: &'static str,
    /// [`UNKNOWN`], [`NONE`] or its address.
    address: AtomicUsize,
}

const UNKNOWN: usize = 0;
const NONE: usize = 1;

impl ProfilerFunction {
    pub(crate) const fn new(mpi_name: &'static str, pmpi_name: &'static str) -> Self {
        Self { mpi_name, pmpi_name, address: AtomicUsize::new(UNKNOWN) }
    }

    /// The function; none without a profiler.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<MpiFunction> {
        match self.address.load(Ordering::Relaxed) {
            NONE => None,
            UNKNOWN => self.find(),
            address => Some(MpiFunction::at(address)),
        }
    }

    #[cold]
    fn find(&self) -> Option<MpiFunction> {
        let found = next_function(self.mpi_name).filter(|found| !self.is_of_mpi(*found));
        self.address.store(found.map_or(NONE, |found| found.address() as usize), Ordering::Relaxed);
        found
    }

    /// True for a function of the native MPI itself: its library also has `PMPI_X`, or has one of the usual names.
    fn is_of_mpi(&self, found: MpiFunction) -> bool {
        let library = &mpi().library;
        let file = library.file_of(found);
        is_mpi_library(&file) || next_function(self.pmpi_name).is_some_and(|other| library.file_of(other) == file)
    }
}
