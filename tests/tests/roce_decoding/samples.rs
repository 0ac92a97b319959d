//! Sample packets of every opcode, over both IP versions, with every flag, padding and syndrome.

use std::net::{Ipv4Addr, Ipv6Addr};

use units::{Psn, QpNumber};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader, UDP_PORT};
use wire::{
    Aeth, Bth, CreditCode, Deth, Immediate, NakCause, Opcode, Packet, PacketHeaders, PartitionKey, ProbeToken,
    QueueKey, RemoteKey, Reth, SackBitmap, Syndrome,
};

use crate::capture::{self, Network};

/// The contents of a packet.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) headers: PacketHeaders,
    pub(crate) payload: Vec<u8>,
    pub(crate) flow: Flow,
}

/// All samples.
pub(crate) fn all() -> Vec<Sample> {
    let mut samples = Vec::new();
    for network in [Network::V4, Network::V6] {
        for &opcode in Opcode::ALL {
            // No payload, every pad count, whole words, and a path MTU.
            let lengths: &[usize] = if opcode.carries_payload() { &[0, 1, 2, 3, 4, 256, 4096] } else { &[0] };
            for &length in lengths {
                for flags in FLAGS {
                    samples.push(sample(samples.len() as u32, network, opcode, flags, length));
                }
            }
        }
        let syndromes = (0..=u8::MAX).filter_map(|code| Syndrome::try_from(code).ok());
        for syndrome in syndromes {
            let mut sample = sample(samples.len() as u32, network, Opcode::Acknowledge, 0, 0);
            sample.headers.aeth = Some(Aeth { syndrome, message_sequence: 0xff_ffff });
            samples.push(sample);
        }
    }
    samples
}

/// None of the base header's five flags, each alone, and all.
const FLAGS: [u8; 7] = [0, 1, 1 << 1, 1 << 2, 1 << 3, 1 << 4, 0x1f];

/// A sample whose fields all derive from `seed`, including their high bits.
fn sample(seed: u32, network: Network, opcode: Opcode, flags: u8, length: usize) -> Sample {
    let mixed = |salt: u32| (seed + 1).wrapping_mul(0x9e37_79b9).rotate_left(salt);
    let wide = |salt: u32| u64::from(mixed(salt)) << 32 | u64::from(mixed(salt + 7));
    let flag = |bit: u8| flags >> bit & 1 == 1;
    let bth = Bth {
        migrated: flag(0),
        acknowledge: flag(1),
        solicited_event: flag(2),
        fecn: flag(3),
        becn: flag(4),
        partition: PartitionKey(mixed(1) as u16),
        // Queue pairs 0 and 1 carry management packets, which tshark would dissect as such.
        ..Bth::new(opcode, QpNumber(mixed(2) >> 8 | 2), Psn::new(mixed(3)))
    };
    let wanted = opcode.extended_headers();
    let syndrome = match opcode {
        Opcode::SelectiveAcknowledge => Syndrome::Nak { cause: NakCause::PsnSequence },
        _ => Syndrome::Ack { credits: CreditCode::from_code(seed as u8) },
    };
    // The first two bytes are no EtherType; otherwise tshark would dissect the payload as an Ethernet frame.
    let payload: Vec<u8> = (0..length).map(|at| if at < 2 { 0xfe } else { (at as u32 ^ seed) as u8 }).collect();
    let headers = PacketHeaders {
        bth,
        deth: wanted.deth.then(|| Deth { key: QueueKey(mixed(4)), source: QpNumber(mixed(5) >> 8) }),
        reth: wanted.reth.then(|| Reth { address: wide(6), key: RemoteKey(mixed(8)), length_bytes: mixed(9) >> 1 }),
        aeth: wanted.aeth.then(|| Aeth { syndrome, message_sequence: mixed(10) >> 8 }),
        immediate: wanted.immediate.then(|| Immediate(mixed(11))),
        sack: wanted.sack.then(|| SackBitmap(wide(12))),
        probe_token: wanted.probe_token.then(|| ProbeToken(wide(13))),
    };
    let headers = Packet::new(headers, &payload).headers;
    Sample { headers, payload, flow: flow(seed, network) }
}

fn flow(seed: u32, network: Network) -> Flow {
    let ip = match network {
        Network::V4 => IpHeader::V4 {
            source: Ipv4Addr::from(0x0a00_0000 + seed),
            destination: Ipv4Addr::new(192, 168, 200, 7),
            identification: seed as u16,
            fragmentation: if seed.is_multiple_of(2) { Fragmentation::Forbidden } else { Fragmentation::Allowed },
        },
        Network::V6 => IpHeader::V6 {
            source: Ipv6Addr::from(0xfd00_0000_0000_0000_0000_0000_0000_0000 | u128::from(seed)),
            destination: "fd00:1:2:3:4:5:6:7".parse().expect("an address"),
        },
    };
    Flow { ip, source_port: 0xc000 | seed as u16, destination_port: UDP_PORT }
}

impl Sample {
    /// The UDP payload, including the ICRC.
    pub(crate) fn datagram(&self) -> Vec<u8> {
        let packet = Packet::new(self.headers, &self.payload);
        let mut datagram = vec![0; packet.size()];
        rocev2::emit(&packet, &self.flow, &mut datagram);
        datagram
    }

    /// The datagram with its IP and UDP headers.
    pub(crate) fn network_packet(&self) -> Vec<u8> {
        capture::network_packet(&self.flow, &self.datagram())
    }
}
