//! Completion queues, counters and address vectors: what the endpoints of a domain share.

use std::collections::{HashMap, VecDeque};
use std::ffi::c_void;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::BorrowedFd;

use crate::abi::{FiAddr, FiCqTaggedEntry};
use crate::endpoint_address::EndpointAddress;
use crate::registered_memory::RegisteredMemory;

/// Unread completions of a queue beyond which operations are refused.
pub(crate) const MAX_UNREAD: usize = 1 << 17;
/// Descriptions of losses that are kept.
const MAX_LOSSES: usize = 4096;
/// The number that libfabric gets for the first loss; smaller ones are [`crate::abi`]'s errors.
const FIRST_LOSS: i32 = 1000;

/// A completion.
#[derive(Clone, Copy)]
pub(crate) struct CompletionEntry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) length: usize,
    pub(crate) buffer: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// The sender of a received message: its identity and the address vector in which to look for it.
    pub(crate) source: Option<(usize, u64)>,
}

impl CompletionEntry {
    pub(crate) fn to_abi(self) -> FiCqTaggedEntry {
        FiCqTaggedEntry {
            op_context: self.context as *mut c_void,
            flags: self.flags,
            len: self.length,
            buf: self.buffer as *mut c_void,
            data: self.data,
            tag: self.tag,
        }
    }
}

/// A failed operation.
#[derive(Clone, Copy)]
pub(crate) struct ErrorEntry {
    pub(crate) entry: CompletionEntry,
    /// Bytes that did not fit.
    pub(crate) excess: usize,
    pub(crate) error: i32,
    pub(crate) detail: i32,
}

pub(crate) struct CompletionQueue {
    pub(crate) format: i32,
    pub(crate) entries: VecDeque<CompletionEntry>,
    pub(crate) errors: VecDeque<ErrorEntry>,
    /// Endpoints that report here.
    pub(crate) endpoints: Vec<usize>,
    pub(crate) wait: Option<WaitObject>,
    is_signalled: bool,
}

/// What a thread sleeps on: readable while packets or completions wait.
pub(crate) struct WaitObject {
    pub(crate) epoll: Epoll,
    event: EventFd,
    is_raised: bool,
}

impl WaitObject {
    pub(crate) fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&event, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self { epoll, event, is_raised: false })
    }

    /// Packets of an endpoint wake the waiting thread too.
    pub(crate) fn add_endpoint(&self, descriptor: BorrowedFd<'_>) -> nix::Result<()> {
        self.epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, 1))
    }

    pub(crate) fn raise(&mut self) {
        if !std::mem::replace(&mut self.is_raised, true) {
            let _ = self.event.write(1); // It fails only if it is raised already.
        }
    }

    fn lower(&mut self) {
        if std::mem::take(&mut self.is_raised) {
            let _ = self.event.read();
        }
    }
}

impl CompletionQueue {
    pub(crate) fn new(format: i32, wait: Option<WaitObject>) -> Self {
        Self {
            format,
            entries: VecDeque::new(),
            errors: VecDeque::new(),
            endpoints: Vec::new(),
            wait,
            is_signalled: false,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.errors.is_empty()
    }

    /// Nothing is left to read: a waiting thread may sleep.
    pub(crate) fn settle(&mut self) {
        if self.is_empty()
            && let Some(wait) = &mut self.wait
        {
            wait.lower();
        }
    }

    /// Ends the wait of a thread.
    pub(crate) fn signal(&mut self) {
        self.is_signalled = true;
        self.raise();
    }

    /// Whether the wait was ended by [`Self::signal`]; only once.
    pub(crate) fn take_signal(&mut self) -> bool {
        let was_signalled = std::mem::take(&mut self.is_signalled);
        if was_signalled {
            self.settle();
        }
        was_signalled
    }

    fn raise(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.raise();
        }
    }
}

#[derive(Default)]
pub(crate) struct CompletionCounter {
    pub(crate) value: u64,
    pub(crate) errors: u64,
    pub(crate) endpoints: Vec<usize>,
}

#[derive(Default)]
pub(crate) struct AddressVector {
    entries: Vec<Option<EndpointAddress>>,
    by_identity: HashMap<u64, FiAddr>,
    pub(crate) event_queue: Option<usize>,
}

