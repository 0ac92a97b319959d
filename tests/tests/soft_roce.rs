//! The soft-RoCE guest itself: it boots, it runs commands, its device works, and the fault rules have their effect.
//!
//! Ignored by default: each test boots one or two guests, the first also builds the image (prerequisites: `tests::guest`). All
//! names begin with `soft_roce`, so that one filter can leave them out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tests::guest::{
    Direction, Exit, FaultRule, Guest, GuestError, GuestNetwork, HANDSHAKE_PORT, HOST_ADDRESS, Output, PacketFault,
    PayloadCheck, Pingpong, PingpongResult, run_bounded,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Runs a ping-pong between two guests, or inside one; returns the output of the server and the client.
fn run_pingpong(pingpong: &Pingpong, server: &Guest, client: &Guest) -> Result<[Output; 2], GuestError> {
    let listening = server.spawn(&pingpong.server(server.gid_index()), LIMIT)?;
    server.wait_listening(LIMIT)?;
    let client = client.run(&pingpong.client(client.gid_index(), server.address()), LIMIT)?;
    let server = if client.is_success() { listening.wait()? } else { listening.kill()? };
    Ok([server, client])
}

/// Checks that both sides finished, with the right number of messages and bytes.
fn assert_complete(pingpong: &Pingpong, outputs: &[Output; 2]) {
    for output in outputs {
        assert!(output.is_success(), "{output}");
        let result = PingpongResult::read(&output.stdout).unwrap_or_else(|| panic!("no result: {output}"));
        let bytes = 2 * u64::from(pingpong.message_bytes) * u64::from(pingpong.iterations);
        assert_eq!((result.iterations, result.bytes), (pingpong.iterations, bytes), "{output}");
    }
}

fn every(direction: Direction, fault: PacketFault, every: u32) -> FaultRule {
    FaultRule { direction, fault, every: NonZeroU32::new(every).expect("not zero") }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_runs_commands_and_survives_their_failures() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    let device = guest.run("ibv_devinfo -d rxe0", LIMIT).unwrap();
    assert!(device.is_success() && device.stdout.contains("PORT_ACTIVE"), "{device}");

    let failing = guest.run("echo out; echo err >&2; exit 3", LIMIT).unwrap();
    assert_eq!((failing.exit, &*failing.stdout, &*failing.stderr), (Exit::Status(3), "out\n", "err\n"));

    // Background processes of a command end with it.
    let start = Instant::now();
    let late = guest.run("sleep 1000 & sleep 1001", Duration::from_secs(1)).unwrap();
    assert_eq!(late.exit, Exit::TimedOut);
    let killed = guest.spawn("sleep 1002", LIMIT).unwrap().kill().unwrap();
    assert_eq!(killed.exit, Exit::Status(128 + 9));
    let gone = guest.run("while ps | grep -q '[s]leep 100'; do sleep 0.1; done", Duration::from_secs(10)).unwrap();
    assert!(gone.is_success(), "{}", guest.run("ps", LIMIT).unwrap());
    assert!(start.elapsed() < LIMIT);

    // Programs of this machine reach the guest from inside the namespace.
    let address = guest.address().to_string();
    let route = run_bounded(guest.network().command("ip").args(["route", "get", &address]), LIMIT).unwrap();
    assert!(String::from_utf8_lossy(&route.stdout).contains("bridge0"), "{route:?}");
    let ping = guest.run(&format!("ping -c 1 {HOST_ADDRESS}"), LIMIT).unwrap();
    assert!(ping.is_success(), "{ping}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_completes_a_ping_pong_with_itself() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    for (message_bytes, path_mtu_bytes) in [(1, 256), (4096, 1024), (65536, 4096)] {
        let pingpong = Pingpong { message_bytes, iterations: 100, path_mtu_bytes, contents: PayloadCheck::Checked };
        assert_complete(&pingpong, &run_pingpong(&pingpong, &guest, &guest).unwrap());
    }
    let counters = guest.counters().unwrap();
    assert!(counters["rdma_sends"] >= 600, "{counters:?}");
}

/// The handshake of `tests::guest::pingpong`, from this machine's side.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_follows_the_documented_handshake() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    let server = guest.spawn(&Pingpong::default().server(guest.gid_index()), LIMIT).unwrap();
    guest.wait_listening(LIMIT).unwrap();
    let connected = guest.network().inside(|| TcpStream::connect((guest.address(), HANDSHAKE_PORT)));
    let mut connection = connected.unwrap().unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    connection.write_all(b"0000:000123:fffffe:00000000000000000000ffff0a5b0001\0").unwrap();
    let mut address = [0; 52];
    connection.read_exact(&mut address).unwrap();
    connection.write_all(b"done\0").unwrap();
    assert_eq!(connection.read(&mut [0]).unwrap(), 0, "the server closes too");

    let (address, end) = address.split_at(51);
    let fields: Vec<&str> = std::str::from_utf8(address).unwrap().split(':').collect();
    assert_eq!((end, fields[0], fields[1].len(), fields[2].len()), (&[0][..], "0000", 6, 6));
    assert_eq!(fields[3], "00000000000000000000ffff0a5b0002");
    // No peer sends; the server waits until it is killed.
    assert_eq!(server.kill().unwrap().exit, Exit::Status(128 + 9));
}

#[test]
#[ignore = "boots two virtual machines"]
fn soft_roce_guests_recover_from_drops_and_corruption() {
    let network = Arc::new(GuestNetwork::create().unwrap_or_else(|error| panic!("{error}")));
    let [server, client] = [(); 2].map(|()| Guest::boot_in(&network).unwrap_or_else(|error| panic!("{error}")));
    let pingpong =
        Pingpong { message_bytes: 4096, iterations: 50, path_mtu_bytes: 1024, contents: PayloadCheck::Checked };

    server.set_fault_rules(&[]).unwrap();
    let before = server.counters().unwrap();
    assert_complete(&pingpong, &run_pingpong(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap()[&Direction::Incoming];
    let accepted = server.counters().unwrap()["rcvd_pkts"] - before["rcvd_pkts"];
    assert_eq!((accepted, counts.affected), (counts.seen, 0), "without faults, soft-RoCE accepts every packet");

    // 17 and 23 share no period with messages of four packets and an acknowledgement.
    server
        .set_fault_rules(&[
            every(Direction::Incoming, PacketFault::Drop, 17),
            every(Direction::Outgoing, PacketFault::Drop, 23),
        ])
        .unwrap();
    assert_complete(&pingpong, &run_pingpong(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap();
    assert!(counts.values().all(|count| count.affected > 5), "{counts:?}");

    let before = server.counters().unwrap();
    server.set_fault_rules(&[every(Direction::Incoming, PacketFault::FlipBit, 17)]).unwrap();
    assert_complete(&pingpong, &run_pingpong(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap()[&Direction::Incoming];
    let accepted = server.counters().unwrap()["rcvd_pkts"] - before["rcvd_pkts"];
    assert!(counts.affected > 5, "{counts:?}");
    assert_eq!(accepted, counts.seen - counts.affected, "soft-RoCE drops packets with a bad ICRC: {counts:?}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_and_namespace_end_when_dropped() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    let name = guest.network().name().to_owned();
    let namespaces = || {
        let list = run_bounded(std::process::Command::new("ip").args(["netns", "list"]), LIMIT).unwrap();
        String::from_utf8_lossy(&list.stdout).into_owned()
    };
    assert!(namespaces().contains(&name));
    drop(guest);
    assert!(!namespaces().contains(&name));
}
