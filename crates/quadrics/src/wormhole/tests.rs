use units::{SimSpan, SimTime};

use super::super::packet::{
    AckCombining, AckStatus, CircuitClosing, CircuitDestination, CircuitPacket, CircuitPriority, MulticastRule,
    PACKET_BYTES, QsnetParameters, wire_bytes,
};
use super::super::{GroupedMulticasts, SaturationPattern, SaturationTraffic};
use super::{AdapterCallbacks, WormholeNetwork};
use simulator::link_rate::ByteTime;

fn fabric(dimension: u32) -> QsnetParameters {
    QsnetParameters {
        dimension,
        byte_time: ByteTime::of_megabits(3_200),
        switch_delay: SimSpan::from_nanos(35),
        wire: SimSpan::from_nanos(2),
        channels: 2,
        ageing: SimSpan::from_micros(20),
        rule: MulticastRule::Serialised { roots: 1 },
        damage: 0.0,
    }
}

/// Records all callbacks, and resends the packets in `again`.
#[derive(Default)]
struct CallbackRecorder {
    drained: Vec<(u32, SimTime)>,
    arrived: Vec<(u32, u32, SimTime)>,
    ended: Vec<(u32, AckStatus, SimTime)>,
    closed: Vec<(u32, AckStatus, SimTime)>,
    /// Nodes that return a failed test.
    failing: Vec<u32>,
    /// The packets that each tag still sends.
    again: Vec<(CircuitPacket, u32)>,
}

impl AdapterCallbacks for CallbackRecorder {
    fn drained(&mut self, network: &mut WormholeNetwork, tag: u32) {
        self.drained.push((tag, network.now()));
        if let Some((packet, left)) = self.again.iter_mut().find(|(packet, left)| packet.tag == tag && *left > 0) {
            *left -= 1;
            if let CircuitDestination::Node(to) = &mut packet.to {
                *to = (*to * 29 + packet.from * 13 + 7) % network.nodes();
            }
            network.send(*packet);
        }
    }

    fn arrived(&mut self, _: &mut WormholeNetwork, node: u32, tag: u32, at: SimTime) {
        self.arrived.push((node, tag, at));
    }

    fn test(&mut self, network: &mut WormholeNetwork, node: u32, _: u32) -> (AckStatus, SimTime) {
        (if self.failing.contains(&node) { AckStatus::Failed } else { AckStatus::Success }, network.now())
    }

    fn ended(&mut self, _: &mut WormholeNetwork, node: u32, _: u32, answer: AckStatus, at: SimTime) {
        self.ended.push((node, answer, at));
    }

    fn closed(&mut self, _: &mut WormholeNetwork, tag: u32, answer: AckStatus, at: SimTime) {
        self.closed.push((tag, answer, at));
    }

    fn timer(&mut self, _: &mut WormholeNetwork, _: u32) {}
}

fn full(from: u32, to: CircuitDestination, tag: u32) -> CircuitPacket {
    let (priority, closing) = (CircuitPriority::Low, CircuitClosing::Acknowledgement);
    CircuitPacket {
        from,
        to,
        bytes: wire_bytes(PACKET_BYTES),
        priority,
        closing,
        combining: AckCombining::Worst,
        slowest: None,
        attempt: 0,
        tag,
    }
}

fn run(network: &mut WormholeNetwork, recorder: &mut CallbackRecorder) {
    network.run(recorder, |_, _| false);
}

fn nanos(time: SimTime) -> f64 {
    time.since(SimTime::ZERO).as_nanos_f64()
}

