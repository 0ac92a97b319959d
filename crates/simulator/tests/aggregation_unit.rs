//! Aggregation units behind one internal port and the hosts around them, compared with formulas and with each other.
//!
//! S is the time of a framed contribution at the port, s that of a switch, w of a cable, a of an adapter, f of a reduction. The
//! children's packets pass the port one after another, so a node with c children takes c S; a contribution goes up two levels and the
//! result comes down by multicast, cut-through (SH-1, SH-8).

use std::sync::Arc;

use protocol::collective::{CollectiveAlgorithm, CollectiveOperation as Operation};
use protocol::connection::ConnectionPolicy;
use simulator::collective::{
    AggregationUnitParameters, CallLatency, CallWorkload, CollectiveParameters, ContributionContents,
    DownwardDelivery, OperationPacing, SimulatedCollective,
};
use simulator::fault::FaultPlan;
use simulator::host_collective::{HostCollective, HostCollectiveParameters};
use simulator::link_rate::{ByteTime, LinkRate, LinkWidth};
use simulator::{Forwarding, HostCosts, LinkParameters, OsNoise, TransportService};
use topology::Fabric;
use units::{SimSpan, Span};

const EDR: ByteTime = ByteTime::of(LinkWidth::X4, LinkRate::Edr);
/// LRH, BTH, ICRC, VCRC and the aggregation header.
const FRAMING: f64 = 58.0;
/// The datagram's header, on a multicast and between hosts.
const DATAGRAM: f64 = 8.0;
const SWITCH: f64 = 90.0;
const WIRE: f64 = 15.0;
const ADAPTER: f64 = 300.0;
const FOLD: f64 = 200.0;
const CALL: f64 = 150.0;
const POST: f64 = 100.0;
const POLL: f64 = 80.0;

fn nanos(nanos: f64) -> SimSpan {
    SimSpan::from_picos((nanos * 1e3).round() as u64)
}

fn link() -> LinkParameters {
    LinkParameters {
        byte_time: EDR,
        wire: nanos(WIRE),
        switch_delay: nanos(SWITCH),
        adapter_delay: nanos(ADAPTER),
        forwarding: Forwarding::CutThrough,
        virtual_lanes: 1,
        buffer_bytes: 16 * 1024,
        adapter_lanes: 1,
    }
}

fn costs() -> HostCosts {
    HostCosts {
        call: nanos(CALL),
        post: nanos(POST),
        poll: nanos(POLL),
        send_byte_ps: 0,
        datagram: SimSpan::ZERO,
        datagram_byte_ps: 0,
        step_over_bytes: 128,
        step: SimSpan::ZERO,
        noise: None,
    }
}

fn parameters(bytes: u32, distribution: DownwardDelivery) -> CollectiveParameters {
    let unit = AggregationUnitParameters { port: EDR, copy: EDR, receive: SimSpan::ZERO, fold: nanos(FOLD) };
    // Nothing is lost here: a timeout would only repeat packets that wait at a port.
    let patient = ConnectionPolicy { timeout: Span::from_micros(10_000), ..ConnectionPolicy::default() };
    CollectiveParameters {
        policy: patient,
        window: 64,
        distribution,
        unit: Some(unit),
        host: Some(costs()),
        ..CollectiveParameters::new(ContributionContents::SizeOnly { bytes })
    }
}

fn measure(per_leaf: u32, leaves: u32, parameters: CollectiveParameters, calls: CallWorkload) -> CallLatency {
    let fabric = Arc::new(Fabric::xgft(&[per_leaf, leaves], &[1, 1]).expect("a tree"));
    let mut run = SimulatedCollective::new(fabric, link(), parameters, &FaultPlan::default(), 1, LinkWidth::X4)
        .expect("it fits");
    run.measure(calls, 1).expect("every call ends")
}

fn once(segments: u32) -> CallWorkload {
    CallWorkload { count: 1, segments, pace: OperationPacing::Drained }
}

