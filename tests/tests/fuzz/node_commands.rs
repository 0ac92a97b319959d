//! What a manager or a parent node sends to a node, and the agent that carries it out.

use std::net::SocketAddr;

use bolero::check;
use manager::message::{FromManager, GroupKey, NodeCommand, NodeReply, Quota, RemovalScope, RequestId};
use manager::{
    AggregationNodeId, AuthKey, ChildSpec, CommandSource, DistributionSpec, FoldTree, GroupDescriptor, JobId,
    JobTicket, LeaderAttachment, NodeAgent, NodeAgentAction, ParentSpec, PeerId, SeatAddress, SeatChild, SeatSpec,
};
use units::{ChildIndex, Epoch, GroupId, QpNumber, Rank, Span, Time};

use super::edits::edited;

const MAX_SEATS: u32 = 2;
/// The most that one step may ask for: a command to every child, and a reply.
const MOST_ACTIONS: usize = 64;

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4_791))
}

fn group() -> GroupKey {
    GroupKey { group: GroupId(1), epoch: Epoch(1) }
}

fn seat(node: u32, parent: Option<ParentSpec>, children: Vec<ChildSpec>) -> SeatSpec {
    SeatSpec {
        ticket: JobTicket { job: JobId(5), key: AuthKey([1; 16]) },
        group: group().group,
        epoch: group().epoch,
        key: AuthKey([2; 16]),
        node: AggregationNodeId(node),
        name: "node".to_owned(),
        window: 4,
        segment_bytes: 64,
        distribution: DistributionSpec::Edges,
        parent,
        children,
    }
}

fn member(leader: u32) -> ChildSpec {
    let who = SeatChild::Member { leader, rank: Rank(leader), host: "host".to_owned() };
    ChildSpec { edge: QpNumber(0x10 + leader), addresses: vec![address(leader as u8)], who }
}

/// A seat above another one.
fn spec() -> SeatSpec {
    let above = ParentSpec {
        edge: QpNumber(0x20),
        child: ChildIndex(1),
        node: AggregationNodeId(1),
        name: "root".to_owned(),
        addresses: vec![address(100)],
    };
    let below = Box::new(seat(2, Some(above), vec![member(1), member(2)]));
    let who = SeatChild::Seat { control: address(101), spec: below };
    seat(1, None, vec![member(0), ChildSpec { edge: QpNumber(0x20), addresses: vec![address(101)], who }])
}

fn commands() -> Vec<NodeCommand> {
    let (group, budget_ms) = (group(), 1_000);
    vec![
        NodeCommand::Install { spec: spec(), budget_ms },
        NodeCommand::Remove { group, scope: RemovalScope::Subtree, budget_ms },
        NodeCommand::Remove { group, scope: RemovalScope::SeatOnly, budget_ms },
    ]
}

fn messages() -> Vec<Vec<u8>> {
    let request = RequestId(1);
    let opened = GroupDescriptor {
        group: group().group,
        epoch: group().epoch,
        key: AuthKey([2; 16]),
        window: 4,
        segment_bytes: 64,
        distribution: DistributionSpec::Edges,
        seats: vec![SeatAddress {
            node: AggregationNodeId(1),
            name: "node".to_owned(),
            addresses: vec![address(100)],
        }],
        leaders: vec![LeaderAttachment { seat: 0, edge: QpNumber(0x10), child: ChildIndex(0) }],
        fold: FoldTree::Fold(vec![FoldTree::Leader(0), FoldTree::Leader(1)]),
    };
    let others = [
        FromManager::GroupOpened { request, group: opened },
        FromManager::JobOpened {
            request,
            ticket: JobTicket { job: JobId(5), key: AuthKey([1; 16]) },
            quota: Quota { groups: 1, operations: 8, bytes: 4_096 },
        },
        FromManager::Closed { request },
        FromManager::Revoked { group: group(), node: Some("node".to_owned()), why: "lost".to_owned() },
        FromManager::JobRevoked { job: JobId(5), why: "maintenance".to_owned() },
        FromManager::Registered { request, node: AggregationNodeId(1), heartbeat_ms: 100, heartbeats_per_report: 10 },
    ];
    let commands = commands().into_iter().map(FromManager::Command);
    commands.chain(others).map(|message| serde_json::to_vec(&message).expect("plain data")).collect()
}

/// The same text is read again from what was read, so that nothing of it was lost or misunderstood.
#[test]
fn any_message_to_a_node_or_a_job_is_read_or_refused() {
    let valid = messages();
    let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
    check!(name = "node_messages").for_each(|input: &[u8]| {
        if let Ok(message) = serde_json::from_slice::<FromManager>(&edited(&valid, input)) {
            let text = serde_json::to_vec(&message).expect("plain data");
            assert!(serde_json::from_slice::<FromManager>(&text).is_ok_and(|again| again == message));
        }
    });
}

/// One step of the agent: what happens, then the edits of a command.
fn step(agent: &mut NodeAgent, now: Time, step: &[u8], valid: &[&[u8]]) {
    let from = if step[0].is_multiple_of(2) { CommandSource::Manager } else { CommandSource::Node(PeerId(1)) };
    match step[0] % 8 {
        0 => agent.handle_unreachable(now, address(101)),
        1 => agent.handle_reply(now, address(101), NodeReply::Installed { group: group() }),
        2 => agent.handle_timeout(now),
        3 => agent.handle_installed(now, group(), Ok(())),
        _ => {
            if let Ok(command) = serde_json::from_slice(&edited(valid, &step[1..])) {
                agent.handle_command(now, from, command);
            }
        }
    }
}

#[test]
fn a_node_agent_survives_any_sequence_of_commands() {
    let valid: Vec<Vec<u8>> =
        commands().iter().map(|command| serde_json::to_vec(command).expect("plain data")).collect();
    let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
    check!(name = "node_commands").for_each(|input: &[u8]| {
        let (mut agent, mut now) = (NodeAgent::new("node", MAX_SEATS), Time::ZERO);
        for bytes in input.chunks(6) {
            now += Span::from_micros(u64::from(bytes[0]) * 10_000);
            step(&mut agent, now, bytes, &valid);
            let mut actions = 0;
            while let Some(action) = agent.poll_action() {
                actions += 1;
                // The data plane does what it is told.
                if let NodeAgentAction::Install(spec) = action {
                    agent.handle_installed(now, spec.group_key(), Ok(()));
                }
            }
            assert!(actions <= MOST_ACTIONS, "{actions} actions after one step");
            assert!(agent.seats().len() <= MAX_SEATS as usize, "{} seats", agent.seats().len());
        }
    });
}
