//! Messages of the control plane, and the manager that gets them from anybody who may connect.

use std::net::SocketAddr;

use bolero::check;
use manager::message::{
    Capacity, FromManager, GroupKey, NodeDescriptor, NodeReply, NodeReport, Quota, RequestId, SeatHeartbeat,
    ToManager,
};
use manager::{
    AuthKey, ControlPeer, CredentialId, DistributionSpec, GroupLeader, GroupRequest, JobId, JobTicket, Manager,
    ManagerSettings, PeerId,
};
use units::{Epoch, GroupId, Rank, Span, Time};

use super::edits::edited;

/// What a job, a node and an operator send.
fn messages() -> Vec<Vec<u8>> {
    let ticket = JobTicket { job: JobId(5), key: AuthKey([1; 16]) };
    let quota = Quota { groups: 1, operations: 8, bytes: 4_096 };
    let group = GroupKey { group: GroupId(1), epoch: Epoch(1) };
    let address = SocketAddr::from(([10, 0, 0, 1], 4_791));
    let leaders = (0..2)
        .map(|rank| GroupLeader { rank: Rank(rank), host: format!("host{rank}"), addresses: vec![address] })
        .collect();
    let request = RequestId(1);
    let node = NodeDescriptor {
        name: "node".to_owned(),
        addresses: vec![address],
        control: address,
        parents: Vec::new(),
        serves: vec!["*".to_owned()],
        capacity: Capacity { seats: 4, operations: 64, bytes: 1 << 20 },
    };
    let group_request = GroupRequest {
        leaders,
        window: 4,
        segment_bytes: 64,
        distribution: DistributionSpec::Edges,
        avoid: Vec::new(),
    };
    let all = [
        ToManager::OpenJob { request, name: "a".to_owned(), quota: None },
        ToManager::AttachJob { request, ticket, name: "a".to_owned(), quota },
        ToManager::OpenGroup { request, ticket, group: group_request },
        ToManager::CloseGroup { request, ticket, group },
        ToManager::JobFailure { ticket, group, what: "lost".to_owned() },
        ToManager::CloseJob { request, ticket },
        ToManager::Register { request, node, version: "0".to_owned() },
        ToManager::HeldSeats { seats: Vec::new() },
        ToManager::Heartbeat {
            seats: vec![SeatHeartbeat { group, operations: 3 }],
            report: Some(NodeReport::default()),
        },
        ToManager::NodeFailure { group, what: "lost".to_owned() },
        ToManager::Reply(NodeReply::Installed { group }),
        ToManager::Status { request },
        ToManager::JobHistory { request, job: "a".to_owned() },
        ToManager::RevokeJob { request, job: ticket.job, why: "maintenance".to_owned() },
    ];
    all.iter().map(|message| serde_json::to_vec(message).expect("plain data")).collect()
}

/// The message that an input makes of one of them.
fn edited_message(valid: &[Vec<u8>], input: &[u8]) -> Vec<u8> {
    let valid: Vec<&[u8]> = valid.iter().map(Vec::as_slice).collect();
    edited(&valid, input)
}

#[test]
fn any_message_is_read_or_refused() {
    let valid = messages();
    check!(name = "control_messages").for_each(|input: &[u8]| {
        let bytes = edited_message(&valid, input);
        let _ = serde_json::from_slice::<ToManager>(&bytes);
        let _ = serde_json::from_slice::<FromManager>(&bytes);
    });
}

/// Peers with and without credentials send edited messages in any order, and connections break.
#[test]
fn the_manager_answers_any_sequence_of_messages() {
    let valid = messages();
    check!(name = "manager").for_each(|input: &[u8]| {
        let mut manager = Manager::new(ManagerSettings::default(), AuthKey([3; 16]));
        let mut now = Time::ZERO;
        for step in input.chunks(12) {
            now += Span::from_micros(u64::from(step[0]) * 10_000);
            let peer = PeerId(u64::from(step[0] % 5));
            let credential = (step[0] % 5 > 2).then_some(CredentialId(u64::from(step[0] % 5)));
            if step[0] > 240 {
                manager.handle_disconnect(now, peer);
            }
            if let Ok(message) = serde_json::from_slice(&edited_message(&valid, &step[1..])) {
                manager.handle_message(now, ControlPeer { id: peer, credential }, message, AuthKey([step[0]; 16]));
            }
            if manager.deadline() <= now {
                manager.handle_timeout(now);
            }
            let actions = std::iter::from_fn(|| manager.poll_action()).count();
            assert!(actions < 10_000, "{actions} actions after one message");
        }
    });
}
