use std::collections::BTreeMap;

use protocol::collective::quadrics::{BroadcastSynchronization, PollBackoff};
use units::Span;

use super::super::elan::tests::{costs, fabric};
use super::super::{BroadcastBuffers, HostWakeup, MemoryLocation, SaturationPattern};
use super::*;

const BACK_OFF: PollBackoff = PollBackoff { first: Span::from_micros(1), max: Span::from_micros(64) };
const RETRY: RetryPolicy = RetryPolicy { timeout: SimSpan::from_micros(20), retry_limit: 5, refusal_limit: 100 };
/// The nodes of the network.
const NODES: u32 = 64;
/// More than two packets.
const BYTES: u32 = 900;

/// Records what happens to the members, and gives each operation other bytes.
#[derive(Default)]
struct MemberRecorder {
    members: u32,
    entered: BTreeMap<OpId, u32>,
    /// Members that left a barrier before all had entered.
    early: Vec<(Rank, OpId)>,
    delivered: BTreeMap<(OpId, Rank), Vec<u8>>,
    failed: BTreeMap<(OpId, Rank), OperationFailure>,
}

fn data(op: OpId) -> Vec<u8> {
    (0..BYTES).map(|byte| (byte * 7 + op.0 * 31 + byte / 256) as u8).collect()
}

impl CollectiveObserver for MemberRecorder {
    fn contribution(&mut self, rank: Rank, op: OpId) -> Payload {
        assert_eq!(rank, Rank(0), "the first member is the root");
        Payload::Bytes(data(op).into())
    }

    fn started(&mut self, _: Rank, op: OpId) {
        *self.entered.entry(op).or_default() += 1;
    }

    fn delivered(&mut self, rank: Rank, op: OpId, result: &Payload) {
        if self.entered.get(&op).is_none_or(|entered| *entered < self.members) {
            self.early.push((rank, op));
        }
        let twice = self.delivered.insert((op, rank), result.bytes().unwrap_or_default().to_vec());
        assert!(twice.is_none(), "{rank} completed {op} twice");
    }

    fn failed(&mut self, rank: Rank, op: OpId, cause: OperationFailure) {
        self.failed.insert((op, rank), cause);
    }
}

fn barrier(operation: ElanCollective) -> QsnetCollective {
    let members = QuadricsMembers::range(0, NODES, Rank(0), 4).expect("the members are valid");
    QsnetCollective { operation, members, late: SimSpan::from_micros(3), contents: BroadcastContents::SizeOnly }
}

fn polled() -> QsnetCollective {
    barrier(ElanCollective::PolledBarrier { wake: HostWakeup::Polling, back_off: BACK_OFF })
}

fn broadcast(synchronisation: BroadcastSynchronization) -> QsnetCollective {
    let (memory, buffers) = (MemoryLocation::Elan, BroadcastBuffers::Global);
    let operation = ElanCollective::Broadcast { synchronisation, bytes: BYTES, memory, buffers };
    QsnetCollective { contents: BroadcastContents::Real, ..barrier(operation) }
}

fn run(
    collective: QsnetCollective,
    plan: &str,
    operations: u32,
) -> (QsnetRun, MemberRecorder, Vec<CollectiveTiming>) {
    run_beside(None, collective, plan, operations)
}

fn run_beside(
    background: Option<ElanBackground>,
    collective: QsnetCollective,
    plan: &str,
    operations: u32,
) -> (QsnetRun, MemberRecorder, Vec<CollectiveTiming>) {
    let plan = FaultPlan::parse(plan).expect("a plan");
    let run = QsnetRun::new((fabric(), costs()), background, collective, (&plan, RETRY), 7);
    let mut run = run.expect("the plan fits the fabric").expect("the parameters are valid");
    let mut recorder = MemberRecorder { members: run.ranks(), ..MemberRecorder::default() };
    let timings = run.run(operations, &mut recorder, |_| ());
    assert_eq!(timings.len(), operations as usize);
    (run, recorder, timings)
}

/// Every member completed every operation, and a broadcast left the root's bytes everywhere.
fn assert_complete(recorder: &MemberRecorder, operations: u32, contents: BroadcastContents) {
    assert_eq!(recorder.delivered.len() as u32, operations * NODES);
    assert!(recorder.failed.is_empty() && recorder.early.is_empty(), "{:?}", recorder.early);
    for ((op, rank), bytes) in &recorder.delivered {
        match contents {
            BroadcastContents::Real => assert!(*bytes == data(*op), "{op} at {rank}"),
            BroadcastContents::SizeOnly => assert!(bytes.is_empty()),
        }
    }
}

#[test]
fn broadcasts_bring_the_roots_bytes_to_every_member() {
    for synchronisation in [BroadcastSynchronization::Tree, BroadcastSynchronization::Poll(BACK_OFF)] {
        let (run, recorder, timings) = run(broadcast(synchronisation), "", 5);
        assert_complete(&recorder, 5, BroadcastContents::Real);
        assert!(timings.iter().all(|timing| timing.complete.is_some_and(|took| took < SimSpan::from_micros(60))));
        assert_eq!(run.links().map(|link| link.tally.damaged + link.tally.lost).sum::<u64>(), 0);
    }
}

