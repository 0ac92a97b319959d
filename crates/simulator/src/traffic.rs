//! Background traffic: every host sends to a partner as fast as its link takes packets.
//!
//! In: a fabric and a traffic pattern. Out: packet hops and latencies. `pleach bench simulator` measures this, because other packet
//! simulators report it too.

use std::sync::Arc;

use topology::{Fabric, FabricPort, NodeId, NodePort};
use units::{AdapterLane, SimSpan, SimTime};

use crate::network::{DeliveredPacket, LinkParameters, NetworkHandler, SimulatedNetwork};
use crate::packet::{ChannelId, SimulatedPacket};
use faults::RandomStream;

/// The destinations of the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrafficPattern {
    /// Every host has one partner, chosen at random once; every host receives from one host.
    Permutation,
    /// Every packet goes to another host, chosen at random.
    Uniform,
}

/// A run of background traffic.
pub struct BackgroundTraffic {
    network: SimulatedNetwork,
    load: TrafficLoad,
}

struct TrafficLoad {
    pattern: TrafficPattern,
    partner: Vec<u32>,
    hosts: u32,
    packet_bytes: u32,
    stream: RandomStream,
    sent: u64,
    received: u64,
    latency: u128,
}

/// The results so far.
#[derive(Clone, Copy, Debug)]
pub struct TrafficSummary {
    /// Link traversals.
    pub hops: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Simulated time.
    pub elapsed: SimSpan,
    /// From injection to the head's arrival, on average.
    pub mean_latency: SimSpan,
    /// Bytes of the fabric's state.
    pub memory: usize,
    /// The digest of all events.
    pub trace: u64,
}

impl BackgroundTraffic {
    /// Sets up a fabric in which every host sends.
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
        // Every host sends to the next of a random ring: a permutation without a fixed point.
        let mut partner = vec![0; hosts as usize];
        for (position, host) in order.iter().enumerate() {
            partner[*host as usize] = order[(position + 1) % order.len()];
        }
        let mut network = SimulatedNetwork::new(fabric, parameters);
        let mut load =
            TrafficLoad { pattern, partner, hosts, packet_bytes, stream, sent: 0, received: 0, latency: 0 };
        for host in 0..hosts {
            let channel = network.channel(NodePort { node: NodeId(host), port: FabricPort(0) }, AdapterLane(0));
            network.make_source(channel);
            load.handle_idle_source(&mut network, channel);
        }
        Self { network, load }
    }

    /// Bytes of the fabric's state before the first packet, per host.
    pub fn idle_bytes_per_host(fabric: Arc<Fabric>, parameters: LinkParameters) -> f64 {
        let hosts = fabric.hosts();
        SimulatedNetwork::new(fabric, parameters).memory() as f64 / f64::from(hosts)
    }

    /// Runs until `hops` more hops have started.
    pub fn run_hops(&mut self, hops: u64) {
        let goal = self.network.counters.hops + hops;
        self.network.run(&mut self.load, |_, network| network.counters.hops >= goal);
    }

    /// The results so far.
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

impl NetworkHandler for TrafficLoad {
    const DELIVER_AT_HEAD: bool = true;

    #[inline]
    fn handle_packet(&mut self, network: &mut SimulatedNetwork, arrival: DeliveredPacket) {
        self.received += 1;
        self.latency += u128::from(network.now().since(arrival.injected_at).as_picos());
    }

    fn handle_idle_source(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
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

    fn handle_timer(&mut self, _: &mut SimulatedNetwork, _: u32) {
        unreachable!("background traffic sets no timers")
    }
}
