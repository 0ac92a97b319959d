//! Our ping-pong against Linux soft-RoCE: `pleach pingpong --verbs` in a namespace, `ibv_rc_pingpong` in a guest.
//!
//! Ignored where time is short: each test boots a guest (`tests::guest` says what it needs).

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use tests::guest::{
    self, Contents, Direction, Disturbance, Guest, HANDSHAKE_PORT, HOST_ADDRESS, Harm, Pingpong, Score, run_bounded,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Messages of one byte, of one packet, of four and a bit; the largest path MTU with a message that is no multiple of
/// 4.
const PLAIN: [Pingpong; 4] =
    [pingpong(1, 100, 1024), pingpong(1024, 100, 1024), pingpong(4100, 100, 1024), pingpong(65_533, 20, 4096)];

/// Four packets a message, enough of them for every rule to strike often.
const DISTURBED: Pingpong = pingpong(4096, 50, 1024);

/// Unchecked by the guest, whose check wants certain bytes: ours checks all, against a pattern of its own.
const fn pingpong(message_bytes: u32, iterations: u32, path_mtu_bytes: u32) -> Pingpong {
    Pingpong { message_bytes, iterations, path_mtu_bytes, contents: Contents::Unchecked }
}

#[derive(Clone, Copy)]
enum Role {
    /// We connect and send first; the guest returns our bytes.
    Client,
    /// We listen; the guest sends first.
    Server,
}

/// The binary that cargo built beside this test. `cargo test --workspace` builds it; `cargo test -p tests` alone does
/// not.
fn pleach() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("target/PROFILE/deps/test");
    let binary = folder.join("pleach");
    assert!(binary.is_file(), "{} is not built: cargo build -p cli", binary.display());
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

/// Plays once; returns what ours and the guest's program wrote.
fn play(guest: &Guest, role: Role, pingpong: &Pingpong) -> (Output, guest::Output) {
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

fn assert_played(guest: &Guest, role: Role, pingpong: &Pingpong) {
    let (ours, theirs) = play(guest, role, pingpong);
    let seen = format!("{pingpong:?}\nours: {ours:?}\nguest: {theirs}");
    assert!(ours.status.success() && theirs.is_success(), "{seen}");
    assert_eq!(Score::read(&theirs.stdout).map(|score| score.iterations), Some(pingpong.iterations), "{seen}");
}

fn boot() -> Guest {
    Guest::boot().unwrap_or_else(|error| panic!("{error}"))
}

fn every(direction: Direction, harm: Harm, every: u32) -> Disturbance {
    Disturbance { direction, harm, every: NonZeroU32::new(every).expect("not zero") }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_server_plays_with_our_client() {
    let guest = boot();
    PLAIN.iter().for_each(|pingpong| assert_played(&guest, Role::Client, pingpong));
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_client_plays_with_our_server() {
    let guest = boot();
    PLAIN.iter().for_each(|pingpong| assert_played(&guest, Role::Server, pingpong));
}

/// All that we send must be taken: a packet that soft-RoCE drops for its ICRC would be hidden by its repetition.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_takes_every_packet_of_ours() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.disturb(&[]).unwrap();
        let before = guest.counters().unwrap()["rcvd_pkts"];
        assert_played(&guest, role, &DISTURBED);
        let taken = guest.counters().unwrap()["rcvd_pkts"] - before;
        assert_eq!(taken, guest.packet_counts().unwrap()[&Direction::Incoming].seen);
    }
}

#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_and_we_recover_from_dropped_packets() {
    let guest = boot();
    // 17 and 23 have no common rhythm with messages of four packets and an acknowledgement.
    let rules = [every(Direction::Incoming, Harm::Drop, 17), every(Direction::Outgoing, Harm::Drop, 23)];
    for role in [Role::Client, Role::Server] {
        guest.disturb(&rules).unwrap();
        assert_played(&guest, role, &DISTURBED);
        let counts = guest.packet_counts().unwrap();
        assert!(counts.values().all(|count| count.hurt > 5), "{counts:?}");
    }
}

/// What we send is damaged on its way: soft-RoCE must drop it, and we must send it again.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_drops_what_was_damaged_and_gets_it_again() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.disturb(&[every(Direction::Incoming, Harm::FlipBit, 17)]).unwrap();
        let before = guest.counters().unwrap()["rcvd_pkts"];
        assert_played(&guest, role, &DISTURBED);
        let taken = guest.counters().unwrap()["rcvd_pkts"] - before;
        let count = guest.packet_counts().unwrap()[&Direction::Incoming];
        assert!(count.hurt > 5, "{count:?}");
        assert_eq!(taken, count.seen - count.hurt, "{count:?}");
    }
}

/// What the guest sends is damaged on its way: our ICRC must find it, or our check of the bytes fails.
#[test]
#[ignore = "boots a virtual machine"]
fn soft_roce_sends_again_what_we_found_damaged() {
    let guest = boot();
    for role in [Role::Client, Role::Server] {
        guest.disturb(&[every(Direction::Outgoing, Harm::FlipBit, 17)]).unwrap();
        assert_played(&guest, role, &DISTURBED);
        let count = guest.packet_counts().unwrap()[&Direction::Outgoing];
        assert!(count.hurt > 5, "{count:?}");
    }
}
