use protocol::collective::quadrics::{BroadcastSynchronization, PollBackoff, QuadricsMembers};
use units::{Rank, SimSpan, Span};

use super::super::SaturationPattern;
use super::super::packet::{AckStatus, CircuitPriority, MulticastRule, QsnetParameters};
use super::{
    BroadcastBuffers, ElanBackground, ElanCluster, ElanCollective, ElanCosts, ElanTransport, ElanWorkload,
    HostWakeup, MemoryLocation, RemoteAtomic,
};
use simulator::link_rate::ByteTime;

const BACK_OFF: PollBackoff = PollBackoff { first: Span::from_micros(1), max: Span::from_micros(64) };

pub(crate) fn fabric() -> QsnetParameters {
    QsnetParameters {
        dimension: 3,
        byte_time: ByteTime::of_megabits(3_168),
        switch_delay: SimSpan::from_nanos(35),
        wire: SimSpan::from_nanos(2),
        channels: 2,
        ageing: SimSpan::from_micros(20),
        rule: MulticastRule::Serialised { roots: 1 },
        damage: 0.0,
    }
}

pub(crate) fn costs() -> ElanCosts {
    ElanCosts {
        poll_priority: CircuitPriority::Low,
        command: SimSpan::from_nanos(450),
        dma_start: SimSpan::from_nanos(600),
        broadcast_start: SimSpan::from_nanos(3_400),
        input: SimSpan::from_nanos(350),
        thread: SimSpan::from_nanos(1_300),
        matching: SimSpan::from_nanos(3_100),
        notify: SimSpan::from_nanos(550),
        event: SimSpan::from_nanos(700),
        call: SimSpan::from_nanos(1_450),
        slice: SimSpan::from_micros(100),
        pci_megabytes: 200,
        memory_megabytes: 800,
        copy_megabytes: 500,
        flag: SimSpan::from_nanos(200),
        fifo_bytes: 8_192,
        noise: None,
    }
}

fn cluster(background: Option<ElanBackground>) -> ElanCluster {
    ElanCluster::new(fabric(), costs(), background, 1).expect("the parameters are valid")
}

fn task(operation: ElanCollective, count: u32, calls: u32) -> ElanWorkload {
    let members = QuadricsMembers::range(0, count, Rank(0), 4).expect("the members are valid");
    ElanWorkload {
        operation,
        members,
        processes: 1,
        multicast_root: 0,
        calls,
        patience: SimSpan::from_micros(10_000_000),
    }
}

fn polled() -> ElanCollective {
    ElanCollective::PolledBarrier { wake: HostWakeup::Polling, back_off: BACK_OFF }
}

fn broadcast(synchronisation: BroadcastSynchronization, bytes: u32) -> ElanCollective {
    ElanCollective::Broadcast {
        synchronisation,
        bytes,
        memory: MemoryLocation::Elan,
        buffers: BroadcastBuffers::Global,
    }
}

/// The mean duration of a call, in microseconds.
fn mean(took: &[SimSpan]) -> f64 {
    took.iter().map(|span| span.as_nanos_f64()).sum::<f64>() / took.len() as f64 / 1e3
}

fn micros(operation: ElanCollective, count: u32) -> f64 {
    mean(&cluster(None).run(&task(operation, count, 5)).expect("the calls end"))
}

#[test]
fn a_ping_takes_the_sum_of_its_parts() {
    let mut cluster = cluster(None);
    let empty = cluster.ping(0, 63, 0, MemoryLocation::Elan, ElanTransport::Rdma).expect("the ping completes");
    // 26 bytes at 396 MB/s, five switches and six cables.
    let expected = 450.0 + 600.0 + 26.0 / 0.396 + 187.0 + 350.0 + 550.0;
    assert!((empty.as_nanos_f64() - expected).abs() < 1.0, "{empty:?} {expected}");
    let tagged = cluster.ping(0, 63, 0, MemoryLocation::Elan, ElanTransport::Tports).expect("the ping completes");
    assert!((tagged.as_nanos_f64() - expected - 3_100.0).abs() < 1.0, "{tagged:?}");
}

