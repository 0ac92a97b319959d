//! Results by multicast: one packet that the network copies for all members of a group (SH-13). Whoever misses it asks for it
//! over its edge (P-20).
//!
//! Groups may share an address; a message says whose it is, and its tag proves it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use protocol::manager::Key;
use units::{GroupId, Psn, QpNumber};
use wire::{Bth, Deth, Opcode, PacketHeaders, QueueKey};

use crate::udp::port::Port;

/// The queue pair of every multicast packet, as InfiniBand has it.
pub(super) const EVERYONE: QpNumber = QpNumber(0xff_ffff);
/// Pairs that exchange multicast packets share a key; the tag is what proves anything.
const QUEUE_KEY: QueueKey = QueueKey(0x504c_4541);

/// Whether a party hears what is sent to its circle: a root only speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hearing {
    /// It does.
    Open,
    /// It does not.
    Closed,
}

struct Circle {
    to: SocketAddr,
    key: Key,
    hearing: Hearing,
    next: Psn,
}

/// A socket that hears an address, for so many groups.
struct Ear {
    port: Port,
    users: u32,
}

/// The groups of one process whose results come or go by multicast.
#[derive(Default)]
pub(super) struct Circles {
    circles: HashMap<GroupId, Circle>,
    ears: BTreeMap<SocketAddr, Ear>,
}

impl Circles {
    /// Joins; `interface` is the link on which to hear.
    pub(super) fn join(
        &mut self,
        group: GroupId,
        to: SocketAddr,
        key: Key,
        hearing: Hearing,
        interface: SocketAddr,
    ) -> io::Result<()> {
        self.leave(group);
        if hearing == Hearing::Open {
            match self.ears.get_mut(&to) {
                Some(ear) => ear.users += 1,
                None => {
                    let ear = Ear { port: Port::join(to, interface)?, users: 1 };
                    self.ears.insert(to, ear);
                }
            }
        }
        self.circles.insert(group, Circle { to, key, hearing, next: Psn::new(0) });
        Ok(())
    }

    pub(super) fn leave(&mut self, group: GroupId) {
        let Some(circle) = self.circles.remove(&group).filter(|circle| circle.hearing == Hearing::Open) else {
            return;
        };
        if let Some(ear) = self.ears.get_mut(&circle.to) {
            ear.users -= 1;
            if ear.users == 0 {
                self.ears.remove(&circle.to);
            }
        }
    }

    /// Where a group's next packet goes, its headers and the key of its tag.
    pub(super) fn next_packet(&mut self, group: GroupId) -> Option<(SocketAddr, PacketHeaders, Key)> {
        let circle = self.circles.get_mut(&group)?;
        let psn = circle.next;
        circle.next = psn.next();
        let mut headers = PacketHeaders::from(Bth::new(Opcode::DatagramSendOnly, EVERYONE, psn));
        headers.deth = Some(Deth { key: QUEUE_KEY, source: QpNumber(1) });
        Some((circle.to, headers, circle.key))
    }

    /// The key of a group that hears what comes to this address.
    pub(super) fn key(&self, group: GroupId, at: SocketAddr) -> Option<&Key> {
        let circle = self.circles.get(&group)?;
        (circle.to == at && circle.hearing == Hearing::Open).then_some(&circle.key)
    }

    pub(super) fn has_ears(&self) -> bool {
        !self.ears.is_empty()
    }

    pub(super) fn ears(&self) -> impl Iterator<Item = (SocketAddr, &Port)> {
        self.ears.iter().map(|(to, ear)| (*to, &ear.port))
    }

    pub(super) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ears.values().map(|ear| ear.port.as_fd())
    }
}
