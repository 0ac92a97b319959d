//! On an idle fabric, times can be worked out by hand.

use std::sync::Arc;

use protocol::connection::ConnectionPolicy;
use protocol::connection::path::{MigrationRole, PathPolicy};
use topology::{Fabric, NodeId};
use units::{PathId, Psn, SimSpan, SimTime};

use super::{
    ConnectionEndPlan, ConnectionPlan, HostProgram, LinkNotification, MessagePlan, MessageVerb, ProgramStep,
    QueuePairObserver, QueuePairRunParameters, SimulatedQueuePairs, StreamId, path_route,
};
use crate::fault::FaultPlan;
use crate::link_rate::LinkRate;
use crate::network::LinkParameters;

#[derive(Default)]
struct Notes {
    sent: Vec<(u32, Vec<u8>)>,
    delivered: Vec<(u32, Vec<u8>)>,
}

impl QueuePairObserver for Notes {
    fn sent(&mut self, stream: StreamId, message: &[u8]) {
        self.sent.push((stream.0, message.to_vec()));
    }
    fn delivered(&mut self, stream: StreamId, message: &[u8]) {
        self.delivered.push((stream.0, message.to_vec()));
    }
    fn failed(&mut self, _: StreamId, cause: &str) {
        panic!("nothing fails here: {cause}");
    }
}

fn plan(lengths: &[u32]) -> QueuePairRunParameters {
    let end = |host, role, lengths: &[u32]| ConnectionEndPlan {
        host: NodeId(host),
        role,
        first_psn: Psn::new(7),
        messages: lengths
            .iter()
            .map(|length| MessagePlan { not_before: SimTime::ZERO, length: *length, kind: MessageVerb::Write })
            .collect(),
        sends_at_once: 4,
        receives: 4,
        repost_after: SimSpan::ZERO,
    };
    let connection = ConnectionPlan {
        ends: [end(0, MigrationRole::Leader, lengths), end(3, MigrationRole::Follower, &[])],
        paths: 2,
        policy: ConnectionPolicy::datagram(),
        path_policy: PathPolicy::default(),
        mtu: 1_024,
    };
    QueuePairRunParameters { connections: vec![connection], notice: LinkNotification::Notified, programs: Vec::new() }
}

fn exchange(lengths: &[u32]) -> SimulatedQueuePairs<Notes> {
    exchange_of(&plan(lengths))
}

fn exchange_of(parameters: &QueuePairRunParameters) -> SimulatedQueuePairs<Notes> {
    let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("small"));
    let link = LinkParameters::of_test(LinkRate::Sdr, 16_384);
    SimulatedQueuePairs::new(fabric, link, parameters, &FaultPlan::default(), 1, Notes::default())
        .expect("it goes together")
}

#[test]
fn a_small_write_takes_the_time_of_its_bytes_and_hops() {
    let mut exchange = exchange(&[4]);
    assert!(exchange.run_until_delivered(SimSpan::from_micros(100)));
    // Adapter, four cables and three switches, then the frame itself; and the same for the acknowledgement.
    let way = 200 + 4 * 10 + 3 * 100;
    let write = 8 + 12 + 16 + 4 + 4 + 4 + 2; // LRH, BTH, RETH, immediate, bytes, ICRC, VCRC.
    let acknowledgement = 8 + 12 + 4 + 4 + 2;
    let [one, other] = exchange.reports().next().expect("one connection");
    assert_eq!(other.last.since(SimTime::ZERO), SimSpan::from_nanos(way + write));
    assert_eq!(one.last.since(SimTime::ZERO), SimSpan::from_nanos(2 * way + write + acknowledgement));
}

#[test]
fn written_messages_are_delivered_unchanged() {
    let mut exchange = exchange(&[0, 5_000, 1_024, 3, 100_000]);
    assert!(exchange.run_until_delivered(SimSpan::from_micros(10_000)));
    let notes = exchange.into_observer();
    assert!(notes.sent == notes.delivered && notes.sent.len() == 5);
    assert!(notes.sent.iter().all(|(stream, _)| *stream == 0));
    assert_eq!(notes.sent[1].1.len(), 5_005, "a mark, the immediate data and the bytes");
}

#[test]
fn paths_leave_by_different_ports_and_reverse_into_each_other() {
    let fabric = Fabric::xgft(&[2, 2], &[2, 2]).expect("small");
    let ways: Vec<_> = (0..4)
        .map(|path| path_route(&fabric, NodeId(0), NodeId(3), PathId(path)).expect("four ways lead there"))
        .collect();
    for (path, [out, back]) in ways.iter().enumerate() {
        assert_eq!((out.hops.len(), usize::from(out.port.0)), (4, path % 2));
        assert!(ways[..path].iter().all(|[other, _]| other.hops != out.hops), "path {path} is a way of its own");
        let turned = path_route(&fabric, NodeId(3), NodeId(0), PathId(path as u8)).expect("and back");
        assert_eq!([&turned[1], &turned[0]], [out, back]);
    }
    assert!(path_route(&fabric, NodeId(0), NodeId(0), PathId(0)).is_none());
}

