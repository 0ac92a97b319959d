//! Peers who mean no good, or are broken, or slow, or too many.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use control::{AccessPolicy, ClientError, ClusterSecret, ManagerClient, ManagerDaemon};
use manager::ManagerSettings;

use crate::town::*;

#[test]
fn without_the_secret_nobody_is_heard() {
    let town = town(Some(secret()));
    let short = Duration::from_secs(2);
    let wrong = ClusterSecret::new("incorrect horse").expect("long enough");
    let error = ManagerClient::connect(town.doors.control, None, short).map(drop).expect_err("no secret");
    assert!(error.to_string().contains("PLEACH_SECRET"), "{error}");
    let error =
        ManagerClient::connect(town.doors.control, Some(wrong.clone()), short).map(drop).expect_err("a wrong one");
    assert!(matches!(error, ClientError::WrongSecret { .. }), "{error}");
    let seats = Remembered::default();
    let _stranger = node(town.doors.control, Some(wrong.clone()), "stranger", &[], &seats);
    let mut client = town.client;
    // All three: the caller without one, the caller with a wrong one, and the node.
    until("they are counted", || counted(&mut client, "connections dropped: wrong secret") >= 3);
    assert_eq!(client.status().expect("answered").nodes.len(), 3);
}

/// It proved the secret to whoever said hello: enough to guess at the secret for as long as one likes.
#[test]
fn a_stranger_gets_no_proof_to_guess_from() {
    let town = town(Some(secret()));
    for door in [town.doors.control, town.node_doors[0].control] {
        let mut stream = TcpStream::connect(door).expect("it listens");
        stream.write_all(&frame(&HELLO.replace("false", "true"))).expect("it is written");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let (mut heard, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            heard.extend_from_slice(&buffer[..count]);
        }
        let heard = String::from_utf8_lossy(&heard);
        assert!(heard.contains("hello") && !heard.contains("proof"), "{heard}");
    }
}

fn counted(client: &mut ManagerClient, what: &str) -> u64 {
    client.status().expect("answered").counters.get(what).copied().unwrap_or(0)
}

#[test]
fn without_a_secret_only_this_machine_is_heard_unless_one_says_so() {
    let anywhere: SocketAddr = "0.0.0.0:0".parse().expect("an address");
    let bind = |secret, openness| ManagerDaemon::bind(anywhere, ManagerSettings::default(), secret, openness);
    let error = bind(None, AccessPolicy::Guarded).map(drop).expect_err("it would obey strangers");
    assert!(error.to_string().contains("--open"), "{error}");
    assert!(bind(None, AccessPolicy::Open).is_ok());
    assert!(bind(Some(secret()), AccessPolicy::Guarded).is_ok());
}

fn frame(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes()].concat()
}

const HELLO: &str = r#"{"hello":{"pleach":1,"nonce":"00112233445566778899aabbccddeeff","secret":false}}"#;

/// True if the other end closes within the time.
fn is_closed(stream: &mut TcpStream, within: Duration) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let began = Instant::now();
    let mut buffer = [0; 4096];
    while began.elapsed() < within {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return true,
        }
    }
    false
}

const STRANGER: &str = "connections dropped: no greeting of ours";
const MALFORMED: &str = "connections dropped: malformed message";
const TOO_LONG: &str = "connections dropped: message too long";

