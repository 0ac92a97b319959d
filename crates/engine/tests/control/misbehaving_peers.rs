//! Peers that are malicious, broken, slow, or too many.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use control::{
    AccessPolicy, ClientError, ClusterSecret, ControlCredential, JobCredential, ManagerClient, ManagerDaemon,
};
use manager::{ControlError, ManagerSettings};

use crate::cluster::*;

#[test]
fn peers_without_the_secret_are_rejected() {
    let cluster = start_cluster(Some(secret()));
    let short = Duration::from_secs(2);
    let wrong = ClusterSecret::new("incorrect horse").expect("long enough");
    let error = ManagerClient::connect(cluster.addresses.control, None::<ControlCredential>, short)
        .map(drop)
        .expect_err("no secret");
    assert!(error.to_string().contains("PLEACH_SECRET"), "{error}");
    let error = ManagerClient::connect(cluster.addresses.control, Some(wrong.clone()), short)
        .map(drop)
        .expect_err("a wrong one");
    assert!(matches!(error, ClientError::WrongSecret { .. }), "{error}");
    let seats = RecordingDataPlane::default();
    let _unauthenticated = node(cluster.addresses.control, Some(wrong.clone()), "unauthenticated", &[], &seats);
    let mut client = cluster.client;
    // All three: the client without a secret, the client with a wrong one, and the node.
    until("they are counted", || counted(&mut client, "connections dropped: wrong secret") >= 3);
    assert_eq!(client.status().expect("answered").nodes.len(), 3);
}

/// Rule: P-105.
#[test]
fn a_job_with_its_credential_reaches_the_manager_alone_and_for_its_own_purposes() {
    let cluster = start_cluster(Some(secret()));
    let short = Duration::from_secs(2);
    let lifetime = Duration::from_secs(3600);
    let connect = |to: SocketAddr, credential: &JobCredential| {
        ManagerClient::connect(to, Some(ControlCredential::Job(credential.clone())), short)
    };
    let credential = JobCredential::issue(&secret(), lifetime).expect("random numbers");
    let mut job = connect(cluster.addresses.control, &credential).expect("of this cluster");
    let (ticket, quota) = job.open_job("tenant", None).expect("admitted");
    let error = job.status().expect_err("an operator's right");
    assert!(matches!(error, ClientError::Rejected(ControlError::NotPermitted)), "{error}");
    // Another tenant, also with a ticket that it has got hold of.
    let other = JobCredential::issue(&secret(), lifetime).expect("random numbers");
    let mut thief = connect(cluster.addresses.control, &other).expect("of this cluster");
    assert!(matches!(
        thief.attach_job(ticket, "thief", quota),
        Err(ClientError::Rejected(ControlError::WrongTicket))
    ));
    // Another process of the same job.
    let mut second = connect(cluster.addresses.control, &credential).expect("of this cluster");
    second.attach_job(ticket, "tenant", quota).expect("the same job");
    // Nodes obey the manager and other nodes only.
    let error = connect(cluster.node_addresses[0].control, &credential).map(drop).expect_err("a node");
    assert!(matches!(error, ClientError::WrongSecret { .. } | ClientError::Lost { .. }), "{error}");
    let foreign = ClusterSecret::new("incorrect horse").expect("long enough");
    for useless in [JobCredential::issue(&foreign, lifetime), JobCredential::issue(&secret(), Duration::ZERO)] {
        let error = connect(cluster.addresses.control, &useless.expect("random numbers"));
        let error = error.map(drop).expect_err("foreign or expired");
        assert!(error.to_string().contains("credential"), "{error}");
    }
    // A credential whose end was moved.
    let text = credential.to_text();
    let mut words: Vec<&str> = text.split('-').collect();
    words[2] = "99999999999";
    let forged = JobCredential::parse(&words.join("-")).expect("well-formed");
    assert!(connect(cluster.addresses.control, &forged).is_err());
}

/// Regression: the responder sent its proof to every peer after the hello, which allowed offline guessing of the secret.
#[test]
fn an_unauthenticated_peer_gets_no_proof_for_offline_guessing() {
    let cluster = start_cluster(Some(secret()));
    for address in [cluster.addresses.control, cluster.node_addresses[0].control] {
        let mut stream = TcpStream::connect(address).expect("it accepts connections");
        stream.write_all(&frame(&HELLO.replace("false", "true"))).expect("written");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..count]);
        }
        let received = String::from_utf8_lossy(&received);
        assert!(received.contains("hello") && !received.contains("proof"), "{received}");
    }
}

fn counted(client: &mut ManagerClient, what: &str) -> u64 {
    client.status().expect("answered").counters.get(what).copied().unwrap_or(0)
}

#[test]
fn without_a_secret_only_loopback_is_allowed_unless_configured() {
    let anywhere: SocketAddr = "0.0.0.0:0".parse().expect("valid");
    let bind = |secret, access| ManagerDaemon::bind(anywhere, ManagerSettings::default(), secret, access);
    let error = bind(None, AccessPolicy::LoopbackOnly).map(drop).expect_err("it would obey unauthenticated");
    assert!(error.to_string().contains("--allow-unauthenticated"), "{error}");
    assert!(bind(None, AccessPolicy::AnyAddress).is_ok());
    assert!(bind(Some(secret()), AccessPolicy::LoopbackOnly).is_ok());
}

fn frame(json: &str) -> Vec<u8> {
    [&(json.len() as u32).to_le_bytes(), json.as_bytes()].concat()
}

const HELLO: &str = r#"{"hello":{"pleach":3,"secret":false}}"#;

/// True if the peer closes the connection within the time.
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

