//! Messages of the rendezvous and of the failure detector, from anybody who can connect: valid ones, edited.

use std::collections::BTreeSet;

use bolero::check;

use crate::attach_request::{
    AttachPurpose, AttachRequest, decode_left, decode_verdict, encode_left, encode_verdict, max_body_bytes,
    read_attached,
};
use crate::endpoint_record::{EndpointRecord, RankTable, RecordReader, RecordWriter};
use crate::framing::LENGTH_BYTES;
use crate::join_request::{JoinRejection, JoinRequest, Withdrawal};
use crate::membership::{LossVerdict, MemberHistory, VerdictKind};
use crate::rejected_process::RejectedConnections;

const SIZE: u32 = 4;

/// An input: which message, and at which places which bytes are changed. A place beyond its end cuts it or makes it longer.
type EditedMessage = (u8, Vec<(u8, u8)>);

fn record(rank: u32) -> EndpointRecord {
    let addresses = vec!["10.1.2.3:4791".parse().expect("an address"), "[fd00::2]:9".parse().expect("an address")];
    EndpointRecord::own(rank, addresses.clone(), addresses, b"extra".to_vec())
}

fn written(write: impl FnOnce(&mut RecordWriter)) -> Vec<u8> {
    let mut writer = RecordWriter::default();
    write(&mut writer);
    writer.bytes
}

/// The bodies of all messages that have one.
fn bodies() -> Vec<Vec<u8>> {
    let verdict = LossVerdict { kind: VerdictKind::Lost, ranks: vec![1, 3] };
    let history = MemberHistory { verdicts: vec![verdict.clone()], left: BTreeSet::from([2]) };
    let takeover = AttachRequest { rank: 1, purpose: AttachPurpose::Takeover(history) };
    let path = AttachRequest { rank: 1, purpose: AttachPurpose::Path { received: 7 } };
    // Behind the length of the frame and the kind.
    let body = |message: &[u8]| message[LENGTH_BYTES + 1..].to_vec();
    let missing = JoinRejection::Missing { count: 2, some: vec![1, 2], rejected: RejectedConnections::default() };
    vec![
        JoinRequest { size: SIZE, record: record(1) }.to_bytes(),
        missing.to_bytes(),
        JoinRejection::Withdrawn(Withdrawal::new(2, "no memory")).to_bytes(),
        written(|writer| RankTable::new((0..SIZE).map(record).collect()).write(writer)),
        written(|writer| Withdrawal::new(2, "no memory").write(writer)),
        body(&takeover.encode()),
        body(&path.encode()),
        body(&encode_verdict(0, &verdict)),
        body(&encode_left([1, 2].into_iter())),
    ]
}

fn edited((which, edits): &EditedMessage, valid: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = valid[usize::from(*which) % valid.len()].clone();
    for (at, value) in edits {
        match bytes.get_mut(usize::from(*at)) {
            Some(byte) => *byte = *value,
            None if value.is_multiple_of(2) => bytes.push(*value),
            None => bytes.truncate(usize::from(*value)),
        }
    }
    bytes
}

/// Reads the bytes as every message. Whatever is accepted is within the bounds of the job.
fn read_as_everything(bytes: &[u8]) {
    let reader = || RecordReader { rest: bytes };
    let is_rank = |rank: &u32| *rank < SIZE;
    if let Some(request) = JoinRequest::read(bytes) {
        assert_eq!(JoinRequest::read(&request.to_bytes()), Some(request), "it reads as what it is written as");
    }
    let _ = JoinRejection::read(bytes).map(|rejection| rejection.to_string());
    let _ = Withdrawal::read(&mut reader());
    if let Some(table) = RankTable::read(&mut reader(), SIZE) {
        assert_eq!(table.size(), SIZE);
    }
    if let Some(AttachRequest { rank, purpose }) = AttachRequest::read(bytes, SIZE) {
        assert!(is_rank(&rank));
        if let AttachPurpose::Takeover(history) = purpose {
            assert!(history.left.iter().all(is_rank) && history.verdicts.len() <= SIZE as usize);
        }
    }
    if let Some((_, verdict)) = decode_verdict(bytes, SIZE) {
        assert!(verdict.ranks.iter().all(is_rank));
    }
    if let Some(left) = decode_left(bytes, SIZE) {
        assert!(left.iter().all(is_rank));
    }
    let _ = read_attached(bytes);
}

#[test]
fn any_message_of_the_rendezvous_is_read_or_refused() {
    let valid = bodies();
    assert!(JoinRequest::read(&valid[0]).is_some() && AttachRequest::read(&valid[5], SIZE).is_some());
    assert!(decode_verdict(&valid[7], SIZE).is_some() && decode_left(&valid[8], SIZE).is_some());
    assert!(valid[5..].iter().all(|body| body.len() <= max_body_bytes(SIZE)));
    check!(name = "rendezvous_messages")
        .with_type::<EditedMessage>()
        .for_each(|input: &EditedMessage| read_as_everything(&edited(input, &valid)));
}

#[test]
fn any_bytes_are_read_or_refused_as_a_message_of_the_rendezvous() {
    check!(name = "rendezvous_bytes").for_each(read_as_everything);
}