#[test]
fn a_single_packet_takes_the_computed_time() {
    let mut network = WormholeNetwork::new(fabric(3), 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    network.send(full(0, CircuitDestination::Node(63), 7));
    run(&mut network, &mut recorder);
    // Five switches, six cables, 378 bytes of 2.5 ns each; the acknowledgement returns over the same path.
    let way = 5.0 * 35.0 + 6.0 * 2.0;
    assert_eq!(recorder.drained, [(7, SimTime::from_picos(945_000))]);
    assert_eq!(
        recorder.arrived.iter().map(|(node, _, at)| (*node, nanos(*at))).collect::<Vec<_>>(),
        [(63, way + 945.0)]
    );
    assert_eq!(nanos(recorder.closed[0].2), 2.0 * way + 945.0);
    assert_eq!((network.counters.hops, network.open_circuits()), (6, 0));
}

#[test]
fn packets_follow_each_other_without_a_gap_on_the_other_channel() {
    let mut network = WormholeNetwork::new(fabric(3), 1).expect("the parameters are valid");
    let packet = full(0, CircuitDestination::Node(63), 7);
    let mut recorder = CallbackRecorder { again: vec![(packet, 99)], ..CallbackRecorder::default() };
    network.send(packet);
    run(&mut network, &mut recorder);
    assert_eq!(nanos(recorder.drained.last().expect("packets").1), 100.0 * 945.0);
}

#[test]
fn two_circuits_on_a_link_have_half_of_it_each() {
    let mut network = WormholeNetwork::new(fabric(1), 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    for from in [0, 1] {
        network.send(full(from, CircuitDestination::Node(3), from));
    }
    run(&mut network, &mut recorder);
    // The bytes that fill the links when the heads arrive went at full speed.
    let way = 35.0 + 2.0 * 2.0;
    let ends: Vec<f64> = recorder.drained.iter().map(|(_, at)| nanos(*at)).collect();
    assert_eq!(ends, [way + 2.0 * (945.0 - way); 2]);
}

#[test]
fn a_third_circuit_waits_until_the_acknowledgement_frees_a_channel() {
    let mut network = WormholeNetwork::new(fabric(1), 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    for from in [0, 1, 2] {
        network.send(full(from, CircuitDestination::Node(3), from));
    }
    run(&mut network, &mut recorder);
    assert_eq!(network.counters.waits, 1);
    let third = recorder.drained[2];
    assert_eq!(third.0, 2);
    assert!(nanos(third.1) > 2.0 * 945.0, "{third:?}");
}

#[test]
fn urgent_packets_go_first_until_the_others_have_aged() {
    let order = |ageing: SimSpan| {
        let mut network = WormholeNetwork::new(QsnetParameters { ageing, channels: 1, ..fabric(1) }, 1)
            .expect("the parameters are valid");
        let mut recorder = CallbackRecorder::default();
        network.send(full(0, CircuitDestination::Node(3), 0));
        network.send(full(1, CircuitDestination::Node(3), 1));
        network.send(CircuitPacket { priority: CircuitPriority::High, ..full(2, CircuitDestination::Node(3), 2) });
        run(&mut network, &mut recorder);
        recorder.drained.iter().map(|(tag, _)| *tag).collect::<Vec<_>>()
    };
    assert_eq!(order(SimSpan::from_micros(20)), [0, 2, 1]);
    assert_eq!(order(SimSpan::from_nanos(100)), [0, 1, 2]);
}

#[test]
fn the_path_up_avoids_links_in_use() {
    // Four senders of one switch, all to different switches: each finds its own port, and none slows down.
    let mut network = WormholeNetwork::new(fabric(2), 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    for from in 0..4 {
        network.send(full(from, CircuitDestination::Node(4 * from + 3), from));
    }
    run(&mut network, &mut recorder);
    assert!(recorder.drained.iter().all(|(_, at)| nanos(*at) == 945.0), "{:?}", recorder.drained);
}

#[test]
fn a_multicast_reaches_its_range_and_returns_the_worst_status() {
    for (failing, expected) in [(vec![], AckStatus::Success), (vec![37], AckStatus::Failed)] {
        let mut network = WormholeNetwork::new(fabric(3), 1).expect("the parameters are valid");
        let mut recorder = CallbackRecorder { failing, ..CallbackRecorder::default() };
        let to = CircuitDestination::Range { first: 5, last: 40, root: 0 };
        network.send(CircuitPacket { closing: CircuitClosing::EndToken, bytes: wire_bytes(0), ..full(9, to, 1) });
        run(&mut network, &mut recorder);
        assert_eq!(recorder.ended.iter().map(|(node, ..)| *node).collect::<Vec<_>>(), (5..=40).collect::<Vec<_>>());
        assert!(recorder.ended.iter().all(|(_, answer, _)| *answer == expected));
        assert_eq!(recorder.closed[0].1, expected);
    }
}

#[test]
fn multicasts_are_alone_below_the_root() {
    let mut network = WormholeNetwork::new(fabric(3), 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    for from in [3, 60] {
        network.send(full(from, CircuitDestination::Range { first: 0, last: 63, root: 0 }, from));
    }
    run(&mut network, &mut recorder);
    let [first, second] = [recorder.drained[0].1, recorder.drained[1].1].map(nanos);
    // The second continues when the first one's acknowledgement has passed the root: two switches and three cables each way.
    let there_and_back = 2.0 * (2.0 * 35.0 + 3.0 * 2.0);
    assert!((second - first - 945.0 - there_and_back).abs() <= 2.0, "{first} {second} {there_and_back}");
}

/// Every node sends multicasts to all nodes, over all roots, and packets to changing nodes, so that branches progress at
/// different speeds. Returns how many circuits are open, and how many of these are deadlocked, when no event is left.
fn many_multicasts(rule: MulticastRule, channels: u32) -> (usize, usize) {
    let mut network =
        WormholeNetwork::new(QsnetParameters { rule, channels, ..fabric(3) }, 1).expect("the parameters are valid");
    let root = |from: u32| from % rule.roots();
    let multicasts =
        (0..64).map(|from| full(from, CircuitDestination::Range { first: 0, last: 63, root: root(from) }, from));
    let others = (0..64).map(|from| full(from, CircuitDestination::Node(63 - from), 64 + from));
    let packets: Vec<CircuitPacket> = multicasts.chain(others).collect();
    let turns = |packet: &CircuitPacket| if packet.tag < 64 { 10 } else { 500 };
    let again = packets.iter().map(|packet| (*packet, turns(packet))).collect();
    let mut recorder = CallbackRecorder { again, ..CallbackRecorder::default() };
    for packet in packets {
        network.send(packet);
    }
    run(&mut network, &mut recorder);
    (network.open_circuits(), network.deadlocked().len())
}

#[test]
fn two_roots_at_once_deadlock_without_the_rule() {
    // With two channels it takes more roots, since two multicasts can then pass each other.
    for (roots, channels) in [(2, 1), (4, 2)] {
        let (open, stuck) = many_multicasts(MulticastRule::Unrestricted { roots }, channels);
        assert!(open > 0, "no event is left, but no circuit is open: {roots} roots, {channels} channels");
        assert!(stuck >= 2, "only {stuck} circuits wait for each other");
    }
}

#[test]
fn no_number_of_roots_deadlocks_with_the_rule() {
    for (roots, channels) in [(1, 1), (1, 2), (2, 2), (4, 4)] {
        assert_eq!(many_multicasts(MulticastRule::Serialised { roots }, channels), (0, 0), "{roots} roots");
    }
}

#[test]
fn a_damaged_packet_is_reported_only_to_its_source() {
    let mut network =
        WormholeNetwork::new(QsnetParameters { damage: 1.0, ..fabric(2) }, 1).expect("the parameters are valid");
    let mut recorder = CallbackRecorder::default();
    network.send(full(0, CircuitDestination::Node(9), 4));
    run(&mut network, &mut recorder);
    assert_eq!(
        recorder.closed.iter().map(|(tag, answer, _)| (*tag, *answer)).collect::<Vec<_>>(),
        [(4, AckStatus::NetworkError)]
    );
    assert!(recorder.arrived.is_empty() && network.counters.damaged == 1);
}

#[test]
fn complement_traffic_fills_every_link_and_uniform_traffic_does_not() {
    let rate = |pattern| {
        let mut traffic = SaturationTraffic::new(fabric(3), pattern, 1).expect("the parameters are valid");
        traffic.run_hops(400_000);
        traffic.summary()
    };
    let complement = rate(SaturationPattern::Complement).megabytes_per_second;
    let uniform = rate(SaturationPattern::Uniform);
    assert!(complement > 330.0, "{complement}"); // 400 x 320/378 = 338.6, but for the start.
    assert!((100.0..300.0).contains(&uniform.megabytes_per_second), "{uniform:?}");
    assert_eq!(uniform.trace, rate(SaturationPattern::Uniform).trace);
}

#[test]
fn invalid_parameters_are_rejected() {
    let rejected = |parameters| WormholeNetwork::new(parameters, 1).is_none();
    assert!(rejected(QsnetParameters { dimension: 0, ..fabric(3) }));
    assert!(rejected(QsnetParameters { dimension: 9, ..fabric(3) }));
    assert!(rejected(QsnetParameters { channels: 0, ..fabric(3) }));
    assert!(rejected(QsnetParameters { channels: 5, ..fabric(3) }));
    assert!(rejected(QsnetParameters { rule: MulticastRule::Serialised { roots: 3 }, ..fabric(3) }));
    assert!(rejected(QsnetParameters { rule: MulticastRule::Serialised { roots: 0 }, ..fabric(3) }));
    assert!(rejected(QsnetParameters { rule: MulticastRule::Serialised { roots: 2 }, ..fabric(1) }));
}

#[test]
fn groups_with_separate_roots_do_not_wait_for_each_other() {
    let rate = |roots, channels| {
        let rule = MulticastRule::Serialised { roots };
        let parameters = QsnetParameters { rule, channels, ..fabric(3) };
        GroupedMulticasts::megabytes_per_second(parameters, 4, 50).expect("the multicasts end")
    };
    let [one, two, four] = [rate(1, 2), rate(2, 2), rate(4, 4)];
    assert!(two > 1.9 * one && four > 3.8 * one, "{one} {two} {four}");
}
