//! Strategies for valid headers of every type.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use units::{ChildIndex, Epoch, GroupId, Lid, OpId, Psn, QpNumber, SegmentIndex};
use wire::aggregation::{AggregationHeader, AggregationMessageKind, ElementCode, OperatorCode};
use wire::rocev2::{Flow, Fragmentation, IpHeader};
use wire::{
    Aeth, Bth, Deth, Gid, Grh, IcrcCoverage, Immediate, LinkNextHeader, Lrh, Opcode, Packet, PacketHeaders,
    PartitionKey, ProbeToken, QueueKey, RemoteKey, Reth, SackBitmap, ServiceLevel, Syndrome, VirtualLane,
};

prop_compose! {
    pub(crate) fn lrh()(
        lane in 0u8..16,
        level in 0u8..16,
        next in select(&[LinkNextHeader::Transport, LinkNextHeader::Global]),
        destination: u16,
        length_words in 0..=Lrh::MAX_LENGTH_WORDS,
        source: u16,
    ) -> Lrh {
        Lrh {
            lane: VirtualLane(lane),
            level: ServiceLevel(level),
            next,
            destination: Lid(destination),
            length_words,
            source: Lid(source),
        }
    }
}

prop_compose! {
    pub(crate) fn grh()(
        traffic_class: u8,
        flow_label in 0u32..1 << 20,
        payload_length: u16,
        hop_limit: u8,
        source: [u8; 16],
        destination: [u8; 16],
    ) -> Grh {
        let (source, destination) = (Gid(source), Gid(destination));
        Grh { traffic_class, flow_label, payload_length, hop_limit, source, destination }
    }
}

prop_compose! {
    pub(crate) fn bth()(
        opcode in select(Opcode::ALL),
        flags: [bool; 5],
        pad_count in 0u8..4,
        partition: u16,
        destination in 0u32..1 << 24,
        psn: u32,
    ) -> Bth {
        let [solicited_event, migrated, fecn, becn, acknowledge] = flags;
        Bth {
            opcode,
            solicited_event,
            migrated,
            pad_count,
            coverage: IcrcCoverage::Full,
            partition: PartitionKey(partition),
            fecn,
            becn,
            destination: QpNumber(destination),
            acknowledge,
            psn: Psn::new(psn),
        }
    }
}

prop_compose! {
    pub(crate) fn reth()(address: u64, key: u32, length_bytes: u32) -> Reth {
        Reth { address, key: RemoteKey(key), length_bytes }
    }
}

prop_compose! {
    pub(crate) fn aeth()(
        code in any::<u8>().prop_filter("reserved", |code| Syndrome::try_from(*code).is_ok()),
        message_sequence in 0u32..1 << 24,
    ) -> Aeth {
        Aeth { syndrome: Syndrome::try_from(code).expect("not reserved"), message_sequence }
    }
}

prop_compose! {
    pub(crate) fn deth()(key: u32, source in 0u32..1 << 24) -> Deth {
        Deth { key: QueueKey(key), source: QpNumber(source) }
    }
}

prop_compose! {
    pub(crate) fn headers()(bth in bth(), reth in reth(), aeth in aeth(), deth in deth(), immediate: u32, own: [u64; 2]) -> PacketHeaders {
        let wanted = bth.opcode.extended_headers();
        PacketHeaders {
            bth,
            deth: wanted.deth.then_some(deth),
            reth: wanted.reth.then_some(reth),
            aeth: wanted.aeth.then_some(aeth),
            immediate: wanted.immediate.then_some(Immediate(immediate)),
            sack: wanted.sack.then_some(SackBitmap(own[0])),
            probe_token: wanted.probe_token.then_some(ProbeToken(own[1])),
        }
    }
}

/// Headers and a payload instead of a packet, because a packet borrows its payload.
pub(crate) fn content() -> impl Strategy<Value = (PacketHeaders, Vec<u8>)> {
    (headers(), vec(any::<u8>(), 0..300)).prop_map(|(headers, mut payload)| {
        if !headers.bth.opcode.carries_payload() {
            payload.clear();
        }
        (Packet::new(headers, &payload).headers, payload)
    })
}

/// As [`content`], of a connection: Pleach ends may agree that the ICRC of such packets covers less.
pub(crate) fn connection_content() -> impl Strategy<Value = (PacketHeaders, Vec<u8>)> {
    content().prop_filter("datagrams have a full ICRC", |(headers, _)| headers.deth.is_none())
}

/// As [`flow`], but not at the port of RoCEv2.
pub(crate) fn private_flow() -> impl Strategy<Value = Flow> {
    flow().prop_filter("RoCEv2's port", |flow| !flow.uses_rocev2_port())
}

/// The routing headers of a frame.
pub(crate) fn route() -> impl Strategy<Value = (Lrh, Option<Grh>)> {
    (lrh(), option::of(grh()))
}

pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    let fragmentation = select(&[Fragmentation::Allowed, Fragmentation::Forbidden]);
    let v4 = (any::<[u32; 2]>(), any::<u16>(), fragmentation).prop_map(|(ends, identification, fragmentation)| {
        let [source, destination] = ends.map(Ipv4Addr::from);
        IpHeader::V4 { source, destination, identification, fragmentation }
    });
    let v6 = any::<[u128; 2]>().prop_map(|ends| {
        let [source, destination] = ends.map(Ipv6Addr::from);
        IpHeader::V6 { source, destination }
    });
    (prop_oneof![v4, v6], any::<u16>(), any::<u16>()).prop_map(|(ip, source_port, destination_port)| Flow {
        ip,
        source_port,
        destination_port,
    })
}

prop_compose! {
    pub(crate) fn aggregation()(
        kind in select(&[AggregationMessageKind::Contribution, AggregationMessageKind::Result, AggregationMessageKind::Repair, AggregationMessageKind::Abort, AggregationMessageKind::Poll, AggregationMessageKind::NotEntered]),
        small: [u8; 3],
        names: [u32; 4],
        child: u16,
        element_count: u16,
        detail: u32,
    ) -> AggregationHeader {
        AggregationHeader {
            kind,
            element: ElementCode(small[0]),
            operator: OperatorCode(small[1]),
            flags: small[2],
            group: GroupId(names[0]),
            epoch: Epoch(names[1]),
            operation: OpId(names[2]),
            segment: SegmentIndex(names[3]),
            child: ChildIndex(child),
            element_count,
            detail,
        }
    }
}
