//! Saturation traffic: every node sends full packets as fast as its link accepts them.
//!
//! In: a fabric and a pattern. Out: packet hops, and the bandwidth per node. `pleach bench simulator` measures the wormhole
//! network with it.

use faults::RandomStream;
use units::{SimSpan, SimTime};

use super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, PACKET_BYTES,
    QsnetParameters, wire_bytes,
};
use super::wormhole::{AdapterCallbacks, WormholeCounters, WormholeNetwork};

/// The destinations of each node (QN-11).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SaturationPattern {
    /// The node whose number has all bits inverted.
    Complement,
    /// Another node, chosen at random for each packet.
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

/// A run of saturation traffic.
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

/// The results so far.
#[derive(Clone, Copy, Debug)]
pub struct SaturationSummary {
    /// The counters of the network.
    pub counters: WormholeCounters,
    /// Virtual time.
    pub elapsed: SimSpan,
    /// Data received per node and microsecond, on average: megabytes per second.
    pub megabytes_per_second: f64,
    /// The digest of all events.
    pub trace: u64,
}

impl SaturationTraffic {
    /// Starts all nodes; none if the parameters are invalid.
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

    /// Runs until this many more hops have begun.
    pub fn run_hops(&mut self, hops: u64) {
        let goal = self.network.counters.hops + hops;
        self.network.run(&mut self.senders, |_, network| network.counters.hops >= goal);
    }

    /// The results so far.
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
            attempt: 0,
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

    /// A damaged packet is not retransmitted: the next one follows anyway.
    fn closed(&mut self, _: &mut WormholeNetwork, _: u32, _: AckStatus, _: SimTime) {}

    fn timer(&mut self, _: &mut WormholeNetwork, _: u32) {}
}