#[test]
fn large_dmas_go_at_the_rate_of_the_link_or_of_the_bus() {
    let rate = |memory| {
        let bytes = 1_000_000;
        f64::from(bytes)
            / (cluster(None)
                .ping(0, 63, bytes, memory, ElanTransport::Rdma)
                .expect("the ping completes")
                .as_nanos_f64()
                / 1e3)
    };
    assert!((rate(MemoryLocation::Elan) - 335.0).abs() < 1.0, "{}", rate(MemoryLocation::Elan));
    assert!((rate(MemoryLocation::Main) - 200.0).abs() < 1.0, "{}", rate(MemoryLocation::Main));
}

#[test]
fn a_tree_barrier_takes_a_step_more_for_four_times_the_nodes() {
    let [few, some, many] = [4, 16, 64].map(|count| micros(ElanCollective::TreeBarrier, count));
    // Thread, DMA, wire, and the inputter for four children one after the other; a parent with fewer children takes less.
    let step = 1.3 + 0.6 + 26.0 / 396.0 + 0.187 + 4.0 * 0.35;
    assert!(some - few > step - 0.4 && some - few < step, "{few} {some} {step}");
    assert!((many - some - step).abs() < 0.15, "{some} {many} {step}");
}

#[test]
fn a_polled_barrier_hardly_grows_and_events_add_their_cost() {
    let [few, many] = [4, 64].map(|count| micros(polled(), count));
    assert!((many - few).abs() < 0.1 && many < micros(ElanCollective::TreeBarrier, 4), "{few} {many}");
    let event = micros(ElanCollective::PolledBarrier { wake: HostWakeup::Event, back_off: BACK_OFF }, 64);
    assert!((event - many - 0.7).abs() < 0.01, "{event} {many}");
}

#[test]
fn broadcasts_are_a_barrier_and_data() {
    let bcast = micros(broadcast(BroadcastSynchronization::Tree, 256), 64);
    let hbcast = micros(broadcast(BroadcastSynchronization::Poll(BACK_OFF), 256), 64);
    assert!(bcast > micros(ElanCollective::TreeBarrier, 64) && hbcast > micros(polled(), 64) && hbcast < bcast);
    let large = 1_000_000.0 / micros(broadcast(BroadcastSynchronization::Tree, 1_000_000), 64);
    assert!((275.0..300.0).contains(&large), "{large}");
}

#[test]
fn copies_and_processes_of_one_node_cost_extra() {
    let with = |buffers, processes| {
        let (synchronisation, bytes, memory) = (BroadcastSynchronization::Tree, 50_000, MemoryLocation::Main);
        let operation = ElanCollective::Broadcast { synchronisation, bytes, memory, buffers };
        mean(&cluster(None).run(&ElanWorkload { processes, ..task(operation, 16, 4) }).expect("the calls end"))
    };
    let alone = with(BroadcastBuffers::Global, 1);
    assert!((with(BroadcastBuffers::System, 1) - alone - 200.0).abs() < 10.0, "two copies of 100 us each");
    let four = with(BroadcastBuffers::Global, 4);
    assert!(four > alone + 15.0 && four < alone + 30.0, "the last slot is copied after the data: {alone} {four}");
}

#[test]
fn members_that_are_not_contiguous_use_the_tree_both_ways() {
    let members =
        QuadricsMembers::list((0..16).map(|rank| rank * 4).collect(), Rank(0), 4).expect("the members are valid");
    let run = |operation| {
        let task = ElanWorkload { members: members.clone(), ..task(operation, 16, 3) };
        cluster(None).run(&task).map(|took| mean(&took))
    };
    let barrier = run(ElanCollective::TreeBarrier).expect("the calls end");
    assert!(barrier > micros(ElanCollective::TreeBarrier, 16) - 3.4, "{barrier}");
    assert!(run(broadcast(BroadcastSynchronization::Poll(BACK_OFF), 5_000)).is_some(), "falls back to the tree");
    assert!(run(polled()).is_none(), "no multicast reaches exactly these");
}

#[test]
fn remote_words_are_tested_written_and_counted() {
    let mut cluster = cluster(None);
    let mut one = |what| cluster.atomic(3, 60..=60, 8, what).map(|fetched| (fetched.before, fetched.answer));
    assert_eq!(one(RemoteAtomic::FetchAdd(5)), Some((0, AckStatus::Success)));
    assert_eq!(one(RemoteAtomic::TestAndWrite(4, 9)), Some((5, AckStatus::Failed)));
    assert_eq!(one(RemoteAtomic::TestAndWrite(5, 9)), Some((5, AckStatus::Success)));
    assert_eq!(one(RemoteAtomic::FetchAdd(1)), Some((9, AckStatus::Success)));
    assert_eq!(cluster.atomic(3, 64..=64, 8, RemoteAtomic::FetchAdd(1)), None);
}