#[test]
fn invalid_connections_are_errors() {
    let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("small"));
    let link = exchange(&[]).network.parameters().clone();
    let setup = |change: fn(&mut ConnectionPlan)| {
        let mut parameters = plan(&[1]);
        change(&mut parameters.connections[0]);
        let made = SimulatedQueuePairs::new(
            fabric.clone(),
            link.clone(),
            &parameters,
            &FaultPlan::default(),
            1,
            Notes::default(),
        );
        made.err().map(|error| error.to_string())
    };
    assert_eq!(setup(|_| ()), None);
    assert!(setup(|plan| plan.ends[1].host = NodeId(0)).is_some());
    assert!(setup(|plan| plan.ends[1].host = NodeId(4)).is_some_and(|text| text.contains("hosts")));
    assert!(setup(|plan| plan.paths = 17).is_some());
    assert!(setup(|plan| plan.mtu = 1_000).is_some_and(|text| text.contains("mtu")));
    assert!(setup(|plan| plan.ends[0].receives = 0).is_some());
}

fn program(host: u32, steps: &[ProgramStep]) -> HostProgram {
    HostProgram { host: NodeId(host), steps: steps.to_vec() }
}

#[test]
fn a_program_computes_sends_and_waits_in_order() {
    let mut parameters = plan(&[]);
    let (send, receive) = (ProgramStep::Send { connection: 0, length: 4 }, ProgramStep::Receive { connection: 0 });
    let compute = ProgramStep::Compute(SimSpan::from_nanos(5_000));
    parameters.programs = vec![
        program(0, &[compute, send, ProgramStep::Mark, receive, ProgramStep::Mark]),
        program(3, &[receive, compute, send]),
    ];
    let mut exchange = exchange_of(&parameters);
    assert!(exchange.run_until_finished(SimSpan::from_micros(100)));
    // Five microseconds at each end, and the time of a 4-byte send: see above, without RETH and immediate data.
    let way = 200 + 4 * 10 + 3 * 100 + 8 + 12 + 4 + 4 + 2;
    let [one, other]: [_; 2] = exchange.programs().cloned().collect::<Vec<_>>().try_into().expect("two programs");
    assert_eq!(one.marks, [5_000, 5_000 + way + 5_000 + way].map(|nanos| SimTime::ZERO + SimSpan::from_nanos(nanos)));
    assert_eq!(other.finished_at, Some(SimTime::ZERO + SimSpan::from_nanos(5_000 + way + 5_000)));
    assert_eq!(exchange.into_observer().delivered.len(), 2);
}

#[test]
fn path_commands_are_accepted_or_rejected_and_waited_for() {
    let mut parameters = plan(&[]);
    parameters.connections[0].path_policy.loading = protocol::connection::path::AlternateLoading::Manual;
    let (load, migrate) =
        (ProgramStep::Load { connection: 0, path: PathId(1) }, ProgramStep::Migrate { connection: 0 });
    let nowhere = ProgramStep::Load { connection: 0, path: PathId(9) };
    let (armed, moved) =
        (ProgramStep::WaitArmed { connection: 0 }, ProgramStep::WaitMigrations { connection: 0, times: 1 });
    parameters.programs =
        vec![program(0, &[migrate, nowhere, load, armed, migrate]), program(3, &[load, moved, ProgramStep::Mark])];
    let mut exchange = exchange_of(&parameters);
    assert!(exchange.run_until_finished(SimSpan::from_micros(100)));
    let reports: Vec<_> = exchange.programs().collect();
    assert_eq!((reports[0].accepted, reports[0].rejected), (2, 2));
    assert_eq!((reports[1].accepted, reports[1].rejected, reports[1].marks.len()), (1, 0, 1));
    assert!(exchange.reports().flatten().all(|report| report.path == PathId(1)));
}

#[test]
fn programs_that_name_foreign_connections_are_errors() {
    let fabric = Arc::new(Fabric::xgft(&[2, 2], &[2, 2]).expect("small"));
    let link = exchange(&[]).network.parameters().clone();
    for (host, connection, length) in [(1, 0, 1), (0, 1, 1), (0, 0, super::MAX_MESSAGE_BYTES + 1)] {
        let mut parameters = plan(&[]);
        parameters.programs = vec![program(host, &[ProgramStep::Send { connection, length }])];
        let made = SimulatedQueuePairs::new(
            fabric.clone(),
            link.clone(),
            &parameters,
            &FaultPlan::default(),
            1,
            Notes::default(),
        );
        assert!(made.is_err(), "host {host}, connection {connection}, {length} bytes");
    }
}
