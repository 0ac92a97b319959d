//! Memory of the application: where messages are sent from and received to.
//!
//! The interface of libfabric guarantees it: memory that is passed to an operation stays valid, and untouched where the operation
//! writes, until the operation's completion is reported.

use protocol::LentBytes;
use protocol::messaging::LentBytesMut;

use crate::abi::Iovec;

/// Parts of memory that hold one message.
#[derive(Debug)]
pub(crate) struct UserBuffer {
    parts: BufferParts,
}

#[derive(Debug)]
enum BufferParts {
    One(usize, usize),
    Many(Vec<(usize, usize)>),
}

/// The most parts that one operation names.
pub(crate) const MAX_PARTS: usize = 8;

impl UserBuffer {
    pub(crate) fn one(start: *mut u8, length: usize) -> Self {
        Self { parts: BufferParts::One(start as usize, length) }
    }

    /// From a list of parts; none if the list is too long.
    ///
    /// # Safety
    /// `list` has `count` entries.
    pub(crate) unsafe fn from_list(list: *const Iovec, count: usize) -> Option<Self> {
        if count > MAX_PARTS || (count > 0 && list.is_null()) {
            return None;
        }
        // SAFETY: the caller says that the list has so many entries.
        let entries = if count == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(list, count) } };
        Some(match entries {
            [] => Self::one(std::ptr::null_mut(), 0),
            [only] => Self::one(only.base.cast(), only.len),
            several => {
                let parts = several.iter().map(|part| (part.base as usize, part.len)).collect();
                Self { parts: BufferParts::Many(parts) }
            }
        })
    }

    pub(crate) fn len(&self) -> usize {
        match &self.parts {
            BufferParts::One(_, length) => *length,
            BufferParts::Many(parts) => parts.iter().map(|(_, length)| *length).sum(),
        }
    }

    /// The start of the first part.
    pub(crate) fn start(&self) -> *mut u8 {
        match &self.parts {
            BufferParts::One(start, _) => *start as *mut u8,
            BufferParts::Many(parts) => parts[0].0 as *mut u8,
        }
    }

    /// The whole memory, if it is in one part.
    pub(crate) fn whole(&self) -> Option<(*mut u8, usize)> {
        match &self.parts {
            BufferParts::One(start, length) => Some((*start as *mut u8, *length)),
            BufferParts::Many(_) => None,
        }
    }

    /// A range of a buffer of one part.
    pub(crate) fn range(&self, offset: usize, length: usize) -> Self {
        match &self.parts {
            BufferParts::One(start, whole) => {
                assert!(offset + length <= *whole, "the range exceeds the buffer");
                Self { parts: BufferParts::One(start + offset, length) }
            }
            BufferParts::Many(_) => unreachable!("only buffers of one part are divided"),
        }
    }

    fn each(&self, mut call: impl FnMut(*mut u8, usize)) {
        match &self.parts {
            BufferParts::One(start, length) => call(*start as *mut u8, *length),
            BufferParts::Many(parts) => parts.iter().for_each(|(start, length)| call(*start as *mut u8, *length)),
        }
    }

    /// Copies the bytes behind what is there.
    ///
    /// # Safety
    /// The operation that named this memory is not complete.
    pub(crate) unsafe fn append_to(&self, target: &mut Vec<u8>) {
        self.each(|start, length| {
            if length > 0 {
                // SAFETY: the memory is readable until the operation completes.
                target.extend_from_slice(unsafe { std::slice::from_raw_parts(start, length) });
            }
        });
    }

    /// Copies as many bytes as fit into the memory; how many.
    ///
    /// # Safety
    /// The operation that named this memory is not complete.
    pub(crate) unsafe fn write(&self, mut bytes: &[u8]) -> usize {
        let mut written = 0;
        self.each(|start, length| {
            let (now, later) = bytes.split_at(length.min(bytes.len()));
            if !now.is_empty() {
                // SAFETY: the memory is writable until the operation completes, and `bytes` is memory of this library.
                unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, now.len()) };
            }
            written += now.len();
            bytes = later;
        });
        written
    }
}

/// Memory of the application that is sent from, or written to, in place.
#[derive(Debug)]
pub(crate) struct MemoryLoan {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory is plain bytes; the application does not use it while it is lent, whichever thread makes progress.
unsafe impl Send for MemoryLoan {}
// SAFETY: shared references only read.
unsafe impl Sync for MemoryLoan {}

impl MemoryLoan {
    /// # Safety
    /// The memory stays valid, and is not used by others in a conflicting way, until the loan is dropped.
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> Self {
        Self { start: if length == 0 { std::ptr::NonNull::dangling().as_ptr() } else { start }, length }
    }
}

impl LentBytes for MemoryLoan {
    fn bytes(&self) -> &[u8] {
        // SAFETY: `new` was promised that the memory is valid while the loan exists.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl LentBytesMut for MemoryLoan {
    fn bytes(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else uses memory that is lent to a receive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

/// A message that was gathered from several parts.
#[derive(Debug)]
pub(crate) struct GatheredBytes(pub(crate) Vec<u8>);

impl LentBytes for GatheredBytes {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}
