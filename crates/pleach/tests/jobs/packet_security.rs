//! Jobs under each setting of `PLEACH_SECURITY`.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use namespaces::NamespaceNetwork;
use pleach::tagged_endpoint::{MessageSelector, Rank};
use pleach::{Communicator, Operator, SecurityMode, Settings};
use socket2::{Domain, Protocol, Socket, Type};
use transport::udp::FaultInjector;

use super::local_services::LocalServices;
use super::rank_processes::{RankProcesses, is_rank, wait_with_stderr};
use super::{TREE, run_digest, world};

const MODES: [&str; 3] = ["off", "authenticate", "encrypt"];

/// The digest of a job that goes through the nodes, by connections and by multicast, with and without faults.
fn digest_of(test: &str, mode: &str, results: &str, faults: &FaultInjector) -> String {
    let services = LocalServices::new(&TREE, faults);
    let job = RankProcesses::new(test, 6)
        .with("PLEACH_SHARED_MEMORY", "off")
        .with("PLEACH_RESULTS", results)
        .with("PLEACH_MANAGER", services.manager())
        .with("PLEACH_ALGORITHM", "aggregation")
        .with("PLEACH_SECURITY", mode);
    let mut digests: Vec<String> = job
        .start()
        .into_iter()
        .map(|child| {
            let (status, stderr) = wait_with_stderr(child);
            assert_eq!(status, Some(0), "{stderr}");
            stderr.lines().find(|line| line.starts_with("digest ")).expect("a digest").to_owned()
        })
        .collect();
    digests.dedup();
    assert_eq!(digests.len(), 1, "all ranks have the same bits");
    digests.remove(0)
}

#[test]
fn encrypted_operations_have_the_same_bits_through_the_nodes() {
    let test = "packet_security::encrypted_operations_have_the_same_bits_through_the_nodes";
    if is_rank() {
        return run_digest();
    }
    let plain = digest_of(test, "off", "connections", &FaultInjector::default());
    for (results, one_in) in [("connections", 0), ("multicast", 0), ("connections", 50)] {
        let encrypted = digest_of(test, "encrypt", results, &FaultInjector::new(one_in, one_in));
        assert_eq!(encrypted, plain, "{results}, one packet in {one_in} lost or damaged");
    }
}

fn exchange(world: &Communicator) {
    let (me, size) = (world.rank(), world.size());
    let mut sums = vec![u64::from(me); 100_000];
    world.all_reduce(&mut sums, Operator::Sum).expect("every rank takes part");
    assert!(sums.iter().all(|sum| *sum == u64::from(size * (size - 1) / 2)));
    let mut endpoint = world.open_tagged_endpoint().expect("every rank takes part");
    let (to, from) = ((me + 1) % size, (me + size - 1) % size);
    for (tag, length) in [(1, 0), (2, 50), (3, 9_000), (4, 500_000)] {
        let receive = endpoint.receive(MessageSelector::exact(Rank(from), tag), vec![0; length]).expect("posted");
        endpoint.send(to, tag, vec![me as u8 + 1; length]).expect("sent");
        let (received, ..) = endpoint.wait_receive(receive).expect("it arrives");
        assert!(received == vec![from as u8 + 1; length], "{length} bytes from {from}");
    }
    assert!(endpoint.drain(Duration::from_secs(30)).expect("progress"));
    world.barrier().expect("every rank enters");
}

#[test]
fn operations_and_messages_arrive_under_every_setting() {
    let test = "packet_security::operations_and_messages_arrive_under_every_setting";
    if is_rank() {
        return exchange(&world());
    }
    for mode in MODES {
        let job = RankProcesses::new(test, 3).with("PLEACH_SHARED_MEMORY", "off").with("PLEACH_SECURITY", mode);
        job.run(|| exchange(&world()));
    }
}

#[test]
fn ranks_with_different_settings_name_both() {
    let test = "packet_security::ranks_with_different_settings_name_both";
    if is_rank() {
        let is_last = std::env::var("PLEACH_RANK").is_ok_and(|rank| rank == "2");
        let mode = if is_last { SecurityMode::Encrypt } else { SecurityMode::Authenticate };
        let settings = Settings { security: Some(mode), ..Settings::from_environment().expect("settings") };
        return eprintln!("error {}", pleach::join_with(settings).err().expect("they differ"));
    }
    for child in RankProcesses::new(test, 3).start() {
        let (_, stderr) = wait_with_stderr(child);
        let expected = "error PLEACH_SECURITY differs: rank 0 has authenticate, rank 2 has encrypt; set it to the same for all ranks";
        assert!(stderr.lines().any(|line| line == expected), "{stderr}");
    }
}

