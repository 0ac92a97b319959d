//! The attributes of a connection, and the socket addresses of its paths.

use std::net::SocketAddr;

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{MigrationRole, PathPolicy};
use units::limits::{MAX_JUMBO_MTU, MAX_MTU, MAX_PATHS, MIN_MTU, MTU_STEP, is_infiniband_mtu, is_valid_mtu};
use units::{Psn, QpNumber};
use wire::IcrcCoverage;
use wire::rocev2::UDP_PORT;

use super::event::QueuePairError;
use super::long_packets::MAX_UNCUT_BYTES;
use super::packet_protection::{PROTECTION_BYTES, PacketSecurity};
use super::port::UdpPortIndex;

/// A path of a queue pair in terms of sockets: the counterpart of InfiniBand's port, DLID and path bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpRoute {
    /// The port that packets leave by.
    pub port: UdpPortIndex,
    /// The address they go to.
    pub to: SocketAddr,
    /// The address that the peer's packets of this path come from. Its port number may differ from that of `to`: networks
    /// spread flows by it.
    pub from: SocketAddr,
    /// The port that they arrive at.
    pub at: UdpPortIndex,
}

impl UdpRoute {
    /// The plain case: one port and one remote address for both directions.
    pub fn new(port: UdpPortIndex, remote: SocketAddr) -> Self {
        Self { port, to: remote, from: remote, at: port }
    }
}

/// The most that surrounds the payload of a packet: IP and UDP (48), BTH, RETH and immediate data (32), ICRC (4), padding.
const MAX_HEADER_BYTES: u32 = 88;
/// Bytes in flight on one connection with long packets.
const MAX_IN_FLIGHT_BYTES: u32 = 1 << 20;

/// The attributes of a connection.
#[derive(Clone, Debug)]
pub struct QueuePairSetup {
    /// The peer's queue pair.
    pub remote: QpNumber,
    /// The first packet number that this end sends.
    pub send_psn: Psn,
    /// The first packet number that the peer sends.
    pub receive_psn: Psn,
    /// The most payload of a packet.
    pub mtu: u32,
    /// What the ends agreed that the ICRC covers (P-28). On paths to verbs peers, or by the port of RoCEv2, it covers
    /// everything in any case (P-103).
    pub coverage: IcrcCoverage,
    /// The policy of the connection.
    pub policy: ConnectionPolicy,
    /// The paths, best first, numbered alike at both ends.
    pub routes: Vec<UdpRoute>,
    /// How the paths are probed.
    pub path_policy: PathPolicy,
    /// The role of this end.
    pub role: MigrationRole,
    /// What protects the packets; both ends have the same.
    pub security: PacketSecurity,
    /// The peer is a verbs adapter: every packet then has a system call of its own.
    pub verbs_peer: bool,
}

impl QueuePairSetup {
    /// Between two Pleach endpoints.
    pub fn new(
        remote: QpNumber,
        send_psn: Psn,
        receive_psn: Psn,
        routes: Vec<UdpRoute>,
        role: MigrationRole,
    ) -> Self {
        Self {
            remote,
            send_psn,
            receive_psn,
            mtu: MAX_MTU,
            coverage: IcrcCoverage::Full,
            policy: ConnectionPolicy::datagram(),
            routes,
            path_policy: PathPolicy::default(),
            role,
            security: PacketSecurity::Off,
            verbs_peer: false,
        }
    }

    /// With MACs, or encryption as well. Before [`Self::with_long_packets`].
    pub fn with_security(self, security: PacketSecurity) -> Self {
        Self { security, ..self }
    }

