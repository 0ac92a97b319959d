//! The request of a rank to add a connection to its link, or to follow a new coordinator, and the answers to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::endpoint_record::{RecordReader, RecordWriter};
use super::membership::{LossVerdict, MemberHistory, VerdictKind};
use super::rendezvous_message::{RendezvousMessageKind, encode_message};

const PATH: u32 = 1;
const TAKEOVER: u32 = 2;

/// What a rank wants from the one to which it connects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum AttachPurpose {
    /// Another connection of its link, on which it has received so many messages.
    Path { received: u64 },
    /// It has lost its coordinator and follows the one to which it connects.
    Takeover(MemberHistory),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AttachRequest {
    pub(super) rank: u32,
    pub(super) purpose: AttachPurpose,
}

/// Upper bound for the body of a message in a job of this size: a list of ranks, or a history.
pub(super) fn max_body_bytes(size: u32) -> usize {
    // Each rank is lost or has left once, and a verdict has at least one rank.
    (size as usize).saturating_mul(16) + 1024
}

impl AttachRequest {
    pub(super) fn encode(&self) -> Arc<[u8]> {
        let mut writer = RecordWriter::default();
        writer.number(self.rank);
        match &self.purpose {
            AttachPurpose::Path { received } => {
                writer.number(PATH);
                writer.bytes.extend(received.to_le_bytes());
            }
            AttachPurpose::Takeover(history) => {
                writer.number(TAKEOVER);
                write_ranks(&mut writer, history.left.iter().copied());
                writer.number(history.verdicts.len() as u32);
                history.verdicts.iter().for_each(|verdict| write_verdict(&mut writer, verdict));
            }
        }
        encode_message(RendezvousMessageKind::Attach, &[&writer.bytes])
    }

    /// Decodes a request of a job of this size; none if it is malformed.
    pub(super) fn read(body: &[u8], size: u32) -> Option<Self> {
        let mut reader = RecordReader { rest: body };
        let rank = reader.number().filter(|rank| *rank < size)?;
        let purpose = match reader.number()? {
            PATH => AttachPurpose::Path { received: u64::from_le_bytes(reader.take()?) },
            TAKEOVER => {
                let left: BTreeSet<u32> = read_ranks(&mut reader, size)?.into_iter().collect();
                let count = reader.number().filter(|count| *count <= size)?;
                let verdicts = (0..count).map(|_| read_verdict(&mut reader, size)).collect::<Option<_>>()?;
                AttachPurpose::Takeover(MemberHistory { verdicts, left })
            }
            _ => return None,
        };
        reader.rest.is_empty().then_some(Self { rank, purpose })
    }
}

/// Accepts a request; this end has received so many messages.
pub(super) fn encode_attached(received: u64) -> Arc<[u8]> {
    encode_message(RendezvousMessageKind::Attached, &[&received.to_le_bytes()])
}

/// How many messages the other end has received.
pub(super) fn read_attached(body: &[u8]) -> Option<u64> {
    body.try_into().ok().map(u64::from_le_bytes)
}

/// Refuses a request.
pub(super) fn encode_refused() -> Arc<[u8]> {
    encode_message(RendezvousMessageKind::Rejected, &[])
}

/// A verdict with its number.
pub(super) fn encode_verdict(number: usize, verdict: &LossVerdict) -> Arc<[u8]> {
    let mut writer = RecordWriter::default();
    writer.number(number as u32);
    write_verdict(&mut writer, verdict);
    encode_message(RendezvousMessageKind::Lost, &[&writer.bytes])
}

pub(super) fn decode_verdict(body: &[u8], size: u32) -> Option<(usize, LossVerdict)> {
    let mut reader = RecordReader { rest: body };
    let number = reader.number()? as usize;
    let verdict = read_verdict(&mut reader, size)?;
    reader.rest.is_empty().then_some((number, verdict))
}

/// Ranks that have left.
pub(super) fn encode_left(ranks: impl ExactSizeIterator<Item = u32>) -> Arc<[u8]> {
    let mut writer = RecordWriter::default();
    write_ranks(&mut writer, ranks);
    encode_message(RendezvousMessageKind::Left, &[&writer.bytes])
}

pub(super) fn decode_left(body: &[u8], size: u32) -> Option<Vec<u32>> {
    let mut reader = RecordReader { rest: body };
    read_ranks(&mut reader, size).filter(|_| reader.rest.is_empty())
}

fn write_verdict(writer: &mut RecordWriter, verdict: &LossVerdict) {
    writer.number(u32::from(verdict.kind == VerdictKind::CutOff));
    write_ranks(writer, verdict.ranks.iter().copied());
}

fn read_verdict(reader: &mut RecordReader<'_>, size: u32) -> Option<LossVerdict> {
    let kind = match reader.number()? {
        0 => VerdictKind::Lost,
        1 => VerdictKind::CutOff,
        _ => return None,
    };
    Some(LossVerdict { kind, ranks: read_ranks(reader, size)? })
}

fn write_ranks(writer: &mut RecordWriter, ranks: impl ExactSizeIterator<Item = u32>) {
    writer.number(ranks.len() as u32);
    ranks.for_each(|rank| writer.number(rank));
}

fn read_ranks(reader: &mut RecordReader<'_>, size: u32) -> Option<Vec<u32>> {
    let count = reader.number().filter(|count| *count <= size)?;
    (0..count).map(|_| reader.number().filter(|rank| *rank < size)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u32 = 10;

    fn body(frame: &Arc<[u8]>) -> &[u8] {
        &frame[5..]
    }

    fn requests() -> [AttachRequest; 2] {
        let lost = LossVerdict { kind: VerdictKind::Lost, ranks: vec![0, 7] };
        let cut_off = LossVerdict { kind: VerdictKind::CutOff, ranks: vec![1] };
        let history = MemberHistory { verdicts: vec![lost, cut_off], left: BTreeSet::from([2, 9]) };
        let request = |purpose| AttachRequest { rank: 3, purpose };
        [request(AttachPurpose::Path { received: 1 << 40 }), request(AttachPurpose::Takeover(history))]
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        for request in requests() {
            assert_eq!(AttachRequest::read(body(&request.encode()), SIZE), Some(request));
        }
        assert_eq!(read_attached(body(&encode_attached(77))), Some(77));
    }

    #[test]
    fn a_request_of_an_impossible_rank_and_truncated_messages_are_rejected() {
        for request in requests() {
            let frame = request.encode();
            assert_eq!(AttachRequest::read(body(&frame), 3), None, "no such rank");
            for length in 0..body(&frame).len() {
                assert_eq!(AttachRequest::read(&body(&frame)[..length], SIZE), None);
            }
        }
        assert_eq!(read_attached(&body(&encode_attached(77))[..7]), None);
    }

    #[test]
    fn verdicts_and_departures_are_read_as_they_were_written() {
        let verdict = LossVerdict { kind: VerdictKind::CutOff, ranks: vec![4, 5] };
        assert_eq!(decode_verdict(body(&encode_verdict(6, &verdict)), SIZE), Some((6, verdict.clone())));
        assert_eq!(decode_verdict(body(&encode_verdict(6, &verdict)), 5), None, "no such rank");
        assert_eq!(decode_left(body(&encode_left([1, 2].into_iter())), SIZE), Some(vec![1, 2]));
        assert_eq!(decode_left(&[255, 255, 255, 255], SIZE), None);
    }
}