/// What peers who mean no good say, and how it is counted.
fn nonsense() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), STRANGER),
        (u32::MAX.to_le_bytes().to_vec(), STRANGER),
        (frame("not json"), STRANGER),
        (frame(r#"{"open_job":{"request":1,"name":"early","quota":null}}"#), STRANGER),
        (frame(&HELLO.replace("\"pleach\":1", "\"pleach\":2")), STRANGER),
        (frame(&HELLO.replace("00112233", "0011223x")), STRANGER),
        (frame(&"x".repeat(2_000)), STRANGER),
        ([frame(HELLO), frame(HELLO)].concat(), MALFORMED),
        ([frame(HELLO), frame(r#"{"open_the_door":{}}"#)].concat(), MALFORMED),
        ([frame(HELLO), frame(&"[".repeat(100_000))].concat(), MALFORMED),
        ([frame(HELLO), (1u32 << 21).to_le_bytes().to_vec()].concat(), TOO_LONG),
        (frame(&HELLO.replace("false", "true")), "connections dropped: wrong secret"),
    ]
}

#[test]
fn peers_who_talk_nonsense_are_closed_and_counted_by_cause_and_nobody_else_notices() {
    let mut town = town(None);
    let soon = Duration::from_secs(2);
    for (bytes, cause) in nonsense() {
        let before = counted(&mut town.client, cause);
        let mut stream = TcpStream::connect(town.doors.control).expect("it listens");
        stream.write_all(&bytes).expect("it is written");
        assert!(is_closed(&mut stream, soon), "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        until(cause, || counted(&mut town.client, cause) == before + 1);
    }
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn a_node_bears_nonsense_as_well_as_the_manager_does() {
    let mut town = town(None);
    for (bytes, _) in nonsense() {
        let mut stream = TcpStream::connect(town.node_doors[0].control).expect("it listens");
        stream.write_all(&bytes).expect("it is written");
        assert!(is_closed(&mut stream, Duration::from_secs(2)));
    }
    town.client.open_job("test", None).expect("admitted");
    town.client.open_group(request(8)).expect("opened");
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn a_crowd_that_never_greets_keeps_nobody_out_and_takes_little_room() {
    let mut town = town(Some(secret()));
    let crowd: Vec<TcpStream> =
        (0..700).map(|_| TcpStream::connect(town.doors.control).expect("it listens")).collect();
    let began = Instant::now();
    let mut other = ManagerClient::connect(town.doors.control, Some(secret()), PATIENCE).expect("it gets in");
    assert_eq!(other.status().expect("answered").nodes.len(), 3);
    assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    // At most 256 are kept; the others were hung up on.
    until("the oldest are gone", || counted(&mut town.client, "connections dropped: too many") >= 700 - 256);
    drop(crowd);
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn slow_peers_are_closed_in_time_and_keep_nobody_waiting() {
    let mut town = town(None);
    // Half a greeting, half a message, a drop now and then, nothing at all.
    let half = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(town.doors.control).expect("it listens");
        stream.write_all(bytes).expect("it is written");
        stream
    };
    let whole = [frame(HELLO), 1_000u32.to_le_bytes().to_vec(), b"{".to_vec()].concat();
    let mut slow = vec![half(&frame(HELLO)[..20]), half(&whole), half(&[])];
    let mut dripping = half(&whole);
    let crowd: Vec<TcpStream> = (0..200).map(|_| half(&[])).collect();
    let began = Instant::now();
    town.client.open_job("test", None).expect("admitted");
    let group = town.client.open_group(request(8)).expect("opened").key_of_group();
    town.client.close_group(group).expect("closed");
    assert!(began.elapsed() < Duration::from_secs(1), "others waited for {:?}", began.elapsed());
    let mut closed = false;
    while began.elapsed() < Duration::from_secs(8) && !closed {
        std::thread::sleep(Duration::from_millis(100));
        closed = dripping.write_all(b" ").is_err();
    }
    assert!(closed, "a drop now and then does not keep a connection");
    for stream in &mut slow {
        assert!(is_closed(stream, Duration::from_secs(2)));
    }
    drop(crowd);
    assert!(counted(&mut town.client, "connections dropped: slow") >= 4);
    assert_eq!(alive(&mut town.client), 3);
}

#[test]
fn a_peer_that_never_reads_is_dropped() {
    let mut town = town(None);
    let mut stream = TcpStream::connect(town.doors.control).expect("it listens");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.write_all(&frame(HELLO)).expect("it is written");
    let question = frame(r#"{"status":{"request":1}}"#).repeat(1_000);
    let closed = (0..1_000).any(|_| stream.write_all(&question).is_err());
    assert!(closed, "a million questions were put and no answer read");
    until("it is counted", || counted(&mut town.client, "connections dropped: nothing read") == 1);
    assert_eq!(alive(&mut town.client), 3);
}
