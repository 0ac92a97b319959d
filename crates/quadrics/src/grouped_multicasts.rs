//! Concurrent multicasts of several groups, and the bandwidth of each.
//!
//! In: a fabric, the number of groups, and the packets of each. Out: megabytes per second.

use units::SimTime;

use super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, PACKET_BYTES,
    QsnetParameters, wire_bytes,
};
use super::wormhole::{AdapterCallbacks, WormholeNetwork};

/// Concurrent multicasts: the nodes form equal groups, and the first of each sends to all of its group.
pub struct GroupedMulticasts {
    groups: u32,
    roots: u32,
    left: Vec<u32>,
}

impl GroupedMulticasts {
    /// Megabytes per second of each group, for `packets` full packets from each; none if the parameters are invalid or the
    /// multicasts do not end.
    pub fn megabytes_per_second(parameters: QsnetParameters, groups: u32, packets: u32) -> Option<f64> {
        let mut network = WormholeNetwork::new(parameters, 1)?;
        if groups == 0 || !network.nodes().is_multiple_of(groups) {
            return None;
        }
        let mut senders = Self { groups, roots: parameters.rule.roots(), left: vec![packets; groups as usize] };
        for group in 0..groups {
            senders.send(&mut network, group);
        }
        network.run(&mut senders, |_, _| false);
        let bytes = f64::from(packets) * f64::from(PACKET_BYTES);
        let elapsed = network.now().since(SimTime::ZERO).as_nanos_f64() / 1e3;
        senders.left.iter().all(|left| *left == 0).then_some(bytes / elapsed)
    }

    fn send(&mut self, network: &mut WormholeNetwork, group: u32) {
        let Some(left) = self.left[group as usize].checked_sub(1) else { return };
        self.left[group as usize] = left;
        let size = network.nodes() / self.groups;
        let first = group * size;
        network.send(CircuitPacket {
            from: first,
            to: CircuitDestination::Range { first, last: first + size - 1, root: group % self.roots },
            bytes: wire_bytes(PACKET_BYTES),
            priority: CircuitPriority::Low,
            closing: CircuitClosing::Acknowledgement,
            combining: AckCombining::Worst,
            slowest: None,
            attempt: 0,
            tag: group,
        });
    }
}

impl AdapterCallbacks for GroupedMulticasts {
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32) {
        self.send(network, tag);
    }

    fn arrived(&mut self, _: &mut WormholeNetwork, _: u32, _: u32, _: SimTime) {}

    fn test(&mut self, network: &mut WormholeNetwork, _: u32, _: u32) -> (AckStatus, SimTime) {
        (AckStatus::Success, network.now())
    }

    fn ended(&mut self, _: &mut WormholeNetwork, _: u32, _: u32, _: AckStatus, _: SimTime) {}

    fn closed(&mut self, _: &mut WormholeNetwork, _: u32, _: AckStatus, _: SimTime) {}

    fn timer(&mut self, _: &mut WormholeNetwork, _: u32) {}
}