impl AddressVector {
    pub(crate) fn insert(&mut self, address: EndpointAddress) -> FiAddr {
        let handle = self.entries.len() as FiAddr;
        self.by_identity.insert(address.identity, handle);
        self.entries.push(Some(address));
        handle
    }

    pub(crate) fn get(&self, handle: FiAddr) -> Option<&EndpointAddress> {
        self.entries.get(usize::try_from(handle).ok()?)?.as_ref()
    }

    pub(crate) fn remove(&mut self, handle: FiAddr) -> bool {
        let entry = usize::try_from(handle).ok().and_then(|handle| self.entries.get_mut(handle));
        let Some(address) = entry.and_then(Option::take) else { return false };
        if self.by_identity.get(&address.identity) == Some(&handle) {
            self.by_identity.remove(&address.identity);
        }
        true
    }

    /// The endpoints that it names.
    pub(crate) fn identities(&self) -> impl Iterator<Item = u64> {
        self.by_identity.keys().copied()
    }

    pub(crate) fn handle_of(&self, identity: u64) -> Option<FiAddr> {
        self.by_identity.get(&identity).copied()
    }
}

/// Objects by number.
pub(crate) struct Slots<T>(Vec<Option<T>>);

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Slots<T> {
    pub(crate) fn add(&mut self, object: T) -> usize {
        match self.0.iter().position(Option::is_none) {
            Some(free) => {
                self.0[free] = Some(object);
                free
            }
            None => {
                self.0.push(Some(object));
                self.0.len() - 1
            }
        }
    }

    pub(crate) fn get(&self, number: usize) -> Option<&T> {
        self.0.get(number)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.0.get_mut(number)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: usize) -> Option<T> {
        self.0.get_mut(number)?.take()
    }

    pub(crate) fn numbers(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|number| self.0[*number].is_some()).collect()
    }
}

/// What endpoints report to.
#[derive(Default)]
pub(crate) struct Queues {
    pub(crate) completions: Slots<CompletionQueue>,
    pub(crate) counters: Slots<CompletionCounter>,
    pub(crate) vectors: Slots<AddressVector>,
    /// Memory that peers may use, by key.
    pub(crate) regions: HashMap<u64, RegisteredMemory>,
    losses: Vec<String>,
}

impl Queues {
    /// Keeps the description of a loss; returns its number.
    pub(crate) fn note_loss(&mut self, why: &str) -> i32 {
        if let Some(known) = self.losses.iter().position(|loss| loss == why) {
            return FIRST_LOSS + known as i32;
        }
        if self.losses.len() < MAX_LOSSES {
            self.losses.push(why.to_owned());
        }
        FIRST_LOSS + self.losses.len() as i32 - 1
    }

    pub(crate) fn loss(&self, number: i32) -> Option<&str> {
        let index = usize::try_from(number.checked_sub(FIRST_LOSS)?).ok()?;
        self.losses.get(index).map(String::as_str)
    }

    /// Reports a completion to a queue and a counter.
    pub(crate) fn complete(&mut self, queue: Option<usize>, counter: Option<usize>, entry: Option<CompletionEntry>) {
        if let Some(counter) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            counter.value += 1;
        }
        if let (Some(entry), Some(queue)) = (entry, queue.and_then(|queue| self.completions.get_mut(queue))) {
            queue.entries.push_back(entry);
            queue.raise();
        }
    }

    /// Reports a failure to a queue and a counter.
    pub(crate) fn fail(&mut self, queue: Option<usize>, counter: Option<usize>, error: ErrorEntry) {
        if let Some(counter) = counter.and_then(|counter| self.counters.get_mut(counter)) {
            counter.errors += 1;
        }
        if let Some(queue) = queue.and_then(|queue| self.completions.get_mut(queue)) {
            queue.errors.push_back(error);
            queue.raise();
        }
    }

    /// Whether a queue has so many unread completions that operations must wait.
    pub(crate) fn is_full(&self, queue: Option<usize>) -> bool {
        let found = queue.and_then(|queue| self.completions.get(queue));
        found.is_some_and(|queue| queue.entries.len() + queue.errors.len() >= MAX_UNREAD)
    }
}
