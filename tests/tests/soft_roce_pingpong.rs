//! Our ping-pong against Linux soft-RoCE: `pleach pingpong --verbs` in a namespace, `ibv_rc_pingpong` in a guest.
//!
//! Ignored by default: each test boots a guest (prerequisites: `tests::guest`).

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use tests::guest::{
    self, Direction, FaultRule, Guest, HANDSHAKE_PORT, HOST_ADDRESS, PacketFault, PayloadCheck, Pingpong,
    PingpongResult, run_bounded,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Messages of one byte, of one packet, of slightly more than four packets; the largest path MTU with a message length that is
/// no multiple of 4.
const PLAIN: [Pingpong; 4] =
    [pingpong(1, 100, 1024), pingpong(1024, 100, 1024), pingpong(4100, 100, 1024), pingpong(65_533, 20, 4096)];

/// Four packets per message, and enough messages for every rule to take effect often.
const DISTURBED: Pingpong = pingpong(4096, 50, 1024);

/// The guest does not check the payload, since its check requires certain bytes; ours checks all bytes against its own pattern.
const fn pingpong(message_bytes: u32, iterations: u32, path_mtu_bytes: u32) -> Pingpong {
    Pingpong { message_bytes, iterations, path_mtu_bytes, contents: PayloadCheck::Unchecked }
}

#[derive(Clone, Copy)]
enum Role {
    /// We connect and send first; the guest returns our bytes.
    Client,
    /// We listen; the guest sends first.
    Server,
}

/// The binary that cargo built beside this test. `cargo test --workspace` builds it; `cargo test -p tests` alone does not.
fn pleach() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/test");
    let binary = folder.join("pleach");
    assert!(binary.is_file(), "{} is not built; run `cargo build -p pleach-cli`", binary.display());
    binary
}

fn program_arguments(pingpong: &Pingpong) -> Vec<String> {
    let pairs = [
        ("--size", pingpong.message_bytes),
        ("--iterations", pingpong.iterations),
        ("--mtu", pingpong.path_mtu_bytes),
    ];
    pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect()
}

/// Runs once; returns the output of both programs.
fn run_pingpong(guest: &Guest, role: Role, pingpong: &Pingpong) -> (Output, guest::Output) {
    let mut ours = guest.network().command(pleach());
    ours.args(["pingpong", "--verbs"]);
    match role {
        Role::Client => {
            let theirs = guest.spawn(&pingpong.server(guest.gid_index()), LIMIT).unwrap();
            guest.wait_listening(LIMIT).unwrap();
            ours.arg(guest.address().to_string()).args(program_arguments(pingpong));
            let ours = run_bounded(&mut ours, LIMIT).unwrap();
            let theirs = if ours.status.success() { theirs.wait() } else { theirs.kill() };
            (ours, theirs.unwrap())
        }
        Role::Server => {
            ours.args(["--listen", "--bind", &HOST_ADDRESS.to_string()]).args(program_arguments(pingpong));
            let ours = std::thread::spawn(move || run_bounded(&mut ours, LIMIT));
            guest.network().wait_listening(HANDSHAKE_PORT, LIMIT).unwrap();
            let theirs = guest.run(&pingpong.client(guest.gid_index(), HOST_ADDRESS), LIMIT).unwrap();
            (ours.join().unwrap().unwrap(), theirs)
        }
    }
}

fn assert_complete(guest: &Guest, role: Role, pingpong: &Pingpong) {
    let (ours, theirs) = run_pingpong(guest, role, pingpong);
    let seen = format!("{pingpong:?}\nours: {ours:?}\nguest: {theirs}");
    assert!(ours.status.success() && theirs.is_success(), "{seen}");
    assert_eq!(
        PingpongResult::read(&theirs.stdout).map(|score| score.iterations),
        Some(pingpong.iterations),
        "{seen}"
    );
}

fn boot() -> Guest {
    Guest::boot().unwrap_or_else(|error| panic!("{error}"))
}

fn every(direction: Direction, fault: PacketFault, every: u32) -> FaultRule {
    FaultRule { direction, fault, every: NonZeroU32::new(every).expect("not zero") }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_server_completes_with_our_client() {
    let guest = boot();
    PLAIN.iter().for_each(|pingpong| assert_complete(&guest, Role::Client, pingpong));
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_client_completes_with_our_server() {
    let guest = boot();
    PLAIN.iter().for_each(|pingpong| assert_complete(&guest, Role::Server, pingpong));
}

/// Soft-RoCE must accept every packet of ours: a retransmission would hide a packet that it drops for its ICRC.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_accepts_every_packet_of_ours() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.set_fault_rules(&[]).unwrap();
        let before = guest.counters().unwrap()["rcvd_pkts"];
        assert_complete(&guest, role, &DISTURBED);
        let accepted = guest.counters().unwrap()["rcvd_pkts"] - before;
        assert_eq!(accepted, guest.packet_counts().unwrap()[&Direction::Incoming].seen);
    }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_and_we_recover_from_dropped_packets() {
    let guest = boot();
    // 17 and 23 share no period with messages of four packets and an acknowledgement.
    let rules =
        [every(Direction::Incoming, PacketFault::Drop, 17), every(Direction::Outgoing, PacketFault::Drop, 23)];
    for role in [Role::Client, Role::Server] {
        guest.set_fault_rules(&rules).unwrap();
        assert_complete(&guest, role, &DISTURBED);
        let counts = guest.packet_counts().unwrap();
        assert!(counts.values().all(|count| count.affected > 5), "{counts:?}");
    }
}

/// The rule corrupts packets that we send: soft-RoCE must drop them, and we must retransmit.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_drops_corrupted_packets_and_receives_them_again() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.set_fault_rules(&[every(Direction::Incoming, PacketFault::FlipBit, 17)]).unwrap();
        let before = guest.counters().unwrap()["rcvd_pkts"];
        assert_complete(&guest, role, &DISTURBED);
        let accepted = guest.counters().unwrap()["rcvd_pkts"] - before;
        let count = guest.packet_counts().unwrap()[&Direction::Incoming];
        assert!(count.affected > 5, "{count:?}");
        assert_eq!(accepted, count.seen - count.affected, "{count:?}");
    }
}

/// The rule corrupts packets that the guest sends: our ICRC check must find them, or our payload check fails.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_retransmits_packets_that_we_found_corrupted() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.set_fault_rules(&[every(Direction::Outgoing, PacketFault::FlipBit, 17)]).unwrap();
        assert_complete(&guest, role, &DISTURBED);
        let count = guest.packet_counts().unwrap()[&Direction::Outgoing];
        assert!(count.affected > 5, "{count:?}");
    }
}
