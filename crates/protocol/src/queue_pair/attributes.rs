//! The attributes of a connected queue pair.

use units::limits::MAX_MTU;
use units::{Psn, QpNumber};
use wire::{IcrcCoverage, PartitionKey};

use crate::connection::ConnectionPolicy;

/// What both ends agree on, out of band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpAttributes {
    /// The peer's queue pair number.
    pub remote: QpNumber,
    /// The sequence number of the first packet sent.
    pub send_psn: Psn,
    /// The sequence number of the first packet received.
    pub receive_psn: Psn,
    /// Most payload of a packet: a power of two, 256 to 4096 bytes; between Pleach ends up to 62 KiB.
    pub mtu: u32,
    /// What the ICRC covers: with `Prefix`, of packets that are longer than InfiniBand's; with `Nothing`, of all (P-28).
    pub coverage: IcrcCoverage,
    /// The partition of both ends.
    pub partition: PartitionKey,
    /// The parameters of the connection.
    pub policy: ConnectionPolicy,
}

impl QpAttributes {
    /// Placeholders until the queue pair is connected.
    pub(super) fn unconnected() -> Self {
        Self {
            remote: QpNumber(0),
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            mtu: MAX_MTU,
            coverage: IcrcCoverage::Full,
            partition: PartitionKey::DEFAULT,
            policy: ConnectionPolicy::datagram(),
        }
    }
}
