//! Elan3lib and Elanlib as programs on the simulated hosts see them: virtual process ids, memory that the adapters translate,
//! allocation at the same virtual address on all nodes, and groups (QN-1, QN-6, QN-8, QN-10).
//!
//! In: processes, their allocations, operations of groups. Out: the location of an address, and the duration of a transfer or a
//! broadcast on an [`ElanCluster`]. The address determines the buffers of a broadcast: data at the same address on all nodes
//! is stored in place, all other data goes through the system's buffers.

use std::collections::BTreeMap;
use std::fmt;

use protocol::collective::quadrics::{BroadcastSynchronization, QuadricsMembers, QuadricsMembersError};
use units::{Rank, SimSpan};

use super::costs::MemoryLocation;
use super::{BroadcastBuffers, ElanCluster, ElanCollective, ElanTransport, ElanWorkload, HostWakeup};

/// A process, by its number in the job; descriptors name it instead of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Vpid(pub u32);

/// A virtual address of a process, which the adapter's memory management unit translates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ElanAddress(pub u64);

/// The size of a page.
const PAGE: u64 = 8 << 10;
/// The first address of each kind of memory, the same for all processes.
const MAIN_BASE: u64 = 0x1000_0000;
pub(super) const ELAN_BASE: u64 = 0x4000_0000_0000;
/// The memory of an adapter.
pub(super) const ELAN_BYTES: u64 = 64 << 20;
/// The memory of a host (QN-11).
const MAIN_BYTES: u64 = 8 << 30;

/// An operation that takes longer counts as hanging.
pub(super) const PATIENCE: SimSpan = SimSpan::from_micros(1_000_000);

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElanLibraryError {
    /// There is no such process.
    NoProcess(Vpid),
    /// The memory is full.
    NoMemory,
    /// The address is not mapped in this process.
    Unmapped(Vpid, ElanAddress),
    /// A multicast reaches one context of a node, which another group uses (QN-6).
    ContextTaken {
        /// The node.
        node: u32,
    },
    /// These processes do not form a valid group.
    NoGroup(QuadricsMembersError),
    /// The operation did not end in time, or the network has no such nodes.
    NotDone,
}

impl fmt::Display for ElanLibraryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess(vpid) => write!(f, "process {} does not exist", vpid.0),
            Self::NoMemory => f.write_str("the memory is full"),
            Self::Unmapped(vpid, address) => write!(f, "process {} has no mapping at {:#x}", vpid.0, address.0),
            Self::ContextTaken { node } => write!(f, "node {node} already receives multicasts for another group"),
            Self::NoGroup(error) => error.fmt(f),
            Self::NotDone => f.write_str("the operation does not end"),
        }
    }
}

impl std::error::Error for ElanLibraryError {}

/// The memory of one process: its allocations, in pages.
#[derive(Debug, Default)]
struct ElanHeap {
    /// The size of each mapping, by its first address.
    mappings: BTreeMap<u64, u64>,
}

impl ElanHeap {
    /// The first address after all mappings of a kind of memory.
    fn top(&self, memory: MemoryLocation) -> u64 {
        let (base, size) = extent(memory);
        let last = self.mappings.range(base..base + size).next_back();
        last.map_or(base, |(start, bytes)| start + bytes)
    }

    fn covers(&self, address: ElanAddress, bytes: u64) -> Option<MemoryLocation> {
        let (start, mapped) = self.mappings.range(..=address.0).next_back()?;
        let is_inside = address.0.checked_add(bytes)? <= start + mapped;
        is_inside.then_some(if *start >= ELAN_BASE { MemoryLocation::Elan } else { MemoryLocation::Main })
    }
}

const fn extent(memory: MemoryLocation) -> (u64, u64) {
    match memory {
        MemoryLocation::Main => (MAIN_BASE, MAIN_BYTES),
        MemoryLocation::Elan => (ELAN_BASE, ELAN_BYTES),
    }
}