/// What ranks compute with, and what they send to each other: the sniffer looks for both.
const OF_OPERATIONS: u64 = 0x5ec7_e75e_c7e7_5ec7;
const OF_MESSAGES: [u8; 16] = *b"a secret message";

fn say_secrets(world: &Communicator) {
    for length in [1, 100, 50_000] {
        let mut words = vec![OF_OPERATIONS; length];
        world.all_reduce(&mut words, Operator::Max).expect("every rank takes part");
        assert!(words.iter().all(|word| *word == OF_OPERATIONS));
        world.broadcast(&mut words, 0).expect("every rank takes part");
    }
    let (peer, mut endpoint) = (1 - world.rank(), world.open_tagged_endpoint().expect("every rank takes part"));
    for (tag, count) in [(1, 1), (2, 100), (3, 20_000)] {
        let secret = OF_MESSAGES.repeat(count);
        let receive =
            endpoint.receive(MessageSelector::exact(Rank(peer), tag), vec![0; secret.len()]).expect("posted");
        endpoint.send(peer, tag, secret.clone()).expect("sent");
        assert!(endpoint.wait_receive(receive).expect("it arrives").0 == secret);
    }
    assert!(endpoint.drain(Duration::from_secs(30)).expect("progress"));
    world.barrier().expect("every rank enters");
}

/// How many packets a sniffer on a host saw, and how often the secrets of operations and messages were in them.
fn sniff(is_over: &AtomicBool) -> (usize, [usize; 2]) {
    const ALL_PROTOCOLS: u16 = 3;
    let protocol = Protocol::from(i32::from(ALL_PROTOCOLS.to_be()));
    let mut socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).expect("this host is ours");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket");
    let _ = socket.set_recv_buffer_size(64 << 20);
    let (mut packets, mut found, mut space) = (0, [0; 2], vec![0; 1 << 17]);
    let secrets = [&OF_OPERATIONS.to_le_bytes()[..], &OF_MESSAGES];
    while !is_over.load(Ordering::Relaxed) {
        let Ok(length) = socket.read(&mut space) else { continue };
        packets += 1;
        for (count, secret) in found.iter_mut().zip(secrets) {
            *count += usize::from(space[..length].windows(secret.len()).any(|window| window == secret));
        }
    }
    (packets, found)
}

/// Runs two ranks on two hosts in this mode; what a sniffer on the first host saw.
fn sniffed(network: &NamespaceNetwork, test: &str, mode: &str) -> (usize, [usize; 2]) {
    let is_over = AtomicBool::new(false);
    let start = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", test, "--nocapture"]).stdout(Stdio::null()).stderr(Stdio::piped());
        command.envs([
            ("PLEACH_TEST_ROLE", "rank".to_owned()),
            ("PLEACH_RANK", rank.to_string()),
            ("PLEACH_SIZE", "2".to_owned()),
            ("PLEACH_RENDEZVOUS", format!("{}:4000", network.host(0).address())),
            ("PLEACH_ADDRESSES", network.host(rank).address().to_string()),
            ("PLEACH_TOKEN", format!("{test}-{}", std::process::id())),
            ("PLEACH_SHARED_MEMORY", "off".to_owned()),
            ("PLEACH_SECURITY", mode.to_owned()),
        ]);
        network.host(rank).start(&mut command).expect("a process")
    };
    std::thread::scope(|scope| {
        let sniffer = scope.spawn(|| network.host(0).inside(|| sniff(&is_over)).expect("the namespace exists"));
        let ends = [start(0), start(1)].map(wait_with_stderr);
        std::thread::sleep(Duration::from_millis(100));
        is_over.store(true, Ordering::Relaxed);
        for (status, stderr) in ends {
            assert_eq!(status, Some(0), "{mode}: {stderr}");
        }
        sniffer.join().expect("no panic")
    })
}

#[test]
fn a_sniffer_reads_payloads_unless_they_are_encrypted() {
    let test = "packet_security::a_sniffer_reads_payloads_unless_they_are_encrypted";
    if is_rank() {
        return say_secrets(&world());
    }
    let network = match NamespaceNetwork::new(2) {
        Ok(network) => network,
        Err(error) => return namespaces::skip_test(error),
    };
    let (_, plain) = sniffed(&network, test, "authenticate");
    assert!(plain.iter().all(|count| *count > 3), "the sniffer finds what is readable: {plain:?}");
    let (packets, encrypted) = sniffed(&network, test, "encrypt");
    assert!(packets > 100, "{packets} packets");
    assert_eq!(encrypted, [0; 2], "of {packets} packets");
}
