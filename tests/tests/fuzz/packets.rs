//! Datagrams and their headers.

use bolero::check;
use units::{ChildIndex, Epoch, GroupId, OpId, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::link_frame::LinkFrame;
use wire::packet_chunk::{CHUNK_BYTES, ChunkHeader};
use wire::transfer::{self, TransferHeader};
use wire::{Aeth, Bth, Deth, Grh, IcrcCoverage, Immediate, Lrh, PacketHeaders, ProbeToken, Reth, SackBitmap, rocev2};

use super::edits::edited;

fn aggregation_header() -> AggregationHeader {
    AggregationHeader {
        kind: AggregationMessageKind::Contribution,
        element: ElementCode(3),
        operator: OperatorCode(1),
        flags: 0,
        group: GroupId(7),
        epoch: Epoch(1),
        operation: OpId(9),
        segment: SegmentIndex(0),
        child: ChildIndex(2),
        element_count: 4,
        detail: 0,
    }
}

/// A message with a correct checksum.
fn aggregation_message() -> Vec<u8> {
    let mut message = Vec::new();
    aggregation_header().append_to(&[5; 16], &mut message);
    message
}

fn parse_everything(bytes: &[u8]) {
    for coverage in [IcrcCoverage::Full, IcrcCoverage::Prefix, IcrcCoverage::Nothing] {
        if let Ok(packet) = rocev2::parse_at_least(bytes, coverage) {
            assert!(packet.payload.len() <= bytes.len());
        }
    }
    if let Ok((_, _, payload)) = AggregationHeader::parse_unverified(bytes) {
        assert!(payload.len() <= bytes.len());
    }
    let _ = AggregationHeader::verify(bytes);
    let _ = LinkFrame::parse(bytes);
    let _ = PacketHeaders::parse(bytes);
    let _ = (Aeth::parse(bytes), Bth::parse(bytes), Deth::parse(bytes), Grh::parse(bytes), Immediate::parse(bytes));
    let _ = (Lrh::parse(bytes), Reth::parse(bytes), ProbeToken::parse(bytes), SackBitmap::parse(bytes));
    if let Ok((header, chunk)) = ChunkHeader::parse(bytes) {
        assert!(header.index < header.count && chunk.len() <= CHUNK_BYTES);
    }
    if let Ok((_, _, payload)) = TransferHeader::parse(bytes) {
        let ranges = transfer::parse_missing(payload).count();
        assert!(ranges <= bytes.len(), "{ranges} ranges in {} bytes", bytes.len());
    }
}

#[test]
fn any_datagram_parses_or_is_rejected() {
    check!(name = "packets").for_each(parse_everything);
}

#[test]
fn an_edited_message_parses_or_is_rejected() {
    let message = aggregation_message();
    assert_eq!(AggregationHeader::verify(&message), Ok((aggregation_header(), &[5; 16][..])));
    check!(name = "aggregation_messages").for_each(|input: &[u8]| {
        let bytes = edited(&[&message], input);
        parse_everything(&bytes);
        // The checksum covers every byte, and few edits cannot make another that matches.
        if bytes != message && input.len() < 20 {
            assert!(AggregationHeader::verify(&bytes).is_err(), "{bytes:?}");
        }
    });
}
