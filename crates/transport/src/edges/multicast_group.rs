//! Results by multicast: one packet that the network copies for all members of a group (SH-13). A member that misses it
//! requests it over its edge (P-40).
//!
//! Groups may share an address. A message names its group, and its MAC proves it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use manager::AuthKey;
use protocol::datagram::MULTICAST_QP;
use units::{GroupId, Psn, QpNumber};
use wire::{Bth, Deth, Opcode, PacketHeaders, QueueKey};

use crate::macs::KeyedMacs;
use crate::udp::port::{BlockingMode, SocketBuffers, UdpPort};

/// All multicast packets carry this key; only the MAC authenticates them.
const QUEUE_KEY: QueueKey = QueueKey(0x504c_4541);

/// Whether a process receives what is sent to its multicast group. The root of a tree only sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastRole {
    /// It receives.
    Receiver,
    /// It only sends.
    SendOnly,
}

struct MulticastGroup {
    to: SocketAddr,
    macs: Arc<KeyedMacs>,
    role: MulticastRole,
    next: Psn,
}

/// How long a blocking receive waits on one socket alone. The kernel counts this time in ticks and may add up to two.
const BLOCKING_RECEIVE_TIMEOUT: Duration = Duration::from_millis(1);

/// A socket that receives from a multicast address. A thread that waits for a result can sleep in the receive call itself:
/// that saves one call over polling all sockets first, and on an oversubscribed machine a result costs what its calls cost.
pub struct MulticastSocket {
    at: SocketAddr,
    port: UdpPort,
    /// For the thread that sleeps here; one at a time.
    buffers: Mutex<Box<SocketBuffers>>,
}

/// A datagram that arrived at a multicast socket.
pub struct ReceivedMulticast<'e> {
    pub(super) multicast_socket: &'e MulticastSocket,
    pub(super) buffers: MutexGuard<'e, Box<SocketBuffers>>,
    pub(super) filled: usize,
}

impl MulticastSocket {
    fn open(at: SocketAddr, interface: SocketAddr) -> io::Result<Self> {
        let port = UdpPort::join(at, interface)?;
        port.socket.set_read_timeout(Some(BLOCKING_RECEIVE_TIMEOUT))?;
        // Non-blocking calls say so by a flag.
        port.socket.set_nonblocking(false)?;
        Ok(Self { at, port, buffers: Mutex::default() })
    }

    /// Sleeps until a datagram arrives. None after a few milliseconds, after a signal, or if another thread sleeps here.
    pub fn receive_blocking(&self) -> Option<ReceivedMulticast<'_>> {
        let mut buffers = match self.buffers.try_lock() {
            Ok(buffers) => buffers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let filled = self.port.receive_one(BlockingMode::Blocking, &mut buffers).unwrap_or(0);
        (filled > 0).then_some(ReceivedMulticast { multicast_socket: self, buffers, filled })
    }

    /// Receives a queued datagram.
    pub(super) fn try_receive(&self, buffers: &mut SocketBuffers) -> usize {
        self.port.receive_one(BlockingMode::NonBlocking, buffers).unwrap_or(0)
    }

    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(super) fn port(&self) -> &UdpPort {
        &self.port
    }
}

impl ReceivedMulticast<'_> {
    /// The socket that received it.
    pub(super) fn socket(&self) -> RawFd {
        self.multicast_socket.port.as_fd().as_raw_fd()
    }
}

/// The groups of one process whose results arrive or leave by multicast.
#[derive(Default)]
pub(super) struct MulticastGroups {
    multicast_groups: BTreeMap<GroupId, MulticastGroup>,
    /// By address, each with the number of groups that use it.
    sockets_by_address: BTreeMap<SocketAddr, (Arc<MulticastSocket>, u32)>,
}

impl MulticastGroups {
    /// Joins a group; `interface` is the address of the link to receive on.
    pub(super) fn join(
        &mut self,
        group: GroupId,
        to: SocketAddr,
        macs: Arc<KeyedMacs>,
        role: MulticastRole,
        interface: SocketAddr,
    ) -> io::Result<()> {
        self.leave(group);
        if role == MulticastRole::Receiver {
            match self.sockets_by_address.get_mut(&to) {
                Some((_, users)) => *users += 1,
                None => {
                    self.sockets_by_address.insert(to, (Arc::new(MulticastSocket::open(to, interface)?), 1));
                }
            }
        }
        self.multicast_groups.insert(group, MulticastGroup { to, macs, role, next: Psn::new(0) });
        Ok(())
    }

    /// Leaves a group; returns its key, if this process was in it.
    pub(super) fn leave(&mut self, group: GroupId) -> Option<AuthKey> {
        let MulticastGroup { to, role, macs, .. } = self.multicast_groups.remove(&group)?;
        if role == MulticastRole::Receiver
            && let Some((_, users)) = self.sockets_by_address.get_mut(&to)
        {
            *users -= 1;
            if *users == 0 {
                self.sockets_by_address.remove(&to);
            }
        }
        Some(*macs.key())
    }

    /// The socket for a multicast address.
    pub(super) fn multicast_socket(&self, at: SocketAddr) -> Option<Arc<MulticastSocket>> {
        self.sockets_by_address.get(&at).map(|(multicast_socket, _)| multicast_socket.clone())
    }

    /// The destination, headers and MACs of a group's next packet.
    pub(super) fn next_packet(&mut self, group: GroupId) -> Option<(SocketAddr, PacketHeaders, Arc<KeyedMacs>)> {
        let multicast_group = self.multicast_groups.get_mut(&group)?;
        let psn = multicast_group.next;
        multicast_group.next = psn.next();
        let mut headers = PacketHeaders::from(Bth::new(Opcode::DatagramSendOnly, MULTICAST_QP, psn));
        headers.deth = Some(Deth { key: QUEUE_KEY, source: QpNumber(1) });
        Some((multicast_group.to, headers, multicast_group.macs.clone()))
    }

    /// The MACs of a group that receives from this address.
    pub(super) fn macs(&self, group: GroupId, at: SocketAddr) -> Option<&KeyedMacs> {
        let multicast_group = self.multicast_groups.get(&group)?;
        (multicast_group.to == at && multicast_group.role == MulticastRole::Receiver)
            .then_some(&*multicast_group.macs)
    }

    pub(super) fn has_receivers(&self) -> bool {
        !self.sockets_by_address.is_empty()
    }

    pub(super) fn receivers(&self) -> impl Iterator<Item = &MulticastSocket> {
        self.sockets_by_address.values().map(|(multicast_socket, _)| &**multicast_socket)
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers().map(|multicast_socket| multicast_socket.port.as_fd())
    }
}
