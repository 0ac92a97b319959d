//! The network under load: no packet is lost, no buffer overflows, and all credits return.

use std::sync::Arc;

use topology::{Fabric, FabricPort, NodeId, NodePort};
use units::{AdapterLane, SimSpan, SimTime};

use super::channel::credit_blocks;
use super::{DeliveredPacket, Forwarding, LinkParameters, NetworkHandler, SimulatedNetwork};
use crate::link_rate::{ByteTime, LinkRate, LinkWidth};
use crate::packet::{ChannelId, SimulatedPacket};
use faults::RandomStream;

/// Every host sends a number of packets to random others, as fast as it can.
struct Burst {
    left: Vec<u32>,
    hosts: u32,
    bytes: u32,
    stream: RandomStream,
    sent: u64,
    received: u64,
}

impl NetworkHandler for Burst {
    fn handle_packet(&mut self, _: &mut SimulatedNetwork, _: DeliveredPacket) {
        self.received += 1;
    }

    fn handle_idle_source(&mut self, network: &mut SimulatedNetwork, channel: ChannelId) {
        let host = network.host_of(channel).0;
        if self.left[host as usize] == 0 {
            return;
        }
        self.left[host as usize] -= 1;
        let to = (host + 1 + self.stream.below(self.sent, u64::from(self.hosts) - 1) as u32) % self.hosts;
        self.sent += 1;
        let now = network.now();
        network.inject(channel, SimulatedPacket::background(to, self.bytes, now));
    }

    fn handle_timer(&mut self, _: &mut SimulatedNetwork, _: u32) {}
}

fn parameters(virtual_lanes: u8, buffer_bytes: u32) -> LinkParameters {
    LinkParameters {
        byte_time: ByteTime::of(LinkWidth::X4, LinkRate::Edr),
        wire: SimSpan::from_nanos(20),
        switch_delay: SimSpan::from_nanos(100),
        adapter_delay: SimSpan::from_nanos(100),
        forwarding: Forwarding::CutThrough,
        virtual_lanes,
        buffer_bytes,
        adapter_lanes: 1,
    }
}

fn burst(fabric: Fabric, parameters: LinkParameters, packets: u32, bytes: u32) -> (SimulatedNetwork, Burst) {
    let hosts = fabric.hosts();
    let mut network = SimulatedNetwork::new(Arc::new(fabric), parameters);
    let left = vec![packets; hosts as usize];
    let mut burst = Burst { left, hosts, bytes, stream: RandomStream::new(5, 5), sent: 0, received: 0 };
    for host in 0..hosts {
        let channel = network.channel(NodePort { node: NodeId(host), port: FabricPort(0) }, AdapterLane(0));
        network.make_source(channel);
        burst.handle_idle_source(&mut network, channel);
    }
    network.run(&mut burst, |_, _| false);
    (network, burst)
}

/// Whether every lane holds all its credits once all returns have arrived.
fn all_credits_returned(network: &mut SimulatedNetwork) -> bool {
    let full = credit_blocks(network.parameters.buffer_bytes);
    let mut returned = true;
    for channel in 0..network.channel_count() {
        for lane in 0..network.parameters.virtual_lanes {
            let (lane, returns) = network.lane_mut(channel, lane);
            returns.collect(lane, SimTime::NEVER);
            returned &= lane.credit == full && lane.is_empty() && !lane.starved;
        }
    }
    returned
}

fn shapes() -> Vec<(Fabric, u8)> {
    vec![
        (Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("small"), 1),
        (Fabric::xgft(&[8, 8], &[1, 2]).expect("small"), 2),
        (Fabric::hypercube(4, 2).expect("small"), 1),
        (Fabric::mesh(&[4, 4], 2).expect("small"), 1),
        (Fabric::torus(&[5, 5], 2).expect("small"), 2),
        (Fabric::torus(&[8], 4).expect("small"), 2),
    ]
}

#[test]
fn all_packets_arrive_and_all_credits_return_under_full_load() {
    for (fabric, lanes) in shapes() {
        for (buffer, bytes) in [(4_608, 4_122), (1_024, 300), (32_768, 4_122)] {
            let name = fabric.to_string();
            let (mut network, burst) = burst(fabric.clone(), parameters(lanes, buffer), 60, bytes);
            assert_eq!(burst.sent, u64::from(burst.hosts) * 60, "{name}");
            assert_eq!(
                (burst.received, network.packets_in_flight()),
                (burst.sent, 0),
                "{name}, buffers of {buffer} B"
            );
            assert!(all_credits_returned(&mut network), "{name}, buffers of {buffer} B");
        }
    }
}

/// Credits are enforced: a ring whose wrap-around shares its lane deadlocks; with a second lane it does not.
#[test]
fn a_ring_without_a_dateline_deadlocks_and_with_one_does_not() {
    let ring = || Fabric::torus(&[8], 4).expect("small");
    let (stuck, burst_on_one) = burst(ring(), parameters(1, 4_608), 60, 4_122);
    assert!(burst_on_one.received < u64::from(burst_on_one.hosts) * 60 && stuck.packets_in_flight() > 0);
    let (free, burst_on_two) = burst(ring(), parameters(2, 4_608), 60, 4_122);
    assert_eq!((burst_on_two.received, free.packets_in_flight()), (u64::from(burst_on_two.hosts) * 60, 0));
}

#[test]
fn small_buffers_slow_a_fabric_down_but_store_and_forward_and_cut_through_both_finish() {
    for forwarding in [Forwarding::CutThrough, Forwarding::StoreAndForward] {
        let run = |buffer| {
            let fabric = Fabric::xgft(&[4, 4, 2], &[1, 2, 2]).expect("small");
            let (network, burst) = burst(fabric, LinkParameters { forwarding, ..parameters(1, buffer) }, 100, 4_122);
            assert_eq!(burst.received, burst.sent);
            network.now()
        };
        assert!(run(4_608) > run(65_536), "{forwarding:?}");
    }
}

#[test]
fn origin_is_the_inverse_of_channel() {
    let fabric = Arc::new(Fabric::xgft(&[4, 3], &[1, 2]).expect("small"));
    let network = SimulatedNetwork::new(fabric, LinkParameters { adapter_lanes: 4, ..parameters(1, 4_608) });
    for channel in 0..network.channel_count() {
        let (from, lane) = network.origin(channel);
        assert_eq!(network.channel(from, lane), channel);
    }
}