/// A group of processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ElanGroup {
    /// Ascending.
    processes: Vec<Vpid>,
    /// The number of processes on each of the group's nodes.
    per_node: u32,
    members: QuadricsMembers,
}

impl ElanGroup {
    /// The members.
    pub fn processes(&self) -> &[Vpid] {
        &self.processes
    }

    /// Whether one multicast reaches exactly its nodes.
    pub fn is_contiguous(&self) -> bool {
        self.members.contiguous().is_some()
    }
}

/// The processes of a job and their memory.
#[derive(Debug)]
pub struct ElanLibrary {
    per_node: u32,
    heaps: Vec<ElanHeap>,
    /// The context of each node that receives multicasts.
    receivers: BTreeMap<u32, u32>,
}

impl ElanLibrary {
    /// A job with `per_node` processes on each of `nodes` nodes; process `n` is on node `n / per_node`.
    pub fn new(nodes: u32, per_node: u32) -> Self {
        let per_node = per_node.max(1);
        let processes = nodes.saturating_mul(per_node) as usize;
        Self {
            per_node,
            heaps: std::iter::repeat_with(ElanHeap::default).take(processes).collect(),
            receivers: BTreeMap::new(),
        }
    }

    /// The node of a process, and its context there.
    ///
    /// # Errors
    /// There is no such process.
    pub fn place(&self, vpid: Vpid) -> Result<(u32, u32), ElanLibraryError> {
        let exists = (vpid.0 as usize) < self.heaps.len();
        exists.then_some((vpid.0 / self.per_node, vpid.0 % self.per_node)).ok_or(ElanLibraryError::NoProcess(vpid))
    }

    /// Allocates memory of one process at any address.
    ///
    /// # Errors
    /// There is no such process, or no room.
    pub fn allocate(
        &mut self,
        vpid: Vpid,
        bytes: u64,
        memory: MemoryLocation,
    ) -> Result<ElanAddress, ElanLibraryError> {
        self.place(vpid)?;
        self.map(&[vpid], bytes, memory)
    }

    /// Allocates at the same virtual address for all of a group: after the allocations of each.
    ///
    /// # Errors
    /// One process has no room there.
    pub fn allocate_global(
        &mut self,
        group: &ElanGroup,
        bytes: u64,
        memory: MemoryLocation,
    ) -> Result<ElanAddress, ElanLibraryError> {
        self.map(&group.processes, bytes, memory)
    }

    fn map(
        &mut self,
        processes: &[Vpid],
        bytes: u64,
        memory: MemoryLocation,
    ) -> Result<ElanAddress, ElanLibraryError> {
        let (base, size) = extent(memory);
        let tops = processes.iter().map(|vpid| self.heaps[vpid.0 as usize].top(memory));
        let start = tops.max().unwrap_or(base);
        let length = bytes.max(1).checked_next_multiple_of(PAGE).ok_or(ElanLibraryError::NoMemory)?;
        if length > size || start > base + size - length {
            return Err(ElanLibraryError::NoMemory);
        }
        for vpid in processes {
            self.heaps[vpid.0 as usize].mappings.insert(start, length);
        }
        Ok(ElanAddress(start))
    }

    /// Frees the allocation at an address; returns whether there was one.
    pub fn free(&mut self, vpid: Vpid, address: ElanAddress) -> bool {
        self.heaps.get_mut(vpid.0 as usize).is_some_and(|heap| heap.mappings.remove(&address.0).is_some())
    }

    /// Translates an address, as the memory management unit of a process's adapter does.
    ///
    /// # Errors
    /// The range is not mapped, or only in part.
    pub fn translate(
        &self,
        vpid: Vpid,
        address: ElanAddress,
        bytes: u64,
    ) -> Result<MemoryLocation, ElanLibraryError> {
        self.place(vpid)?;
        self.heaps[vpid.0 as usize].covers(address, bytes).ok_or(ElanLibraryError::Unmapped(vpid, address))
    }