#[test]
fn damaged_and_lost_packets_are_sent_again_until_all_bytes_are_right() {
    let plan = "[[fault]]\nkind = \"flip\"\nprobability = 0.002\n[[fault]]\nkind = \"lose\"\nprobability = 0.001\n";
    for synchronisation in [BroadcastSynchronization::Tree, BroadcastSynchronization::Poll(BACK_OFF)] {
        let (run, recorder, timings) = run(broadcast(synchronisation), plan, 40);
        assert_complete(&recorder, 40, BroadcastContents::Real);
        let counters = run.counters();
        assert!(counters.physical > 20 && counters.lost_by_plan > 10, "{counters:?}");
        let slowest = timings.iter().filter_map(|timing| timing.complete).max().expect("operations");
        assert!(slowest > RETRY.timeout, "a lost packet costs a timeout: {slowest}");
    }
}

#[test]
fn nobody_leaves_a_barrier_early_under_load_and_damage() {
    let background = ElanBackground { pattern: SaturationPattern::Uniform, message_bytes: 2_048 };
    let plan = "[[fault]]\nkind = \"flip\"\nprobability = 0.001\n";
    for collective in [polled(), barrier(ElanCollective::TreeBarrier)] {
        let (run, recorder, _) = run_beside(Some(background), collective, plan, 20);
        assert_complete(&recorder, 20, BroadcastContents::SizeOnly);
        assert!(run.counters().physical > 0 && run.background_messages() > 0);
    }
}

#[test]
fn packets_to_one_node_go_round_a_cable_that_is_down() {
    // Without node 5 no multicast reaches exactly the members: all signals go to one node. On the way up switches avoid the cable; on the
    // way down only another attempt helps.
    let nodes: Vec<u32> = (0..NODES).filter(|node| *node != 5).collect();
    for (link, is_avoided) in [("S4>S20", true), ("S20>S4", false)] {
        let members = QuadricsMembers::list(nodes.clone(), Rank(0), 4).expect("the members are valid");
        let plan = format!("[[fault]]\nkind = \"down\"\nlink = \"{link}\"\n");
        let collective = QsnetCollective { members, ..barrier(ElanCollective::TreeBarrier) };
        let (run, recorder, _) = run(collective, &plan, 10);
        assert_eq!((recorder.failed.len(), recorder.delivered.len()), (0, 10 * nodes.len()), "{link}");
        assert_eq!(run.counters().lost_on_down_links == 0, is_avoided, "{link}");
    }
}

#[test]
fn a_short_outage_delays_polls_and_a_long_one_fails_them_with_the_member_that_is_cut_off() {
    // The cable above nodes 60 to 63 that multicasts use.
    let outage =
        |micros: u32| format!("[[fault]]\nkind = \"down\"\nlink = \"S15-S28\"\nat-us = 30\nfor-us = {micros}\n");
    let (short, recorder, timings) = run(polled(), &outage(100), 30);
    assert_complete(&recorder, 30, BroadcastContents::SizeOnly);
    assert!(short.counters().lost_on_down_links > 0);
    assert!(timings.iter().any(|timing| timing.complete > Some(SimSpan::from_micros(100))));

    let (_, recorder, timings) = run(polled(), &outage(2_000), 30);
    let failed = timings.iter().filter(|timing| timing.complete.is_none()).count();
    assert!((1..30).contains(&failed), "the barriers after the outage complete: {failed} failed");
    let lost = OperationFailure::Unreachable { from: Rank(0), to: Rank(60) };
    assert!(recorder.failed.values().all(|cause| *cause == lost), "{:?}", recorder.failed.values().next());
    assert_eq!((recorder.failed.len() + recorder.delivered.len()) as u32, 30 * NODES, "each member has one end");
    assert!(recorder.early.is_empty());
}

#[test]
fn a_killed_node_fails_every_barrier_of_its_group() {
    for collective in [polled(), barrier(ElanCollective::TreeBarrier)] {
        let plan = "[[fault]]\nkind = \"kill\"\nnode = \"H17\"\nat-us = 40\n";
        let (_, recorder, timings) = run(collective, plan, 8);
        assert!(timings[7].complete.is_none() && timings[0].complete.is_some());
        let names = |cause: &OperationFailure| match cause {
            OperationFailure::Unreachable { from, to } => *from == Rank(17) || *to == Rank(17),
            OperationFailure::Aborted(_) => false,
        };
        assert!(recorder.failed.values().all(names), "{:?}", recorder.failed);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let plan = "[[fault]]\nkind = \"lose\"\nprobability = 0.002\n";
    let trace = |_: u32| run(polled(), plan, 20).0.trace();
    assert_eq!(trace(0), trace(1));
    let fault_free = run(polled(), "", 20).0.trace();
    assert_ne!(trace(0), fault_free);
}