#[test]
fn a_test_and_write_on_many_is_all_or_nothing_and_a_flood_writes_where_accepted() {
    let mut cluster = cluster(None);
    let answer = |cluster: &mut ElanCluster, to, what| cluster.atomic(0, to, 1, what).map(|fetched| fetched.answer);
    let words = |cluster: &ElanCluster| [16, 17, 18].map(|node| cluster.word(node, 1));
    assert_eq!(answer(&mut cluster, 17..=17, RemoteAtomic::FetchAdd(7)), Some(AckStatus::Success));
    assert_eq!(answer(&mut cluster, 16..=18, RemoteAtomic::TestAndWrite(0, 5)), Some(AckStatus::Failed));
    assert_eq!(words(&cluster), [0, 7, 0]);
    assert_eq!(answer(&mut cluster, 16..=18, RemoteAtomic::Flood(7, 8)), Some(AckStatus::Success));
    assert_eq!(words(&cluster), [0, 8, 0]);
    assert_eq!(
        answer(&mut cluster, 16..=18, RemoteAtomic::Flood(7, 8)),
        Some(AckStatus::Failed),
        "no node accepts it"
    );
    assert_eq!(answer(&mut cluster, 18..=20, RemoteAtomic::TestAndWrite(0, 5)), Some(AckStatus::Success));
    assert_eq!([18, 19, 20].map(|node| cluster.word(node, 1)), [5; 3]);
}

#[test]
fn a_flood_of_data_succeeds_when_one_node_has_a_buffer() {
    let fabric = QsnetParameters { damage: 0.002, ..fabric() };
    let mut cluster = ElanCluster::new(fabric, costs(), None, 3).expect("the parameters are valid");
    let buffer = 5;
    assert_eq!(cluster.flood(0, 16..=31, 10_000, buffer).map(|flooded| flooded.answer), Some(AckStatus::Failed));
    cluster.atomic(0, 20..=20, buffer, RemoteAtomic::FetchAdd(1)).expect("the node exists");
    let taken = cluster.flood(0, 16..=31, 10_000, buffer).expect("the nodes exist");
    assert_eq!(taken.answer, AckStatus::Success);
    assert!(taken.took > SimSpan::from_micros(30), "{taken:?}");
    assert_eq!(cluster.flood(0, 60..=64, 1, buffer), None);
}

#[test]
fn damaged_packets_are_retransmitted_until_all_data_has_arrived() {
    let fabric = QsnetParameters { damage: 0.002, ..fabric() };
    let mut cluster = ElanCluster::new(fabric, costs(), None, 7).expect("the parameters are valid");
    let mut run = |operation| cluster.run(&task(operation, 64, 40)).expect("the calls end").len();
    assert_eq!(run(polled()), 40);
    assert_eq!(run(ElanCollective::TreeBarrier), 40);
    assert_eq!(run(broadcast(BroadcastSynchronization::Poll(BACK_OFF), 20_000)), 40);
    assert!(cluster.counters().damaged > 100, "{:?}", cluster.counters());
}

#[test]
fn software_slows_down_more_under_load_than_hardware_and_a_seed_repeats_it() {
    let load = ElanBackground { pattern: SaturationPattern::Uniform, message_bytes: 65_536 };
    let run = |operation| {
        let mut cluster = cluster(Some(load));
        cluster.pass(SimSpan::from_micros(500));
        let took = cluster.run(&task(operation, 64, 20)).expect("the calls end");
        assert!(cluster.background_messages() > 0);
        (mean(&took), cluster.trace())
    };
    let (software, hardware) = (run(ElanCollective::TreeBarrier), run(polled()));
    assert_eq!(software, run(ElanCollective::TreeBarrier));
    let slower = |loaded: f64, operation| loaded / micros(operation, 64);
    assert!(
        slower(software.0, ElanCollective::TreeBarrier) > 3.0 * slower(hardware.0, polled()),
        "{software:?} {hardware:?}"
    );
}

