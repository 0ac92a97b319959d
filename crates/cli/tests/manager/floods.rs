//! Strangers flood a manager and a node: the memory of both stays as it was, and the job goes on.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use manager::{GroupLeader, GroupRequest};
use units::{Psn, QpNumber, Rank};
use wire::rocev2::{self, Flow, Fragmentation, IpHeader};
use wire::{Bth, Opcode, Packet, PacketHeaders};

use super::process::*;

/// What a process may take more than before: its allocator rounds up, and rejected connections have small buffers.
const MOST_GROWTH: u64 = 4 << 20;
const PACKETS: u32 = 60_000;
const CONNECTIONS: usize = 800;

/// The most memory that a process ever had.
fn peak_bytes(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it lives");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the kernel tells");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

/// A contribution of a stranger with a right ICRC. Each opens another operation, as far as an edge number can say so.
fn forged(from: SocketAddr, to: SocketAddr, edge: QpNumber, number: u32) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (from.ip(), to.ip()) else { panic!("all are IPv4") };
    let ip = IpHeader::V4 { source, destination, identification: 0, fragmentation: Fragmentation::Forbidden };
    let headers = PacketHeaders::from(Bth::new(Opcode::SendOnly, edge, Psn::new(number)));
    let payload: Vec<u8> = (0..900).map(|at: u32| (number.wrapping_mul(2_654_435_761) >> (at % 24)) as u8).collect();
    let mut bytes = vec![0; headers.size_with(payload.len())];
    let flow = Flow { ip, source_port: from.port(), destination_port: to.port() };
    rocev2::emit(&Packet::new(headers, &payload), &flow, &mut bytes);
    bytes
}

#[test]
fn floods_of_strangers_cost_manager_and_node_no_memory() {
    let manager = Process::start(&["manager", "--listen", "127.0.0.1:0", "--log", "error"]);
    let node = Process::start(&["node", "--manager", &manager.line, "--name", "flooded", "--log", "error"]);
    let mut client = client(&manager);
    wait_for_nodes(&mut client, 1);
    client.open_job("flooded", None).expect("admitted");
    // The attacker even has the address of a leader, and knows its edge. It lacks only the key.
    let attacker = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let own = attacker.local_addr().expect("bound");
    let leader = |rank: u32| GroupLeader { rank: Rank(rank), host: format!("host{rank}"), addresses: vec![own] };
    let leaders = (0..4).map(leader).collect();
    let group = client.open_group(GroupRequest { leaders, ..request(4) }).expect("opened");
    let (target, edge) = (group.seats[0].addresses[0], group.leaders[0].edge);
    let before = [peak_bytes(manager.id()), peak_bytes(node.id())];

    for number in 0..PACKETS {
        let edge = if number.is_multiple_of(4) { QpNumber(number) } else { edge };
        let packet = forged(own, target, edge, number);
        // Some have a wrong ICRC, some are cut off.
        let length =
            if number.is_multiple_of(7) { packet.len() - (number as usize % packet.len()) } else { packet.len() };
        let _ = attacker.send_to(&packet[..length], target);
    }
    let control = manager.address();
    let flood: Vec<TcpStream> = (0..CONNECTIONS)
        .filter_map(|number| {
            let mut stream = TcpStream::connect(control).ok()?;
            // Nothing at all, half a hello, or a hello that says that four gigabytes follow.
            let _ = match number % 3 {
                0 => Ok(()),
                1 => stream.write_all(&[0; 3]),
                _ => stream.write_all(&[&[0xff; 64][..], &vec![7; 60_000][..]].concat()),
            };
            Some(stream)
        })
        .collect();
    assert!(flood.len() > CONNECTIONS / 2, "only {} connections", flood.len());

    let status = |client: &mut control::ManagerClient| {
        let nodes = client.status().expect("it answers").nodes;
        nodes.into_iter().find(|node| node.name == "flooded").expect("it is there")
    };
    until("the node has counted what it rejected", || {
        status(&mut client).report.dropped.values().sum::<u64>() > u64::from(PACKETS / 20)
    });
    let report = status(&mut client).report;
    assert!(report.dropped["forged"] > 0 && report.in_flight == 0 && report.operations == 0, "{report:?}");
    let after = [peak_bytes(manager.id()), peak_bytes(node.id())];
    for (name, before, after) in [("manager", before[0], after[0]), ("node", before[1], after[1])] {
        assert!(after <= before + MOST_GROWTH, "the {name} grew from {} to {} KiB", before >> 10, after >> 10);
    }
    client.open_group(request(4)).expect("others still get groups");
    drop(flood);
}
