//! Memory of the application that peers may use.

use crate::abi::FI_REMOTE_READ;

/// Memory that peers may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredMemory {
    pub(crate) start: usize,
    pub(crate) length: usize,
    pub(crate) access: u64,
}

impl RegisteredMemory {
    /// The start of a part that may be read; none if it is not within the memory.
    pub(crate) fn readable(&self, offset: u64, length: u64) -> Option<*mut u8> {
        let end = offset.checked_add(length)?;
        let is_allowed = self.access & FI_REMOTE_READ != 0 && end <= self.length as u64;
        is_allowed.then(|| (self.start + offset as usize) as *mut u8)
    }
}
