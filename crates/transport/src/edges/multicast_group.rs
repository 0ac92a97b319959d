//! Results by multicast: one packet that the network copies for all members of a group (SH-13). Whoever misses it asks for it
//! over its edge (P-20).
//!
//! Groups may share an address; a message says whose it is, and its tag proves it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use manager::AuthKey;
use units::{GroupId, Psn, QpNumber};
use wire::{Bth, Deth, Opcode, PacketHeaders, QueueKey};

use crate::udp::port::{BlockingMode, SocketBuffers, UdpPort};

/// The queue pair of every multicast packet, as InfiniBand has it.
pub(super) const MULTICAST_QP: QpNumber = QpNumber(0xff_ffff);
/// Pairs that exchange multicast packets share a key; the tag is what proves anything.
const QUEUE_KEY: QueueKey = QueueKey(0x504c_4541);

/// Whether a party hears what is sent to its circle: a root only speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MulticastRole {
    /// It does.
    Open,
    /// It does not.
    Closed,
}

struct MulticastGroup {
    to: SocketAddr,
    key: AuthKey,
    hearing: MulticastRole,
    next: Psn,
}

/// How long somebody listens to one ear and to nothing else. The kernel counts such pauses in its ticks, up to two of them.
const BLOCKING_RECEIVE_TIMEOUT: Duration = Duration::from_millis(1);

/// A socket that hears an address. Whoever expects a result there can sleep in the call that takes it: that is one call less
/// than to wait for all sockets and then to ask one, and on a crowded machine a result costs what its calls cost.
pub struct MulticastSocket {
    at: SocketAddr,
    port: UdpPort,
    /// For whoever sleeps here: one at a time.
    room: Mutex<Box<SocketBuffers>>,
}

/// What came to an ear.
pub struct ReceivedMulticast<'e> {
    pub(super) ear: &'e MulticastSocket,
    pub(super) buffers: MutexGuard<'e, Box<SocketBuffers>>,
    pub(super) filled: usize,
}

impl MulticastSocket {
    fn open(at: SocketAddr, interface: SocketAddr) -> io::Result<Self> {
        let port = UdpPort::join(at, interface)?;
        port.socket.set_read_timeout(Some(BLOCKING_RECEIVE_TIMEOUT))?;
        // Whoever only looks says so with each call.
        port.socket.set_nonblocking(false)?;
        Ok(Self { at, port, room: Mutex::default() })
    }

    /// Sleeps until something comes. Nothing if that takes longer than a few milliseconds, if a signal came, or if another
    /// thread listens already.
    pub fn listen(&self) -> Option<ReceivedMulticast<'_>> {
        let mut buffers = match self.room.try_lock() {
            Ok(buffers) => buffers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let filled = self.port.receive_one(BlockingMode::Some, &mut buffers).unwrap_or(0);
        (filled > 0).then_some(ReceivedMulticast { ear: self, buffers, filled })
    }

    /// Takes what is there.
    pub(super) fn look(&self, buffers: &mut SocketBuffers) -> usize {
        self.port.receive_one(BlockingMode::None, buffers).unwrap_or(0)
    }

    pub(super) fn at(&self) -> SocketAddr {
        self.at
    }

    pub(super) fn port(&self) -> &UdpPort {
        &self.port
    }
}

impl ReceivedMulticast<'_> {
    /// Where it came.
    pub(super) fn socket(&self) -> RawFd {
        self.ear.port.as_fd().as_raw_fd()
    }
}

/// The groups of one process whose results come or go by multicast.
#[derive(Default)]
pub(super) struct MulticastGroups {
    circles: BTreeMap<GroupId, MulticastGroup>,
    /// By address, each with how many groups use it.
    ears: BTreeMap<SocketAddr, (Arc<MulticastSocket>, u32)>,
}

impl MulticastGroups {
    /// Joins; `interface` is the link on which to hear.
    pub(super) fn join(
        &mut self,
        group: GroupId,
        to: SocketAddr,
        key: AuthKey,
        hearing: MulticastRole,
        interface: SocketAddr,
    ) -> io::Result<()> {
        self.leave(group);
        if hearing == MulticastRole::Open {
            match self.ears.get_mut(&to) {
                Some((_, users)) => *users += 1,
                None => {
                    self.ears.insert(to, (Arc::new(MulticastSocket::open(to, interface)?), 1));
                }
            }
        }
        self.circles.insert(group, MulticastGroup { to, key, hearing, next: Psn::new(0) });
        Ok(())
    }

    pub(super) fn leave(&mut self, group: GroupId) {
        let Some(circle) = self.circles.remove(&group).filter(|circle| circle.hearing == MulticastRole::Open) else {
            return;
        };
        if let Some((_, users)) = self.ears.get_mut(&circle.to) {
            *users -= 1;
            if *users == 0 {
                self.ears.remove(&circle.to);
            }
        }
    }

    /// The ear at an address.
    pub(super) fn ear(&self, at: SocketAddr) -> Option<Arc<MulticastSocket>> {
        self.ears.get(&at).map(|(ear, _)| ear.clone())
    }

    /// Where a group's next packet goes, its headers and the key of its tag.
    pub(super) fn next_packet(&mut self, group: GroupId) -> Option<(SocketAddr, PacketHeaders, AuthKey)> {
        let circle = self.circles.get_mut(&group)?;
        let psn = circle.next;
        circle.next = psn.next();
        let mut headers = PacketHeaders::from(Bth::new(Opcode::DatagramSendOnly, MULTICAST_QP, psn));
        headers.deth = Some(Deth { key: QUEUE_KEY, source: QpNumber(1) });
        Some((circle.to, headers, circle.key))
    }

    /// The key of a group that hears what comes to this address.
    pub(super) fn key(&self, group: GroupId, at: SocketAddr) -> Option<&AuthKey> {
        let circle = self.circles.get(&group)?;
        (circle.to == at && circle.hearing == MulticastRole::Open).then_some(&circle.key)
    }

    pub(super) fn has_ears(&self) -> bool {
        !self.ears.is_empty()
    }

    pub(super) fn ears(&self) -> impl Iterator<Item = &MulticastSocket> {
        self.ears.values().map(|(ear, _)| &**ear)
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ears().map(|ear| ear.port.as_fd())
    }
}
