//! The soft-RoCE guest itself: it boots, it obeys, its device works, and faults on its wire do what they say.
//!
//! Ignored where time is short: each test boots a guest or two, the first builds it (`tests::guest` says what it
//! needs). All names begin with `soft_roce`, so that a machine that lacks something can leave them out together.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tests::guest::{
    Contents, Direction, Disturbance, Exit, Guest, GuestError, HANDSHAKE_PORT, HOST_ADDRESS, Harm, Network, Output,
    Pingpong, Score, run_bounded,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Plays a ping-pong between two guests, or inside one; returns what the server and the client wrote.
fn play(pingpong: &Pingpong, server: &Guest, client: &Guest) -> Result<[Output; 2], GuestError> {
    let listening = server.spawn(&pingpong.server(server.gid_index()), LIMIT)?;
    server.wait_listening(LIMIT)?;
    let client = client.run(&pingpong.client(client.gid_index(), server.address()), LIMIT)?;
    let server = if client.is_success() { listening.wait()? } else { listening.kill()? };
    Ok([server, client])
}

/// Both sides finished, and moved what they were told to.
fn assert_played(pingpong: &Pingpong, outputs: &[Output; 2]) {
    for output in outputs {
        assert!(output.is_success(), "{output}");
        let score = Score::read(&output.stdout).unwrap_or_else(|| panic!("no score: {output}"));
        let bytes = 2 * u64::from(pingpong.message_bytes) * u64::from(pingpong.iterations);
        assert_eq!((score.iterations, score.bytes), (pingpong.iterations, bytes), "{output}");
    }
}

fn every(direction: Direction, harm: Harm, every: u32) -> Disturbance {
    Disturbance { direction, harm, every: NonZeroU32::new(every).expect("not zero") }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_obeys_commands_and_outlives_their_failures() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    let device = guest.run("ibv_devinfo -d rxe0", LIMIT).unwrap();
    assert!(device.is_success() && device.stdout.contains("PORT_ACTIVE"), "{device}");

    let failing = guest.run("echo out; echo err >&2; exit 3", LIMIT).unwrap();
    assert_eq!((failing.exit, &*failing.stdout, &*failing.stderr), (Exit::Status(3), "out\n", "err\n"));

    // What it started in the background ends with it.
    let start = Instant::now();
    let late = guest.run("sleep 1000 & sleep 1001", Duration::from_secs(1)).unwrap();
    assert_eq!(late.exit, Exit::Late);
    let killed = guest.spawn("sleep 1002", LIMIT).unwrap().kill().unwrap();
    assert_eq!(killed.exit, Exit::Status(128 + 9));
    let gone = guest.run("while ps | grep -q '[s]leep 100'; do sleep 0.1; done", Duration::from_secs(10)).unwrap();
    assert!(gone.is_success(), "{}", guest.run("ps", LIMIT).unwrap());
    assert!(start.elapsed() < LIMIT);

    // This machine's programs reach the guest from inside the namespace.
    let address = guest.address().to_string();
    let route = run_bounded(guest.network().command("ip").args(["route", "get", &address]), LIMIT).unwrap();
    assert!(String::from_utf8_lossy(&route.stdout).contains("bridge0"), "{route:?}");
    let ping = guest.run(&format!("ping -c 1 {HOST_ADDRESS}"), LIMIT).unwrap();
    assert!(ping.is_success(), "{ping}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_plays_ping_pong_with_itself() {
    let guest = Guest::boot().unwrap_or_else(|error| panic!("{error}"));
    for (message_bytes, path_mtu_bytes) in [(1, 256), (4096, 1024), (65536, 4096)] {
        let pingpong = Pingpong { message_bytes, iterations: 100, path_mtu_bytes, contents: Contents::Checked };
        assert_played(&pingpong, &play(&pingpong, &guest, &guest).unwrap());
    }
    let counters = guest.counters().unwrap();
    assert!(counters["rdma_sends"] >= 600, "{counters:?}");
}

/// The table of `tests::guest::pingpong`, from this machine's side.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_shakes_hands_as_documented() {
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
    // Nobody plays with it; it waits until it is ended.
    assert_eq!(server.kill().unwrap().exit, Exit::Status(128 + 9));
}

#[test]
#[ignore = "boots two virtual machines"]
fn soft_roce_guests_recover_from_drops_and_damage_between_them() {
    let network = Arc::new(Network::create().unwrap_or_else(|error| panic!("{error}")));
    let [server, client] = [(); 2].map(|()| Guest::boot_in(&network).unwrap_or_else(|error| panic!("{error}")));
    let pingpong =
        Pingpong { message_bytes: 4096, iterations: 50, path_mtu_bytes: 1024, contents: Contents::Checked };

    server.disturb(&[]).unwrap();
    let before = server.counters().unwrap();
    assert_played(&pingpong, &play(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap()[&Direction::Incoming];
    let taken = server.counters().unwrap()["rcvd_pkts"] - before["rcvd_pkts"];
    assert_eq!((taken, counts.hurt), (counts.seen, 0), "undisturbed, all that comes is taken");

    // 17 and 23 have no common rhythm with messages of four packets and an acknowledgement.
    server
        .disturb(&[every(Direction::Incoming, Harm::Drop, 17), every(Direction::Outgoing, Harm::Drop, 23)])
        .unwrap();
    assert_played(&pingpong, &play(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap();
    assert!(counts.values().all(|count| count.hurt > 5), "{counts:?}");

    let before = server.counters().unwrap();
    server.disturb(&[every(Direction::Incoming, Harm::FlipBit, 17)]).unwrap();
    assert_played(&pingpong, &play(&pingpong, &server, &client).unwrap());
    let counts = server.packet_counts().unwrap()[&Direction::Incoming];
    let taken = server.counters().unwrap()["rcvd_pkts"] - before["rcvd_pkts"];
    assert!(counts.hurt > 5, "{counts:?}");
    assert_eq!(taken, counts.seen - counts.hurt, "what has a bad ICRC is not taken: {counts:?}");
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_guest_and_namespace_are_gone_after_the_drop() {
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
