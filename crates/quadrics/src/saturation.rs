//! Background traffic alone: every node sends full packets as fast as its link takes them.
//!
//! In: a fabric and a pattern. Out: packet hops, and what bandwidth a node gets. `pleach bench simulator` measures the
//! wormhole network with it.

use faults::RandomStream;
use units::{SimSpan, SimTime};

use super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, PACKET_BYTES,
    QsnetParameters, wire_bytes,
};
use super::wormhole::{AdapterCallbacks, WormholeCounters, WormholeNetwork};

/// Who sends to whom (QN-11).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SaturationPattern {
    /// To the node whose number has all bits inverted.
    Complement,
    /// To another node, chosen at random each time.
    Uniform,
}

impl SaturationPattern {
    /// The `turn`-th destination of a node.
    pub(super) fn destination(self, stream: RandomStream, from: u32, nodes: u32, turn: u64) -> u32 {
        match self {
            Self::Complement => !from & (nodes - 1),
            Self::Uniform => {
                let pick = stream.below(turn * u64::from(nodes) + u64::from(from), u64::from(nodes) - 1) as u32;
                if pick >= from { pick + 1 } else { pick }
            }
        }
    }
}

/// A run of background traffic.
pub struct SaturationTraffic {
    network: WormholeNetwork,
    senders: SaturationSenders,
}

struct SaturationSenders {
    pattern: SaturationPattern,
    stream: RandomStream,
    turns: Vec<u64>,
    received: u64,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug)]
pub struct SaturationSummary {
    /// What the network counts.
    pub counters: WormholeCounters,
    /// Virtual time.
    pub elapsed: SimSpan,
    /// Bytes of data that a node has received per microsecond, on average: megabytes per second.
    pub megabytes_per_second: f64,
    /// The digest of all events.
    pub trace: u64,
}

impl SaturationTraffic {
    /// Every node about to send; none if the parameters make no network.
    pub fn new(parameters: QsnetParameters, pattern: SaturationPattern, seed: u64) -> Option<Self> {
        let network = WormholeNetwork::new(parameters, seed)?;
        let nodes = network.nodes();
        let senders = SaturationSenders {
            pattern,
            stream: RandomStream::new(seed, 0xf100d),
            turns: vec![0; nodes as usize],
            received: 0,
        };
        let mut flood = Self { network, senders };
        for node in 0..nodes {
            flood.senders.send(&mut flood.network, node);
        }
        Some(flood)
    }

    /// Moves packets until so many more hops have begun.
    pub fn run_hops(&mut self, hops: u64) {
        let goal = self.network.counters.hops + hops;
        self.network.run(&mut self.senders, |_, network| network.counters.hops >= goal);
    }

    /// What has happened so far.
    pub fn summary(&self) -> SaturationSummary {
        let elapsed = self.network.now().since(SimTime::ZERO);
        let bytes = self.senders.received as f64 * f64::from(PACKET_BYTES) / f64::from(self.network.nodes());
        SaturationSummary {
            counters: self.network.counters,
            elapsed,
            megabytes_per_second: bytes / (elapsed.as_nanos_f64() / 1e3).max(1e-9),
            trace: self.network.trace(),
        }
    }
}

/// Groups that multicast at the same time: the nodes in equal parts, the first of each part sends to all of its part.
pub struct GroupedMulticasts {
    groups: u32,
    roots: u32,
    left: Vec<u32>,
}

impl GroupedMulticasts {
    /// Megabytes a second that each group gets, with so many full packets from each; none if there is no such network or
    /// the multicasts never end.
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

    fn alarm(&mut self, _: &mut WormholeNetwork, _: u32) {}
}

impl SaturationSenders {
    fn send(&mut self, network: &mut WormholeNetwork, from: u32) {
        let turn = &mut self.turns[from as usize];
        let to = self.pattern.destination(self.stream, from, network.nodes(), *turn);
        *turn += 1;
        network.send(CircuitPacket {
            from,
            to: CircuitDestination::Node(to),
            bytes: wire_bytes(PACKET_BYTES),
            priority: CircuitPriority::Low,
            closing: CircuitClosing::Acknowledgement,
            combining: AckCombining::Worst,
            slowest: None,
            tag: from,
        });
    }
}

impl AdapterCallbacks for SaturationSenders {
    #[inline]
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32) {
        self.send(network, tag);
    }

    #[inline]
    fn arrived(&mut self, _: &mut WormholeNetwork, _: u32, _: u32, _: SimTime) {
        self.received += 1;
    }

    fn test(&mut self, network: &mut WormholeNetwork, _: u32, _: u32) -> (AckStatus, SimTime) {
        (AckStatus::Success, network.now())
    }

    fn ended(&mut self, _: &mut WormholeNetwork, _: u32, _: u32, _: AckStatus, _: SimTime) {}

    /// A damaged packet is gone here: there is always another.
    fn closed(&mut self, _: &mut WormholeNetwork, _: u32, _: AckStatus, _: SimTime) {}

    fn alarm(&mut self, _: &mut WormholeNetwork, _: u32) {}
}