#[test]
fn a_folded_barrier_takes_the_computed_time_and_tolerates_load() {
    let costs = super::SwitchFoldCosts { receive: SimSpan::from_nanos(240), fold: SimSpan::from_nanos(240) };
    let folded = ElanCollective::FoldedBarrier(costs);
    let took = micros(folded, 64);
    // A link: 34 bytes and a cable. Three links up and three down; three switches receive and fold, and two forward.
    let link = 34.0 / 396.0 + 0.002;
    let expected = 1.45 + 0.45 + 1.3 + 6.0 * link + 3.0 * 0.48 + 2.0 * 0.24 + 0.35 + 0.55;
    assert!((took - expected).abs() < 0.01, "{took} {expected}");
    let mut cluster = cluster(Some(ElanBackground { pattern: SaturationPattern::Uniform, message_bytes: 65_536 }));
    cluster.pass(SimSpan::from_micros(200));
    let loaded = mean(&cluster.run(&task(folded, 64, 50)).expect("the calls end"));
    assert!(loaded > took && loaded < 10.0 * took, "{took} {loaded}");
    assert!(cluster.run(&task(folded, 16, 1)).is_none(), "all nodes or none");
}

#[test]
fn all_data_of_an_adapter_shares_its_memory() {
    let rates = |memory_megabytes| {
        let costs = ElanCosts { memory_megabytes, ..costs() };
        let load = ElanBackground { pattern: SaturationPattern::Complement, message_bytes: 65_536 };
        let mut cluster = ElanCluster::new(fabric(), costs, Some(load), 1).expect("the parameters are valid");
        cluster.pass(SimSpan::from_micros(5_000));
        let sent = cluster.background_messages() as f64 * 65_536.0 / 64.0 / 5_000.0;
        let bytes = 1_000_000;
        let mut alone = ElanCluster::new(fabric(), costs, None, 1).expect("the parameters are valid");
        let took = alone
            .ping(0, 63, bytes, MemoryLocation::Elan, ElanTransport::Rdma)
            .expect("the ping completes")
            .as_nanos_f64()
            / 1e3;
        (sent, f64::from(bytes) / took)
    };
    let ((sent, alone), (sent_by_half, alone_by_half)) = (rates(800), rates(400));
    assert!(
        (alone - 335.0).abs() < 1.0 && (alone_by_half - 335.0).abs() < 1.0,
        "one direction fits: {alone_by_half}"
    );
    assert!(sent_by_half < 201.0 && sent_by_half > 150.0, "both directions share: {sent_by_half}");
    assert!(sent > 1.3 * sent_by_half, "{sent} {sent_by_half}");
}

#[test]
fn both_directions_of_main_memory_share_the_bus() {
    // The root of a multicast reads its data from main memory and, as a member, writes it there.
    let took = |pci_megabytes, memory| {
        let costs = ElanCosts { pci_megabytes, ..costs() };
        let mut cluster = ElanCluster::new(fabric(), costs, None, 1).expect("the parameters are valid");
        let (bytes, synchronisation) = (200_000, BroadcastSynchronization::Tree);
        let operation =
            ElanCollective::Broadcast { synchronisation, bytes, memory, buffers: BroadcastBuffers::Global };
        mean(&cluster.run(&task(operation, 64, 2)).expect("the calls end")) / f64::from(bytes) * 1e3
    };
    let [one, twice] = [200, 400].map(|rate| took(rate, MemoryLocation::Main));
    assert!((9.5..11.5).contains(&one), "200 MB/s for both directions, {one} ns a byte");
    assert!(twice < 0.6 * one, "{twice} ns a byte");
}

#[test]
fn polls_of_high_priority_overtake_data() {
    let run = |poll_priority| {
        let costs = ElanCosts { poll_priority, ..costs() };
        let load = ElanBackground { pattern: SaturationPattern::Uniform, message_bytes: 65_536 };
        let mut cluster = ElanCluster::new(fabric(), costs, Some(load), 1).expect("the parameters are valid");
        cluster.pass(SimSpan::from_micros(500));
        mean(&cluster.run(&task(polled(), 64, 200)).expect("the calls end"))
    };
    assert!(run(CircuitPriority::High) < run(CircuitPriority::Low));
}

#[test]
fn the_command_processor_handles_commands_sequentially() {
    let mut cluster = cluster(None);
    let now = units::SimTime::ZERO;
    let [first, second] = [cluster.elans.command(5, now), cluster.elans.command(5, now)];
    assert_eq!(second.since(first), costs().command);
    assert_eq!(cluster.elans.command(6, now), first);
}
