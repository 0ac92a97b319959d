//! Packets as other implementations read them: tshark dissects ours, and scapy rebuilds them from its own parse. What is not RoCEv2
//! is read by the project's own dissector (contrib/pleach.lua).
//!
//! Other tests check the codecs against themselves; agreement with programs that share no code with them shows that encoder and
//! decoder do not have the same defect. Needs the Debian packages `tshark` and `python3-scapy`; xtask's list of packages refers
//! to these tests by name.

mod capture;
mod dissector;
mod expectation;
mod live;
mod samples;
mod scapy;
mod tshark;

use capture::Network;
use samples::Sample;

#[test]
fn tshark_reads_every_packet_correctly() {
    let samples = samples::all();
    let packets: Vec<Vec<u8>> = samples.iter().map(Sample::network_packet).collect();
    let rows = tshark::read("every_packet", &packets);
    assert_eq!(rows.len(), samples.len());
    for (sample, row) in samples.iter().zip(rows) {
        expectation::check(sample, &row);
    }
}

#[test]
fn tshark_notices_a_packet_that_is_truncated() {
    // Without this test, a tshark that ignores port 4791 would report nothing malformed either.
    let sample =
        samples::all().into_iter().find(|sample| sample.headers.reth.is_some()).expect("the samples include a write");
    let datagram = sample.datagram();
    let cut = [14, 20, 26].map(|length| capture::network_packet(&sample.flow, &datagram[..length]));
    let rows = tshark::read("cut_short", &cut);
    assert_eq!(rows.len(), cut.len());
    for row in rows {
        assert!(row.is_malformed(), "tshark accepts a truncated write: {row:?}");
    }
}

#[test]
fn scapy_does_not_repeat_a_wrong_icrc() {
    // Without this test, a scapy that returns its input would agree with anything.
    let samples = samples::all();
    for network in [Network::V4, Network::V6] {
        let of_network = |sample: &&Sample| Network::of(&sample.flow) == network;
        let right = samples.iter().find(of_network).expect("both networks have samples").network_packet();
        let mut wrong = right.clone();
        let last = wrong.last_mut().expect("a packet is not empty");
        *last = !*last;
        assert_eq!(scapy::remake(&[wrong]), [capture::hex(&right)]);
    }
}

#[test]
fn scapy_makes_the_same_packets_and_icrcs() {
    let samples = samples::all();
    let packets: Vec<Vec<u8>> = samples.iter().map(Sample::network_packet).collect();
    let remade = scapy::remake(&packets);
    assert_eq!(remade.len(), packets.len());
    for ((sample, ours), theirs) in samples.iter().zip(&packets).zip(&remade) {
        assert_eq!(capture::hex(ours), *theirs, "{sample:?}");
    }
}

#[test]
fn tshark_reads_every_packet_of_a_live_connection() {
    let packets = live::packets(1);
    let rows = tshark::read("live", &packets);
    assert_eq!(rows.len(), packets.len());
    let mut opcodes = std::collections::BTreeSet::new();
    for row in &rows {
        assert!(!row.is_malformed(), "{row:?}");
        opcodes.extend(row.number("infiniband.bth.opcode"));
    }
    // First, middle and last of messages and of writes, both kinds of acknowledgement, probes and their replies.
    for opcode in [0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x11, 0xc1, 0xc2, 0xc3] {
        assert!(opcodes.contains(&opcode), "{opcode:#x} is not among {opcodes:x?}");
    }
}

#[test]
fn scapy_makes_the_same_packets_of_a_live_connection() {
    let packets = live::packets(2);
    for (ours, theirs) in packets.iter().zip(scapy::remake(&packets)) {
        // Scapy also recomputes the UDP checksum; compare only the ICRC.
        let ours = capture::hex(ours);
        assert_eq!(ours[ours.len() - 8..], theirs[theirs.len() - 8..]);
    }
}
