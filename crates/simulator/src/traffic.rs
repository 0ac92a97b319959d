//! Background traffic: every host sends to a partner as fast as its link takes packets.
//!
//! In: a fabric and a pattern. Out: packet hops, and how long packets took. This is what `pleach bench simulator`
//! measures, because it is what other packet simulators measure too.

use std::sync::Arc;

use topology::{Fabric, FabricPort, NodeId, NodePort};
use units::{Lane, SimSpan, SimTime};

use crate::network::{ChannelId, DeliveredPacket, LinkParameters, NetworkHandler, SimulatedNetwork, SimulatedPacket};
use faults::RandomStream;

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficPattern {
    /// Every host has one partner, chosen at random once; every host receives from one.
    Permutation,
    /// Every packet goes to another host, chosen at random.
    Uniform,
}

/// A run of background traffic.
pub struct BackgroundTraffic {
    network: SimulatedNetwork,
    load: Load,
}

struct Load {
    pattern: TrafficPattern,
    partner: Vec<u32>,
    hosts: u32,
    packet_bytes: u32,
    stream: RandomStream,
    sent: u64,
    received: u64,
    latency: u128,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug)]
pub struct TrafficSummary {
    /// Link traversals.
    pub hops: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Virtual time.
    pub elapsed: SimSpan,
    /// From injection to the head's arrival, on average.
    pub mean_latency: SimSpan,
    /// Bytes of the fabric's state.
    pub memory: usize,
    /// The digest of all events.
    pub trace: u64,
}

impl BackgroundTraffic {
    /// Every host of the fabric, at rest.
    pub fn new(
        fabric: Arc<Fabric>,
        parameters: LinkParameters,
        pattern: TrafficPattern,
        packet_bytes: u32,
        seed: u64,
    ) -> Self {
        let hosts = fabric.hosts();
        let stream = RandomStream::new(seed, 0x7af1);
        let order = stream.permutation(hosts);
        // Everyone sends to the next in a random ring: a permutation in which nobody sends to itself.
        let mut partner = vec![0; hosts as usize];
        for (position, host) in order.iter().enumerate() {
            partner[*host as usize] = order[(position + 1) % order.len()];
        }
        let mut network = SimulatedNetwork::new(fabric, parameters);
        let mut load = Load { pattern, partner, hosts, packet_bytes, stream, sent: 0, received: 0, latency: 0 };
        for host in 0..hosts {
            let channel = network.channel(NodePort { node: NodeId(host), port: FabricPort(0) }, Lane(0));
            network.make_source(channel);
            load.refill(&mut network, channel);
        }
        Self { network, load }
    }

    /// Bytes of the fabric's state before anything moves, per host.
    pub fn idle_bytes_per_host(fabric: Arc<Fabric>, parameters: LinkParameters) -> f64 {
        let hosts = fabric.hosts();
        SimulatedNetwork::new(fabric, parameters).memory() as f64 / f64::from(hosts)
    }

    /// Moves packets until so many more hops have begun.
    pub fn run_hops(&mut self, hops: u64) {
        let goal = self.network.counters.hops + hops;
        self.network.run(&mut self.load, |_, network| network.counters.hops >= goal);
    }

    /// What has happened so far.
    pub fn summary(&self) -> TrafficSummary {
        let received = self.load.received;
        TrafficSummary {
            hops: self.network.counters.hops,
            received,
            elapsed: self.network.now().since(SimTime::ZERO),
            mean_latency: SimSpan::from_picos((self.load.latency / u128::from(received.max(1))) as u64),
            memory: self.network.memory(),
            trace: self.network.trace(),
        }
    }
}

impl NetworkHandler for Load {
    const AT_THE_HEAD: bool = true;

    #[inline]
    fn arrived(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        self.received += 1;
        self.latency += u128::from(network.now().since(arrival.born).as_picos());
    }

    fn refill(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
        let origin = network.host_of(channel);
        let to = match self.pattern {
            TrafficPattern::Permutation => self.partner[origin.index()],
            TrafficPattern::Uniform => {
                let pick = self.stream.below(self.sent, u64::from(self.hosts) - 1) as u32;
                if pick >= origin.0 { pick + 1 } else { pick }
            }
        };
        self.sent += 1;
        let now = network.now();
        network.inject(channel, SimulatedPacket::background(to, self.packet_bytes, now));
    }

    fn alarm(&mut self, _: &mut SimulatedNetwork, _: u32) {
        unreachable!("traffic sets no alarms")
    }
}