    /// With the longest packets that links of this MTU carry ([`super::link_mtu_bytes`]). The bytes in flight stay the same:
    /// longer packets are fewer.
    pub fn with_long_packets(mut self, link: u32) -> Self {
        let protection = if matches!(self.security, PacketSecurity::Off) { 0 } else { PROTECTION_BYTES };
        let most = link.saturating_sub(MAX_HEADER_BYTES + protection).clamp(MIN_MTU, MAX_JUMBO_MTU);
        self.mtu = most - most % MTU_STEP;
        let window = u32::from(self.policy.window);
        self.policy.window = window.min((MAX_IN_FLIGHT_BYTES / self.mtu).max(1)) as u16;
        self
    }

    /// What the ICRC covers between these local ports and the peer's: everything if a RoCEv2 end could get the packets, or a
    /// decoder take them for RoCEv2 (P-103). Both ends of a connection know all port numbers, so they decide alike.
    pub(super) fn effective_coverage(&self, local_ports: &[u16]) -> IcrcCoverage {
        if self.may_be_roce(local_ports) { IcrcCoverage::Full } else { self.coverage }
    }

    /// Whether packets are longer than some path may carry one day, and can be cut then (P-130).
    pub(super) fn may_be_cut(&self, local_ports: &[u16]) -> bool {
        (self.mtu + MAX_HEADER_BYTES) as usize > MAX_UNCUT_BYTES && !self.may_be_roce(local_ports)
    }

    /// A RoCEv2 end could get the packets, or a decoder take them for RoCEv2.
    fn may_be_roce(&self, local_ports: &[u16]) -> bool {
        let is_roce = |route: &UdpRoute| {
            let local = [route.port, route.at].map(|port| local_ports[port.index()]);
            local.into_iter().chain([route.to.port(), route.from.port()]).any(|port| port == UDP_PORT)
        };
        self.verbs_peer || self.routes.iter().any(is_roce)
    }

    pub(super) fn check(&self, ports: usize) -> Result<(), QueuePairError> {
        let is_valid = if self.verbs_peer { is_infiniband_mtu(self.mtu) } else { is_valid_mtu(self.mtu) };
        if self.routes.is_empty() || self.routes.len() > MAX_PATHS {
            return Err(QueuePairError::Setup("a queue pair has 1 to 16 paths"));
        }
        if !is_valid {
            return Err(QueuePairError::Setup(
                "a path MTU is a power of two from 256 to 4096 bytes, or between Pleach endpoints 256 bytes to 62 KiB in steps of 64",
            ));
        }
        if self.verbs_peer && !matches!(self.security, PacketSecurity::Off) {
            return Err(QueuePairError::Setup("a verbs adapter does not know MACs"));
        }
        let known = |port: UdpPortIndex| port.index() < ports;
        if !self.routes.iter().all(|route| known(route.port) && known(route.at)) {
            return Err(QueuePairError::Setup("a route uses a port that the endpoint does not have"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(verbs_peer: bool, to: u16, from: u16) -> QueuePairSetup {
        let address = |port| SocketAddr::from(([10, 0, 0, 2], port));
        let route = UdpRoute { from: address(from), ..UdpRoute::new(UdpPortIndex(0), address(to)) };
        let setup = QueuePairSetup::new(QpNumber(1), Psn::new(0), Psn::new(0), vec![route], MigrationRole::Leader);
        QueuePairSetup { coverage: IcrcCoverage::Prefix, verbs_peer, ..setup }
    }

    #[test]
    fn only_pleach_ends_away_from_the_port_of_rocev2_shorten_the_icrc() {
        let coverage = |local: u16, setup: QueuePairSetup| setup.effective_coverage(&[local]);
        assert_eq!(coverage(40_000, setup(false, 50_000, 50_001)), IcrcCoverage::Prefix);
        assert_eq!(coverage(40_000, setup(true, 50_000, 50_000)), IcrcCoverage::Full);
        for (local, to, from) in [(UDP_PORT, 50_000, 50_000), (40_000, UDP_PORT, 50_000), (40_000, 50_000, UDP_PORT)]
        {
            assert_eq!(coverage(local, setup(false, to, from)), IcrcCoverage::Full, "{local} {to} {from}");
        }
    }
}