    /// Creates a group: one context of each node, or all contexts of every node; the first process is the root.
    ///
    /// # Errors
    /// The processes do not form a valid group, or another group's context receives on one of their nodes.
    pub fn group(&mut self, processes: &[Vpid], arity: u32) -> Result<ElanGroup, ElanLibraryError> {
        let places = processes.iter().map(|vpid| self.place(*vpid)).collect::<Result<Vec<_>, _>>()?;
        let mut contexts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        places.iter().for_each(|(node, context)| contexts.entry(*node).or_default().push(*context));
        let per_node = contexts.values().map(Vec::len).max().unwrap_or(0);
        if contexts.values().any(|contexts| contexts.len() != per_node) {
            return Err(ElanLibraryError::NoGroup(QuadricsMembersError::NotAscending));
        }
        let receiver = |contexts: &[u32]| contexts.iter().copied().min().unwrap_or(0);
        let taken = contexts
            .iter()
            .find(|(node, contexts)| self.receivers.get(node).is_some_and(|context| *context != receiver(contexts)));
        if let Some((node, _)) = taken {
            return Err(ElanLibraryError::ContextTaken { node: *node });
        }
        let nodes: Vec<u32> = contexts.keys().copied().collect();
        let members = QuadricsMembers::list(nodes, Rank(0), arity).map_err(ElanLibraryError::NoGroup)?;
        self.receivers.extend(contexts.iter().map(|(node, contexts)| (*node, receiver(contexts))));
        let mut processes = processes.to_vec();
        processes.sort_unstable();
        Ok(ElanGroup { processes, per_node: per_node as u32, members })
    }

    /// Ends a group: its nodes may receive for other groups again.
    pub fn disband(&mut self, group: &ElanGroup) {
        for vpid in &group.processes {
            self.receivers.remove(&(vpid.0 / self.per_node));
        }
    }

    /// A remote DMA between two processes; returns the time from the command until the receiver's host sees it.
    ///
    /// # Errors
    /// An address is not mapped at its end, or the network has no such nodes.
    pub fn put(
        &self,
        cluster: &mut ElanCluster,
        (from, source): (Vpid, ElanAddress),
        (to, destination): (Vpid, ElanAddress),
        bytes: u32,
    ) -> Result<SimSpan, ElanLibraryError> {
        let memory = self.slowest_memory(&[(from, source), (to, destination)], bytes)?;
        let (from, to) = (self.place(from)?.0, self.place(to)?.0);
        cluster.ping(from, to, bytes, memory, ElanTransport::Rdma).ok_or(ElanLibraryError::NotDone)
    }

    /// The slowest memory among several ranges of this size.
    pub(super) fn slowest_memory(
        &self,
        places: &[(Vpid, ElanAddress)],
        bytes: u32,
    ) -> Result<MemoryLocation, ElanLibraryError> {
        let mut slower = MemoryLocation::Elan;
        for (vpid, address) in places {
            slower = slower.max(self.translate(*vpid, *address, bytes.into())?);
        }
        Ok(slower)
    }

    /// Runs `calls` barriers of a group, back to back: *gsync*, or a polled barrier if one multicast reaches exactly its nodes
    /// (*hgsync*). Returns which it was, and the duration of each call at the root.
    ///
    /// # Errors
    /// It does not end within a second of virtual time per call.
    pub fn barrier(
        &self,
        cluster: &mut ElanCluster,
        group: &ElanGroup,
        (synchronisation, wake, calls): (BroadcastSynchronization, HostWakeup, u32),
    ) -> Result<(BroadcastSynchronization, Vec<SimSpan>), ElanLibraryError> {
        let (operation, how) = match synchronisation {
            BroadcastSynchronization::Poll(back_off) if group.is_contiguous() => {
                (ElanCollective::PolledBarrier { wake, back_off }, synchronisation)
            }
            _ => (ElanCollective::TreeBarrier, BroadcastSynchronization::Tree),
        };
        let task = ElanWorkload {
            operation,
            members: group.members.clone(),
            processes: group.per_node,
            multicast_root: 0,
            calls,
            patience: PATIENCE.times(u64::from(calls)),
        };
        Ok((how, cluster.run(&task).ok_or(ElanLibraryError::NotDone)?))
    }