#[test]
fn each_child_costs_one_packet_time_at_the_port() {
    for (children, bytes) in [(4, 0), (8, 64), (16, 256)] {
        let took = measure(children, 8, parameters(bytes, DownwardDelivery::Multicast), once(1)).mean_ns;
        let packet = (f64::from(bytes) + FRAMING) * 0.08;
        // Each hop to a node ends when the packet is whole; at its port the first cuts through and the others follow.
        let up = |children: f64| WIRE + packet + SWITCH + (children - 1.0) * packet + FOLD + SWITCH;
        let down = WIRE + SWITCH + WIRE + packet + DATAGRAM * 0.08;
        let expected = CALL + POST + ADAPTER + up(f64::from(children)) + up(8.0) + down + ADAPTER + POLL;
        assert!((took - expected).abs() < 0.01, "{children} children, {bytes} bytes: {took} ns, not {expected}");
    }
}

#[test]
fn half_the_children_make_half_the_slope_per_segment() {
    let slope = |children, distribution| {
        let took = |segments| measure(children, 8, parameters(256, distribution), once(segments)).mean_ns;
        (took(32) - took(16)) / 16.0
    };
    for distribution in [DownwardDelivery::Multicast, DownwardDelivery::Connections] {
        let share = slope(8, distribution) / slope(16, distribution);
        assert!((0.45..0.6).contains(&share), "{distribution:?}: {share}");
        // A segment takes at least the time of its contributions at the leaf's port.
        assert!(slope(16, distribution) > 16.0 * (256.0 + FRAMING) * 0.08);
    }
}

#[test]
fn results_over_connections_pass_the_port_and_multicasts_of_the_root_do_not() {
    let took = |distribution| measure(16, 8, parameters(256, distribution), once(1));
    let (multicast, both, connections) =
        (took(DownwardDelivery::Multicast), took(DownwardDelivery::Both), took(DownwardDelivery::Connections));
    assert_eq!(multicast.mean_ns, both.mean_ns, "the first result counts");
    // One more switch to the leaf's port, and the last of sixteen copies behind the others.
    let more = connections.longest_ns - multicast.longest_ns;
    assert!(more > SWITCH + 15.0 * (256.0 + FRAMING) * 0.08, "{more}");
}

#[test]
fn a_window_of_one_pays_the_full_latency_for_every_segment() {
    let took = |window, segments| {
        let parameters = CollectiveParameters { window, ..parameters(256, DownwardDelivery::Multicast) };
        measure(4, 4, parameters, once(segments)).mean_ns
    };
    let alone = took(1, 1) - CALL;
    assert!((took(1, 5) - CALL - 5.0 * alone).abs() < 5.0 * (256.0 + FRAMING) * 0.08);
    assert!(took(64, 5) < took(1, 5) / 2.0);
}

#[test]
fn back_to_back_calls_without_noise_have_the_latency_of_one() {
    let one = measure(8, 4, parameters(64, DownwardDelivery::Multicast), once(1));
    let calls = CallWorkload { count: 50, segments: 1, pace: OperationPacing::BackToBack };
    let many = measure(8, 4, parameters(64, DownwardDelivery::Multicast), calls);
    assert_eq!(many.calls, 49);
    // Hosts below the same leaf receive a multicast at the same time, so no host gets ahead.
    assert!((many.mean_ns - one.mean_ns).abs() < 1.0, "{} {}", many.mean_ns, one.mean_ns);
}

#[test]
fn noise_costs_more_with_more_hosts() {
    let calls = CallWorkload { count: 400, segments: 1, pace: OperationPacing::BackToBack };
    let longer = |per_leaf| {
        let took = |noise| {
            let host = Some(HostCosts { noise, ..costs() });
            measure(per_leaf, 4, CollectiveParameters { host, ..parameters(8, DownwardDelivery::Both) }, calls)
                .mean_ns
        };
        took(Some(OsNoise { per_second: 5e3, mean: SimSpan::from_micros(2) })) - took(None)
    };
    let (few, many) = (longer(2), longer(16));
    assert!(few > 0.0 && many > 3.0 * few, "{few} {many}");
}

