//! The fields that tshark must report for a sample.

use wire::Bth;

use crate::capture::{Network, hex};
use crate::samples::Sample;
use crate::tshark::Row;

/// Compares every field requested from tshark; a field that the sample lacks must be absent.
///
/// # Panics
/// A field differs.
pub(crate) fn check(sample: &Sample, row: &Row) {
    assert!(!row.is_malformed(), "{sample:?}\ntshark reports it as malformed: {row:?}");
    let around = around(sample).into_iter();
    for (field, expected) in around.chain(base_header(sample)).chain(extended_headers(sample)) {
        assert_eq!(row.number(field), expected, "{field} of {sample:?}\ntshark reports {row:?}");
    }
    for (field, expected) in bytes(sample) {
        assert_eq!(row.bytes(field), expected, "{field} of {sample:?}\ntshark reports {row:?}");
    }
}

/// A field, and its number if it is present.
type Number = (&'static str, Option<u64>);

fn around(sample: &Sample) -> [Number; 3] {
    /// tshark's code for a correct checksum.
    const GOOD: u64 = 1;
    let datagram = sample.datagram();
    let icrc = datagram.last_chunk().map(|code| u32::from_be_bytes(*code).into());
    [
        ("ip.checksum.status", (Network::of(&sample.flow) == Network::V4).then_some(GOOD)),
        ("udp.checksum.status", Some(GOOD)),
        ("infiniband.invariant.crc", icrc.filter(|_| !is_own(sample))),
    ]
}

fn base_header(sample: &Sample) -> [Number; 9] {
    let bth = &sample.headers.bth;
    [
        ("infiniband.bth.opcode", Some(bth.opcode.code().into())),
        ("infiniband.bth.se", Some(bth.solicited_event.into())),
        ("infiniband.bth.m", Some(bth.migrated.into())),
        ("infiniband.bth.padcnt", Some((sample.payload.len().next_multiple_of(4) - sample.payload.len()) as u64)),
        ("infiniband.bth.tver", Some(0)),
        ("infiniband.bth.p_key", Some(bth.partition.0.into())),
        ("infiniband.bth.destqp", Some(bth.destination.0.into())),
        ("infiniband.bth.a", Some(bth.acknowledge.into())),
        ("infiniband.bth.psn", Some(bth.psn.get().into())),
    ]
}

fn extended_headers(sample: &Sample) -> [Number; 7] {
    let headers = &sample.headers;
    let aeth = headers.aeth.filter(|_| !is_own(sample));
    [
        ("infiniband.deth.q_key", headers.deth.map(|deth| deth.key.0.into())),
        ("infiniband.deth.srcqp", headers.deth.map(|deth| deth.source.0.into())),
        ("infiniband.reth.va", headers.reth.map(|reth| reth.address)),
        ("infiniband.reth.r_key", headers.reth.map(|reth| reth.key.0.into())),
        ("infiniband.reth.dmalen", headers.reth.map(|reth| reth.length_bytes.into())),
        ("infiniband.aeth.syndrome", aeth.map(|aeth| aeth.syndrome.code().into())),
        ("infiniband.aeth.msn", aeth.map(|aeth| aeth.message_sequence.into())),
    ]
}

fn bytes(sample: &Sample) -> [(&'static str, Option<String>); 3] {
    let datagram = sample.datagram();
    // tshark counts padding as data.
    let mut data = sample.payload.clone();
    data.resize(data.len().next_multiple_of(4), 0);
    [
        ("infiniband.immdt", sample.headers.immediate.map(|immediate| format!("{:08x}", immediate.0))),
        ("data.data", (!data.is_empty() && !is_own(sample)).then(|| hex(&data))),
        ("infiniband.vendor", is_own(sample).then(|| hex(&datagram[Bth::SIZE..]))),
    ]
}

/// Whether the opcode is one of Pleach's own; to tshark the bytes after the base header are then opaque, with the ICRC.
fn is_own(sample: &Sample) -> bool {
    sample.headers.bth.opcode.code() >= 0xc0
}