    /// Runs `calls` broadcasts from the group's root: in place if all have the address, else through the system's buffers.
    ///
    /// # Errors
    /// The address is not mapped at the root, or it does not end within a second of virtual time per call.
    pub fn broadcast(
        &self,
        cluster: &mut ElanCluster,
        group: &ElanGroup,
        address: ElanAddress,
        bytes: u32,
        (synchronisation, calls): (BroadcastSynchronization, u32),
    ) -> Result<(BroadcastBuffers, Vec<SimSpan>), ElanLibraryError> {
        let root = *group.processes.first().ok_or(ElanLibraryError::NoGroup(QuadricsMembersError::Empty))?;
        let memory = self.translate(root, address, bytes.into())?;
        let has_it = |vpid: &Vpid| self.translate(*vpid, address, bytes.into()) == Ok(memory);
        let buffers =
            if group.processes.iter().all(has_it) { BroadcastBuffers::Global } else { BroadcastBuffers::System };
        let task = ElanWorkload {
            operation: ElanCollective::Broadcast { synchronisation, bytes, memory, buffers },
            members: group.members.clone(),
            processes: group.per_node,
            multicast_root: 0,
            calls,
            patience: PATIENCE.times(u64::from(calls)),
        };
        Ok((buffers, cluster.run(&task).ok_or(ElanLibraryError::NotDone)?))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{costs, fabric};
    use super::*;
    use protocol::collective::quadrics::PollBackoff;

    fn all(nodes: u32, per_node: u32) -> Vec<Vpid> {
        (0..nodes * per_node).map(Vpid).collect()
    }

    #[test]
    fn global_memory_has_the_same_address_for_all_processes() {
        let mut library = ElanLibrary::new(4, 2);
        let group = library.group(&all(4, 2), 4).expect("the group is valid");
        for (vpid, bytes) in [(0, 100), (3, 50_000), (3, 8_192), (7, 1)] {
            library.allocate(Vpid(vpid), bytes, MemoryLocation::Main).expect("the memory has room");
        }
        let address = library.allocate_global(&group, 10_000, MemoryLocation::Main).expect("the memory has room");
        let elan = library.allocate_global(&group, 64, MemoryLocation::Elan).expect("the memory has room");
        for vpid in all(4, 2) {
            assert_eq!(library.translate(vpid, address, 10_000), Ok(MemoryLocation::Main));
            assert_eq!(library.translate(vpid, elan, 64), Ok(MemoryLocation::Elan));
            let beyond = ElanAddress(address.0 + (64 << 10));
            assert_eq!(library.translate(vpid, beyond, 1), Err(ElanLibraryError::Unmapped(vpid, beyond)));
        }
        assert!(library.free(Vpid(5), address) && !library.free(Vpid(5), address));
        assert_eq!(library.translate(Vpid(5), address, 1), Err(ElanLibraryError::Unmapped(Vpid(5), address)));
    }

    #[test]
    fn a_full_memory_rejects_allocations() {
        let mut library = ElanLibrary::new(2, 1);
        assert_eq!(library.allocate(Vpid(0), ELAN_BYTES + 1, MemoryLocation::Elan), Err(ElanLibraryError::NoMemory));
        assert_eq!(library.allocate(Vpid(0), u64::MAX, MemoryLocation::Main), Err(ElanLibraryError::NoMemory));
        library.allocate(Vpid(0), ELAN_BYTES, MemoryLocation::Elan).expect("the memory is empty");
        assert_eq!(library.allocate(Vpid(0), 1, MemoryLocation::Elan), Err(ElanLibraryError::NoMemory));
        assert_eq!(library.allocate(Vpid(2), 1, MemoryLocation::Elan), Err(ElanLibraryError::NoProcess(Vpid(2))));
        let group = library.group(&all(2, 1), 4).expect("the group is valid");
        assert_eq!(library.allocate_global(&group, 1, MemoryLocation::Elan), Err(ElanLibraryError::NoMemory));
    }

    #[test]
    fn a_node_receives_multicasts_for_one_context() {
        let mut library = ElanLibrary::new(4, 2);
        let even = [Vpid(0), Vpid(2), Vpid(4)];
        let first = library.group(&even, 4).expect("context 0 of three nodes");
        assert!(first.is_contiguous());
        let odd = [Vpid(3), Vpid(5)];
        assert_eq!(library.group(&odd, 4), Err(ElanLibraryError::ContextTaken { node: 1 }));
        library.disband(&first);
        library.group(&odd, 4).expect("context 1 has the nodes now");
        assert_eq!(
            library.group(&[Vpid(0), Vpid(2), Vpid(3)], 4),
            Err(ElanLibraryError::NoGroup(QuadricsMembersError::NotAscending))
        );
        assert_eq!(library.group(&[], 4), Err(ElanLibraryError::NoGroup(QuadricsMembersError::Empty)));
    }

    #[test]
    fn a_broadcast_copies_only_where_addresses_differ() {
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(16, 1);
        let group = library.group(&all(16, 1), 4).expect("the group is valid");
        let global = library.allocate_global(&group, 64 << 10, MemoryLocation::Main).expect("the memory has room");
        let own = library.allocate(Vpid(0), 64 << 10, MemoryLocation::Main).expect("the memory has room");
        let mut took = |address| {
            let how = (BroadcastSynchronization::Tree, 3);
            library.broadcast(&mut cluster, &group, address, 64 << 10, how).expect("the operation ends")
        };
        let (in_place, copied) = (took(global), took(own));
        assert_eq!((in_place.0, copied.0), (BroadcastBuffers::Global, BroadcastBuffers::System));
        assert!(copied.1[2] > in_place.1[2] + SimSpan::from_micros(100), "{in_place:?} {copied:?}");
    }

    #[test]
    fn a_barrier_polls_only_groups_that_one_multicast_reaches() {
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(64, 1);
        let back_off = PollBackoff { first: units::Span::from_micros(1), max: units::Span::from_micros(64) };
        let how = (BroadcastSynchronization::Poll(back_off), HostWakeup::Polling, 4);
        let together = library.group(&all(16, 1), 4).expect("the group is valid");
        let (method, polled) = library.barrier(&mut cluster, &together, how).expect("the operation ends");
        assert_eq!((method, polled.len()), (BroadcastSynchronization::Poll(back_off), 4));
        let apart: Vec<Vpid> = (0..16).map(|node| Vpid(node * 4)).collect();
        let apart = library.group(&apart, 4).expect("the group is valid");
        let (method, climbed) = library.barrier(&mut cluster, &apart, how).expect("the operation ends");
        assert!(method == BroadcastSynchronization::Tree && climbed[3] > polled[3], "{climbed:?} {polled:?}");
    }

    #[test]
    fn a_remote_dma_needs_memory_at_both_ends() {
        let mut cluster = ElanCluster::new(fabric(), costs(), None, 1).expect("the parameters are valid");
        let mut library = ElanLibrary::new(16, 1);
        let here = library.allocate(Vpid(1), 4_096, MemoryLocation::Elan).expect("the memory has room");
        let there = library.allocate(Vpid(9), 4_096, MemoryLocation::Elan).expect("the memory has room");
        let took = library.put(&mut cluster, (Vpid(1), here), (Vpid(9), there), 4_096).expect("the DMA completes");
        assert!(took > SimSpan::from_micros(10));
        let nowhere = ElanAddress(there.0 + PAGE);
        let failed = library.put(&mut cluster, (Vpid(1), here), (Vpid(9), nowhere), 8);
        assert_eq!(failed, Err(ElanLibraryError::Unmapped(Vpid(9), nowhere)));
    }
}