#[test]
fn a_unit_changes_only_the_time_of_results() {
    use simulator::collective::NoObserver;
    let fabric = Arc::new(Fabric::xgft(&[6, 5], &[1, 1]).expect("a tree"));
    for distribution in [DownwardDelivery::Multicast, DownwardDelivery::Both, DownwardDelivery::Connections] {
        let parameters = CollectiveParameters { host: None, ..parameters(256, distribution) };
        let mut run =
            SimulatedCollective::new(fabric.clone(), link(), parameters, &FaultPlan::default(), 1, LinkWidth::X4)
                .expect("it fits");
        let timings = run.run(20, &mut NoObserver, |_| ());
        assert!(timings.len() == 20 && timings.iter().all(|timing| timing.complete.is_some()), "{distribution:?}");
        assert!(run.measure(once(1), 1).is_none(), "without hosts there is nothing to measure");
    }
}

fn among_hosts(per_leaf: u32, algorithm: CollectiveAlgorithm, bytes: u32, calls: CallWorkload) -> (CallLatency, u64) {
    let fabric = Arc::new(Fabric::xgft(&[per_leaf, 8], &[1, per_leaf]).expect("a tree"));
    let kind = reduce::ReductionKind::new(reduce::ElementType::F32, reduce::Operator::Sum).expect("a sum");
    let collective = if bytes == 0 { Operation::Barrier } else { Operation::AllReduce { kind } };
    let parameters = HostCollectiveParameters {
        algorithm,
        collective,
        bytes,
        mtu: 1024,
        costs: costs(),
        service: TransportService::Connection,
    };
    let mut run = HostCollective::new(fabric, link(), parameters).expect("it suits");
    (run.measure(calls, 1).expect("every call ends"), run.trace())
}

#[test]
fn doubling_among_hosts_takes_a_message_per_round() {
    // Eight hosts, one to a leaf: three rounds over three switches and four cables, one packet each.
    for bytes in [0, 8, 1024] {
        let (took, _) = among_hosts(1, CollectiveAlgorithm::RecursiveDoubling, bytes, once(1));
        let packet = (f64::from(bytes) + FRAMING - 32.0 + DATAGRAM) * 0.08;
        let message = POST + ADAPTER + 4.0 * WIRE + 3.0 * SWITCH + packet + ADAPTER + POLL;
        let expected = CALL + 3.0 * message;
        assert!((took.mean_ns - expected).abs() < 0.01, "{bytes} bytes: {} ns, not {expected}", took.mean_ns);
    }
}

#[test]
fn long_messages_travel_in_packets_and_every_algorithm_ends() {
    let calls = CallWorkload { count: 5, segments: 1, pace: OperationPacing::BackToBack };
    let (short, _) = among_hosts(2, CollectiveAlgorithm::RecursiveDoubling, 1024, calls);
    let (long, _) = among_hosts(2, CollectiveAlgorithm::RecursiveDoubling, 8 * 1024, calls);
    // Three of four rounds leave the leaf; the link takes each message's bytes at least once.
    assert!(long.mean_ns - short.mean_ns > 4.0 * 7.0 * 1024.0 * 0.08, "{} {}", long.mean_ns, short.mean_ns);
    for algorithm in [
        CollectiveAlgorithm::RecursiveKing { radix: 4 },
        CollectiveAlgorithm::Rabenseifner,
        CollectiveAlgorithm::Ring,
        CollectiveAlgorithm::Tree { radix: 3 },
    ] {
        let (first, trace) = among_hosts(3, algorithm, 4096, calls);
        assert_eq!((first, trace), among_hosts(3, algorithm, 4096, calls), "a run is a function of its inputs");
    }
}
