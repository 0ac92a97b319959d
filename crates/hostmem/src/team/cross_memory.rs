//! Reaching into the memory of the other ranks' processes, as the kernel allows it among processes of one user.
//!
//! Each rank says which process it is and where in its memory its own block of the region lies. Whoever reads there what it sees
//! in its own mapping has the right process and the right to do it. Processes in other namespaces, and systems that
//! forbid it, fail this test; then vectors go through the pipe.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::libc;

/// How the others reach a rank, and whether it reaches them.
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

/// What one rank knows of the others' memory.
pub(super) struct CrossMemory {
    /// Their processes, once tried.
    processes: Box<[u32]>,
    /// All ranks reach all.
    is_mutual: bool,
    /// A buffer of our own that can be reached: where, and how long.
    reachable: (u64, usize),
}

impl CrossMemoryContact {
    /// Says where this contact itself lies, in the caller's memory.
    pub(super) fn introduce(&self) {
        self.process.store(std::process::id(), Ordering::Relaxed);
        self.address.store(std::ptr::from_ref(self).addr() as u64, Ordering::Release);
    }

    /// As if the kernel did not let this rank reach the others.
    #[cfg(test)]
    pub(super) fn forbid(&self) {
        self.reaches_all.store(FAILS, Ordering::Release);
    }

    /// The process, if its memory can be reached and is the right one.
    fn try_reach(&self) -> Option<u32> {
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

    /// All ranks can reach all others. Tries it, once all have come; until the others have tried it as well, the answer is no.
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
            let tried: Option<Box<[u32]>> = contacts.clone().map(CrossMemoryContact::try_reach).collect();
            mine.reaches_all.store(if tried.is_some() { REACHES } else { FAILS }, Ordering::Release);
            self.processes = tried.unwrap_or_default();
        }
        self.is_mutual =
            contacts.map(|contact| contact.reaches_all.load(Ordering::Acquire)).all(|all| all == REACHES);
        self.is_mutual
    }

    /// A buffer of ours can be reached. Not every memory can: a device's may not.
    pub(super) fn is_reachable(&mut self, buffer: &[u8]) -> bool {
        let (address, length) = (buffer.as_ptr().addr() as u64, buffer.len());
        if length == 0 || self.reachable == (address, length) {
            return length > 0; // Most are used again and again.
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
    /// If the process is gone or the address is none of its.
    pub(super) fn pull(&self, rank: usize, address: u64, here: &mut [u8]) -> io::Result<()> {
        copy_from(self.process(rank)?, address, here)
    }

    /// Copies into the memory of another rank, which has claimed nothing there for itself.
    ///
    /// # Errors
    /// If the process is gone or the address is none of its.
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
    // SAFETY: the kernel writes to `here`, within its length; the other address is looked up in the other process.
    let copied = unsafe { libc::process_vm_readv(process as libc::pid_t, &raw const near, 1, &raw const far, 1, 0) };
    whole(copied, here.len())
}

fn copy_to(process: u32, address: u64, here: &[u8]) -> io::Result<()> {
    let near = libc::iovec { iov_base: here.as_ptr().cast_mut().cast(), iov_len: here.len() };
    let far = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: here.len() };
    // SAFETY: the kernel reads `here`, within its length. What it writes to is a block of a buffer that the other rank has lent
    // for this operation and that nobody else uses, by the protocol of `door`.
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
