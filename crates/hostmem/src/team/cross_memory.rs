//! Copies between the memory of the ranks' processes (cross memory attach), as the kernel allows it for one user.
//!
//! Each rank publishes its process id and the address of its own block of the region. A rank that reads there the same bytes
//! as in its own mapping has the right process and the permission. In other namespaces, or where the system forbids it, the
//! test fails; vectors then go through the pipeline.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::libc;

/// How other ranks reach a rank's memory, and whether it reaches theirs.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct CrossMemoryContact {
    process: AtomicU32,
    reaches_all: AtomicU32,
    address: AtomicU64,
}

const UNTRIED: u32 = 0;
const REACHES: u32 = 1;
const FAILS: u32 = 2;

/// What one rank knows about the other ranks' memory.
pub(super) struct CrossMemory {
    /// Their process ids, after the test.
    processes: Box<[u32]>,
    /// All ranks reach all.
    is_mutual: bool,
    /// A local buffer that other ranks can reach: address and length.
    reachable: (u64, usize),
}

impl CrossMemoryContact {
    /// Publishes the process id and the address of this contact in the caller's memory.
    pub(super) fn publish_address(&self) {
        self.process.store(std::process::id(), Ordering::Relaxed);
        self.address.store(std::ptr::from_ref(self).addr() as u64, Ordering::Release);
    }

    /// As if the kernel did not let this rank reach the others.
    #[cfg(test)]
    pub(super) fn forbid(&self) {
        self.reaches_all.store(FAILS, Ordering::Release);
    }

    /// The process id, if its memory is reachable and is the right one.
    fn probe(&self) -> Option<u32> {
        let (process, address) = (self.process.load(Ordering::Relaxed), self.address.load(Ordering::Acquire));
        let mut seen = [0; 16];
        copy_from(process, address, &mut seen).ok()?;
        let [there, _, low, high] =
            [0, 4, 8, 12].map(|at| u32::from_ne_bytes([seen[at], seen[at + 1], seen[at + 2], seen[at + 3]]));
        (there == process && u64::from(high) << 32 | u64::from(low) == address).then_some(process)
    }
}

impl CrossMemory {
    pub(super) fn new() -> Self {
        Self { processes: Box::default(), is_mutual: false, reachable: (0, 0) }
    }

    /// All ranks can reach all others. Tests it once all ranks have joined; false until the others have tested it too.
    pub(super) fn is_mutual<'c>(
        &mut self,
        me: usize,
        contacts: impl Iterator<Item = &'c CrossMemoryContact> + Clone,
    ) -> bool {
        if self.is_mutual {
            return true;
        }
        let mine = contacts.clone().nth(me).expect("every rank has a contact");
        if mine.reaches_all.load(Ordering::Relaxed) == UNTRIED {
            let tried: Option<Box<[u32]>> = contacts.clone().map(CrossMemoryContact::probe).collect();
            mine.reaches_all.store(if tried.is_some() { REACHES } else { FAILS }, Ordering::Release);
            self.processes = tried.unwrap_or_default();
        }
        self.is_mutual =
            contacts.map(|contact| contact.reaches_all.load(Ordering::Acquire)).all(|all| all == REACHES);
        self.is_mutual
    }

    /// Other ranks can reach a local buffer. Memory of a device may be out of reach.
    pub(super) fn is_reachable(&mut self, buffer: &[u8]) -> bool {
        let (address, length) = (buffer.as_ptr().addr() as u64, buffer.len());
        if length == 0 || self.reachable == (address, length) {
            return length > 0; // Most buffers are reused.
        }
        let ends = [address, address + length as u64 - 1];
        let is_so = ends.iter().all(|&end| copy_from(std::process::id(), end, &mut [0]).is_ok());
        if is_so {
            self.reachable = (address, length);
        }
        is_so
    }

    /// Copies from the memory of another rank.
    ///
    /// # Errors
    /// If the process is gone or the address is not mapped there.
    pub(super) fn pull(&self, rank: usize, address: u64, here: &mut [u8]) -> io::Result<()> {
        copy_from(self.process(rank)?, address, here)
    }

    /// Copies into a block of another rank's memory that this rank has claimed.
    ///
    /// # Errors
    /// If the process is gone or the address is not mapped there.
    pub(super) fn push(&self, rank: usize, address: u64, here: &[u8]) -> io::Result<()> {
        copy_to(self.process(rank)?, address, here)
    }

    fn process(&self, rank: usize) -> io::Result<u32> {
        self.processes.get(rank).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }
}

fn copy_from(process: u32, address: u64, here: &mut [u8]) -> io::Result<()> {
    let near = libc::iovec { iov_base: here.as_mut_ptr().cast(), iov_len: here.len() };
    let far = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: here.len() };
    // SAFETY: the kernel writes to `here`, within its length; it looks the other address up in the other process.
    let copied = unsafe { libc::process_vm_readv(process as libc::pid_t, &raw const near, 1, &raw const far, 1, 0) };
    whole(copied, here.len())
}

fn copy_to(process: u32, address: u64, here: &[u8]) -> io::Result<()> {
    let near = libc::iovec { iov_base: here.as_ptr().cast_mut().cast(), iov_len: here.len() };
    let far = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: here.len() };
    // SAFETY: the kernel reads `here`, within its length. It writes to a block of a buffer that the other rank has exposed for
    // this operation and that only this rank uses, by the protocol of `block_claims`.
    let copied = unsafe { libc::process_vm_writev(process as libc::pid_t, &raw const near, 1, &raw const far, 1, 0) };
    whole(copied, here.len())
}

fn whole(copied: isize, length: usize) -> io::Result<()> {
    match copied {
        -1 => Err(io::Error::last_os_error()),
        copied if copied as usize == length => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