const NOT_PLEACH: &str = "connections dropped: not a Pleach peer";
const MALFORMED: &str = "connections dropped: malformed message";
const TOO_LONG: &str = "connections dropped: message too long";

/// Malformed input, and the counter for it.
fn malformed_input() -> Vec<(Vec<u8>, &'static str)> {
    vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), NOT_PLEACH),
        (u32::MAX.to_le_bytes().to_vec(), NOT_PLEACH),
        (frame("not json"), NOT_PLEACH),
        (frame(r#"{"open_job":{"request":1,"name":"early","quota":null}}"#), NOT_PLEACH),
        (frame(&HELLO.replace("\"pleach\":3", "\"pleach\":4")), NOT_PLEACH),
        (frame(r#"{"secure":{"noise":[1,2,3]}}"#), NOT_PLEACH),
        (frame(&"x".repeat(2_000)), NOT_PLEACH),
        ([frame(HELLO), frame(HELLO)].concat(), MALFORMED),
        ([frame(HELLO), frame(r#"{"open_the_door":{}}"#)].concat(), MALFORMED),
        ([frame(HELLO), frame(&"[".repeat(100_000))].concat(), MALFORMED),
        ([frame(HELLO), (1u32 << 21).to_le_bytes().to_vec()].concat(), TOO_LONG),
        (frame(&HELLO.replace("false", "true")), "connections dropped: wrong secret"),
    ]
}

#[test]
fn malformed_input_closes_only_its_connection_and_is_counted_by_cause() {
    let mut cluster = start_cluster(None);
    let soon = Duration::from_secs(2);
    for (bytes, cause) in malformed_input() {
        let before = counted(&mut cluster.client, cause);
        let mut stream = TcpStream::connect(cluster.addresses.control).expect("it accepts connections");
        stream.write_all(&bytes).expect("written");
        assert!(is_closed(&mut stream, soon), "{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(60)]));
        until(cause, || counted(&mut cluster.client, cause) == before + 1);
    }
    assert_eq!(alive(&mut cluster.client), 3);
}

#[test]
fn a_node_survives_malformed_input_as_the_manager_does() {
    let mut cluster = start_cluster(None);
    for (bytes, _) in malformed_input() {
        let mut stream = TcpStream::connect(cluster.node_addresses[0].control).expect("it accepts connections");
        stream.write_all(&bytes).expect("written");
        assert!(is_closed(&mut stream, Duration::from_secs(2)));
    }
    cluster.client.open_job("test", None).expect("admitted");
    cluster.client.open_group(request(8)).expect("opened");
    assert_eq!(alive(&mut cluster.client), 3);
}

#[test]
fn a_flood_of_unauthenticated_connections_keeps_no_peer_out() {
    let mut cluster = start_cluster(Some(secret()));
    let flood: Vec<TcpStream> =
        (0..700).map(|_| TcpStream::connect(cluster.addresses.control).expect("it accepts connections")).collect();
    let began = Instant::now();
    let mut other = ManagerClient::connect(cluster.addresses.control, Some(secret()), TIMEOUT).expect("it gets in");
    assert_eq!(other.status().expect("answered").nodes.len(), 3);
    assert!(began.elapsed() < Duration::from_secs(2), "took {:?}", began.elapsed());
    // At most 256 are kept; the others are closed.
    until("the oldest are gone", || counted(&mut cluster.client, "connections dropped: too many") >= 700 - 256);
    drop(flood);
    assert_eq!(alive(&mut cluster.client), 3);
}

#[test]
fn slow_peers_are_closed_in_time_and_delay_no_other() {
    let mut cluster = start_cluster(None);
    // Half a hello, half a message, one byte now and then, nothing at all.
    let half = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(cluster.addresses.control).expect("it accepts connections");
        stream.write_all(bytes).expect("written");
        stream
    };
    let whole = [frame(HELLO), 1_000u32.to_le_bytes().to_vec(), b"{".to_vec()].concat();
    let mut slow = vec![half(&frame(HELLO)[..20]), half(&whole), half(&[])];
    let mut dripping = half(&whole);
    let flood: Vec<TcpStream> = (0..200).map(|_| half(&[])).collect();
    let began = Instant::now();
    cluster.client.open_job("test", None).expect("admitted");
    let group = cluster.client.open_group(request(8)).expect("opened").group_key();
    cluster.client.close_group(group).expect("closed");
    assert!(began.elapsed() < Duration::from_secs(1), "others waited for {:?}", began.elapsed());
    let mut closed = false;
    while began.elapsed() < Duration::from_secs(8) && !closed {
        std::thread::sleep(Duration::from_millis(100));
        closed = dripping.write_all(b" ").is_err();
    }
    assert!(closed, "one byte now and then does not keep a connection open");
    for stream in &mut slow {
        assert!(is_closed(stream, Duration::from_secs(2)));
    }
    drop(flood);
    assert!(counted(&mut cluster.client, "connections dropped: slow") >= 4);
    assert_eq!(alive(&mut cluster.client), 3);
}

#[test]
fn a_peer_that_never_reads_is_dropped() {
    let mut cluster = start_cluster(None);
    let mut stream = TcpStream::connect(cluster.addresses.control).expect("it accepts connections");
    stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    stream.write_all(&frame(HELLO)).expect("written");
    let request = frame(r#"{"status":{"request":1}}"#).repeat(1_000);
    let closed = (0..1_000).any(|_| stream.write_all(&request).is_err());
    assert!(closed, "a million requests were sent and no reply read");
    until("it is counted", || counted(&mut cluster.client, "connections dropped: does not read") == 1);
    assert_eq!(alive(&mut cluster.client), 3);
}
