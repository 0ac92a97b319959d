//! One side of a call that copies blocks: elements of some datatype in the user's memory, and their bytes.
//!
//! In: the buffer, a count and a datatype. Out: their bytes without gaps, or the elements in place. Elements of one buffer follow each
//! other in steps of the datatype's extent, and so do the blocks of a vector.

use crate::abi::size_of_type;
use crate::collective_call::FallbackReason;
use crate::datatypes::slice;
use crate::mpi_job::MpiJob;
use crate::native_mpi::invoke;
use crate::packing::{self, UserElements};

#[derive(Clone, Copy)]
pub(crate) struct TypedBuffer {
    elements: UserElements,
    /// Bytes of data in one element.
    element_bytes: usize,
    is_contiguous: bool,
}

impl TypedBuffer {
    pub(crate) fn of(
        job: &MpiJob,
        address: usize,
        count: i64,
        datatype: usize,
        communicator: usize,
    ) -> Result<Self, FallbackReason> {
        let count = usize::try_from(count).map_err(|_| FallbackReason::Argument)?;
        let (element_bytes, is_contiguous) = match job.abi.class(job.mpi, datatype) {
            Some(class) => (class.size(), class.is_contiguous()),
            None => (size_of_type(job.mpi, datatype).ok_or(FallbackReason::Type)?, false),
        };
        let elements = UserElements { address, count, datatype, communicator };
        Ok(Self { elements, element_bytes, is_contiguous })
    }

    /// Bytes of data; the largest number if there are more.
    pub(crate) fn bytes(&self) -> usize {
        self.elements.count.saturating_mul(self.element_bytes)
    }

    pub(crate) fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// True if there is no memory at the address. The address zero is `MPI_BOTTOM`, which types with absolute addresses refer to.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.elements.address == 0 && self.is_contiguous
    }

    /// True if there are bytes, but no memory.
    pub(crate) fn is_null(&self) -> bool {
        self.is_nowhere() && self.bytes() > 0
    }

    /// As many blocks as there are ranks, one after the other.
    pub(crate) fn blocks(self, ranks: usize) -> Self {
        let count = self.elements.count * ranks;
        Self { elements: UserElements { count, ..self.elements }, ..self }
    }

    /// The block with this index.
    pub(crate) fn block(self, job: &MpiJob, index: usize) -> Option<Self> {
        let count = self.elements.count;
        self.at(job, i64::try_from(index * count).ok()?, count)
    }

    /// Elements at a displacement, in elements.
    pub(crate) fn at(self, job: &MpiJob, displacement: i64, count: usize) -> Option<Self> {
        let extent = if self.is_contiguous { self.element_bytes as i64 } else { extent_of(job, &self.elements)? };
        let address = self.elements.address.wrapping_add_signed(displacement.wrapping_mul(extent) as isize);
        Some(Self { elements: UserElements { address, count, ..self.elements }, ..self })
    }

    /// Appends the bytes of all elements.
    ///
    /// # Safety
    /// The elements are there.
    pub(crate) unsafe fn load_into(&self, job: &MpiJob, into: &mut Vec<u8>) -> Result<(), pleach::Error> {
        let (address, bytes) = (self.elements.address, self.bytes());
        if bytes > 0 && self.is_contiguous {
            // SAFETY: the caller guarantees it.
            into.extend_from_slice(unsafe { slice(address as *const u8, bytes) });
        } else if bytes > 0 {
            let packed = packing::pack(job, self.elements, bytes)?;
            if into.is_empty() { *into = packed } else { into.extend_from_slice(&packed) }
        }
        Ok(())
    }

    /// Stores the bytes of all elements. What is between the elements stays unchanged.
    ///
    /// # Safety
    /// There is room for the elements.
    pub(crate) unsafe fn store(&self, job: &MpiJob, bytes: &[u8]) -> Result<(), pleach::Error> {
        assert_eq!(bytes.len(), self.bytes(), "a result is as long as the buffer for it");
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.is_contiguous {
            return packing::unpack(job, self.elements, bytes);
        }
        // SAFETY: the caller guarantees it.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(self.elements.address as *mut u8, bytes.len()) };
        Ok(())
    }
}

/// Bytes from one element to the next.
fn extent_of(job: &MpiJob, elements: &UserElements) -> Option<i64> {
    let (mut lower_bound, mut extent) = (0_i64, 0_i64);
    let function = job.mpi.real.Type_get_extent?;
    // SAFETY: a datatype of which the native MPI knows the size, and places for both results.
    let status = unsafe { invoke!(function; elements.datatype, &raw mut lower_bound, &raw mut extent) };
    (status == 0).then_some(extent)
}
