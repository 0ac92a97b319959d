//! Background traffic: every host sends to a partner as fast as its link takes packets.
//!
//! In: a fabric and a pattern. Out: packet hops, and how long packets took. This is what `pleach bench simulator`
//! measures, because it is what other packet simulators measure too.

use std::sync::Arc;

use topology::{Endpoint, Fabric, NodeId, PortIndex};
use units::{Lane, Span, Time};

use crate::network::{Arrival, ChannelId, LinkParameters, Network, Packet, Parties};
use faults::Stream;

/// Who sends to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// Every host has one partner, chosen at random once; every host receives from one.
    Permutation,
    /// Every packet goes to another host, chosen at random.
    Uniform,
}

/// A run of background traffic.
pub struct Traffic {
    network: Network,
    load: Load,
}

struct Load {
    pattern: Pattern,
    partner: Vec<u32>,
    hosts: u32,
    packet_bytes: u32,
    stream: Stream,
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
    pub elapsed: Span,
    /// From injection to the head's arrival, on average.
    pub mean_latency: Span,
    /// Bytes of the fabric's state.
    pub memory: usize,
    /// The digest of all events.
    pub trace: u64,
}

impl Traffic {
    /// Every host of the fabric, at rest.
    pub fn new(
        fabric: Arc<Fabric>,
        parameters: LinkParameters,
        pattern: Pattern,
        packet_bytes: u32,
        seed: u64,
    ) -> Self {
        let hosts = fabric.hosts();
        let stream = Stream::new(seed, 0x7af1);
        let order = stream.permutation(hosts);
        // Everyone sends to the next in a random ring: a permutation in which nobody sends to itself.
        let mut partner = vec![0; hosts as usize];
        for (position, host) in order.iter().enumerate() {
            partner[*host as usize] = order[(position + 1) % order.len()];
        }
        let mut network = Network::new(fabric, parameters);
        let mut load = Load { pattern, partner, hosts, packet_bytes, stream, sent: 0, received: 0, latency: 0 };
        for host in 0..hosts {
            let channel = network.channel(Endpoint { node: NodeId(host), port: PortIndex(0) }, Lane(0));
            network.make_source(channel);
            load.refill(&mut network, channel);
        }
        Self { network, load }
    }

    /// Bytes of the fabric's state before anything moves, per host.
    pub fn idle_bytes_per_host(fabric: Arc<Fabric>, parameters: LinkParameters) -> f64 {
        let hosts = fabric.hosts();
        Network::new(fabric, parameters).memory() as f64 / f64::from(hosts)
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
            elapsed: self.network.now().since(Time::ZERO),
            mean_latency: Span::from_picos((self.load.latency / u128::from(received.max(1))) as u64),
            memory: self.network.memory(),
            trace: self.network.trace(),
        }
    }
}

impl Parties for Load {
    const AT_THE_HEAD: bool = true;

    #[inline]
    fn arrived(&mut self, network: &mut Network, arrival: Arrival) {
        self.received += 1;
        self.latency += u128::from(network.now().since(arrival.born).as_picos());
    }

    fn refill(&mut self, network: &mut Network, channel: ChannelId) {
        let origin = network.host_of(channel);
        let to = match self.pattern {
            Pattern::Permutation => self.partner[origin.index()],
            Pattern::Uniform => {
                let pick = self.stream.below(self.sent, u64::from(self.hosts) - 1) as u32;
                if pick >= origin.0 { pick + 1 } else { pick }
            }
        };
        self.sent += 1;
        let now = network.now();
        network.inject(channel, Packet::background(to, self.packet_bytes, now));
    }

    fn alarm(&mut self, _: &mut Network, _: u32) {
        unreachable!("traffic sets no alarms")
    }
}
