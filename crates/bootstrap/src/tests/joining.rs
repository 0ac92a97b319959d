//! Which processes may join, and what happens if some do not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use super::super::endpoint_record::EndpointRecord;
use super::super::framing::{FramedStream, ReadOutcome, read_frame};
use super::super::join::join_reporting;
use super::super::join_request::{JoinRejection, JoinRequest, RENDEZVOUS_VERSION};
use super::super::rank_event::OobTarget;
use super::super::rejected_process::{JoinMismatch, RejectedConnections, RejectedProcess};
use super::super::rendezvous_file;
use super::super::rendezvous_message::{RendezvousMessageKind, encode_message, next_message};
use super::super::stream_security::{accept_answer, offer};
use super::super::token_key::TokenKey;
use super::super::withdrawal::withdraw;
use super::*;

#[test]
fn two_hundred_ranks_join_and_all_have_the_same_table() {
    let began = Instant::now();
    let joined = join_all(200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let table = &joined[0].table;
    assert_eq!(table.size(), 200);
    assert!(joined.iter().all(|joined| joined.table == *table));
    for (rank, record) in (0u32..).zip(table.records()) {
        assert_eq!(
            (record.rank, &record.extra[..], record.process),
            (rank, &rank.to_be_bytes()[..], std::process::id())
        );
    }
    assert_eq!(table.hosts(), [(0..200).collect::<Vec<_>>()]);
}

#[test]
fn a_job_of_one_rank_joins_alone() {
    let alone = JobEnvironment { rendezvous: RendezvousPoint::Singleton, ..environment("alone", 0, 1) };
    let mut joined = join(&alone, LocalEndpoint::default(), &TIMEOUTS).expect("no rank is missing");
    assert_eq!((joined.table.size(), joined.failure_detector.turn()), (1, None));
    joined.failure_detector.leave(SOON);
}

#[test]
fn a_rendezvous_at_an_address_waits_for_a_late_rank_zero() {
    // The port was free a moment ago, and another program is unlikely to take it.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback").port();
    let job = new_job();
    let at = move |rank| {
        let rendezvous = RendezvousPoint::Address { host: "localhost".to_owned(), port };
        JobEnvironment { rendezvous, ..environment(&job, rank, 2) }
    };
    let early = at(1);
    let waiting = spawn(move || join(&early, LocalEndpoint::default(), &TIMEOUTS));
    std::thread::sleep(Duration::from_millis(100));
    let zero = join(&at(0), LocalEndpoint::default(), &TIMEOUTS).expect("both ranks join");
    assert_eq!(zero.table, waiting.join().expect("no panic").expect("both ranks join").table);
}

#[test]
fn missing_ranks_are_named_to_all_ranks_that_joined() {
    let job = new_job();
    let timeouts = RendezvousTimeouts { join: Duration::from_secs(3), ..TIMEOUTS };
    let (first, second) = (job.clone(), job.clone());
    let others = [spawn(move || join_as(&first, 0, 5, &timeouts)), spawn(move || join_as(&second, 2, 5, &TIMEOUTS))];
    for thread in others {
        let error = thread.join().expect("no panic").expect_err("three are missing");
        assert!(
            matches!(&error, RendezvousError::Missing { ranks, count: 3, .. } if ranks[..] == [1, 3, 4]),
            "{error}"
        );
        assert!(error.to_string().starts_with("ranks 1, 3, 4 did not join within "), "{error}");
    }
    assert!(rendezvous_file::read(&job).expect("readable").is_none(), "nothing is left behind");
}

#[test]
fn without_rank_zero_the_error_says_what_to_set() {
    let timeouts = RendezvousTimeouts { join: Duration::from_millis(100), ..TIMEOUTS };
    let error = join_as(&new_job(), 1, 2, &timeouts).expect_err("rank 0 does not run").to_string();
    assert!(error.contains("PLEACH_RENDEZVOUS=host:port"), "{error}");
}

#[test]
fn a_rank_with_another_size_is_rejected_at_once() {
    let job = new_job();
    let timeouts = RendezvousTimeouts { join: Duration::from_secs(3), ..TIMEOUTS };
    let host = job.clone();
    let zero = spawn(move || join_as(&host, 0, 2, &timeouts));
    let error = join_as(&job, 1, 3, &TIMEOUTS).expect_err("two, not three");
    assert!(matches!(&error, RendezvousError::Rejected(why) if why.contains("expects 2 ranks")), "{error}");
    let error = zero.join().expect("no panic").expect_err("rank 1 is missing").to_string();
    assert!(
        error.starts_with("rank 1 did not join")
            && error.contains("1 connection was rejected because of another PLEACH_SIZE"),
        "{error}"
    );
}

/// A rank cannot open its sockets: all others learn that and why long before their join timeout, also one that comes later.
#[test]
fn all_ranks_are_told_at_once_that_one_cannot_join() {
    for absent in [0, 2] {
        let job = new_job();
        let own = job.clone();
        let withdrawing = spawn(move || withdraw(&environment(&own, absent, 4), "too many open files", &TIMEOUTS));
        let others: Vec<_> = (0..4)
            .filter(|rank| *rank != absent)
            .map(|rank| {
                let job = job.clone();
                spawn(move || {
                    if rank == 3 {
                        std::thread::sleep(Duration::from_millis(700));
                    }
                    let began = Instant::now();
                    let error = join_as(&job, rank, 4, &TIMEOUTS).expect_err("one rank is missing");
                    (error, began.elapsed())
                })
            })
            .collect();
        for other in others {
            let (error, waited) = other.join().expect("no panic");
            assert!(
                matches!(&error, RendezvousError::Withdrawn { rank, why } if *rank == absent && why == "too many open files"),
                "{error}"
            );
            assert!(waited < TIMEOUTS.join / 2, "{waited:?}");
        }
        withdrawing.join().expect("no panic");
    }
}

#[test]
fn an_endpoint_that_is_too_large_is_a_local_error() {
    let large = LocalEndpoint { extra: vec![0; 4097], ..LocalEndpoint::default() };
    assert!(matches!(join(&environment("large", 0, 2), large, &TIMEOUTS), Err(RendezvousError::EndpointTooLarge(_))));
}

/// A client that violates the protocol.
struct TestClient {
    tcp: TcpStream,
}

impl TestClient {
    fn at(port: u16) -> Self {
        let tcp = TcpStream::connect(("127.0.0.1", port)).expect("rank 0 listens");
        tcp.set_read_timeout(Some(SOON)).expect("not zero");
        Self { tcp }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).expect("it is open");
    }

    /// Encrypts the connection with this key, then sends a message; the kind of the reply to it.
    fn ask(self, key: &TokenKey, message: Arc<[u8]>) -> Option<RendezvousMessageKind> {
        let mut stream = FramedStream::new(self.tcp).expect("options that Linux has");
        let receive = |stream: &mut FramedStream| {
            let began = Instant::now();
            loop {
                assert!(began.elapsed() < SOON);
                stream.flush().ok()?;
                stream.wait(began + SOON).expect("poll");
                let outcome = stream.fill(1 << 16).ok()?;
                match next_message(stream, 1 << 16).ok()? {
                    None if outcome == ReadOutcome::Closed => return None,
                    None => {}
                    message => return message,
                }
            }
        };
        let (channel, offered) = offer(key, 0).expect("random numbers");
        stream.queue(offered);
        match receive(&mut stream)? {
            (RendezvousMessageKind::Secure, body) => accept_answer(&mut stream, channel, &body).ok()?,
            (kind, _) => return Some(kind),
        }
        stream.queue(message);
        receive(&mut stream).map(|(kind, _)| kind)
    }

    /// The next message, in clear; `None` if the connection is closed without one.
    fn reply(&mut self) -> Option<Vec<u8>> {
        read_frame(&mut self.tcp, 1 << 16).ok()
    }
}

/// What rank 0 publishes, as soon as it does.
fn published(job: &str) -> rendezvous_file::RendezvousRecord {
    loop {
        match rendezvous_file::read(job).expect("readable") {
            Some(record) => return record,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// The request of a rank to join a job of this size.
fn hello(rank: u32, size: u32) -> Arc<[u8]> {
    let request = JoinRequest { size, record: EndpointRecord::own(rank, vec![], vec![], vec![]) };
    encode_message(RendezvousMessageKind::Hello, &[&request.to_bytes()])
}

/// What a rank reports whose rank 0 is a program that answers every connection with this message.
fn error_at_stranger(answer: Arc<[u8]>) -> RendezvousError {
    let stranger = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = stranger.local_addr().expect("bound").port();
    spawn(move || {
        for mut tcp in stranger.incoming().flatten() {
            let _ = tcp.write_all(&answer).and_then(|()| tcp.read(&mut [0; 4096]));
        }
    });
    let rendezvous = RendezvousPoint::Address { host: "127.0.0.1".to_owned(), port };
    let environment = JobEnvironment { rendezvous, ..environment("stranger", 1, 2) };
    let timeouts = RendezvousTimeouts { join: Duration::from_millis(300), ..TIMEOUTS };
    join(&environment, LocalEndpoint::default(), &timeouts).expect_err("it is not rank 0")
}

#[test]
fn a_rank_believes_only_reasons_that_rank_zero_cannot_encrypt() {
    let rejected = |rejection: JoinRejection| {
        error_at_stranger(encode_message(RendezvousMessageKind::Rejected, &[&rejection.to_bytes()]))
    };
    let error = rejected(JoinRejection::Version(9));
    assert!(matches!(&error, RendezvousError::Rejected(why) if why.contains("rendezvous version 9")), "{error}");
    let error = rejected(JoinRejection::Token);
    assert!(matches!(&error, RendezvousError::Rejected(why) if why.contains("PLEACH_TOKEN")), "{error}");
    let error = error_at_stranger(encode_message(RendezvousMessageKind::Challenge, &[&[1; 16]]));
    assert!(matches!(&error, RendezvousError::Rejected(why) if why.contains("older version")), "{error}");
    let missing = JoinRejection::Missing { count: 1, some: vec![0], rejected: RejectedConnections::default() };
    for forged in [JoinRejection::Rank, JoinRejection::Size(3), missing] {
        let error = rejected(forged);
        assert!(matches!(&error, RendezvousError::Unreachable { .. }), "{error}");
    }
    let error = error_at_stranger(encode_message(RendezvousMessageKind::Secure, &[&[7; 48]]));
    assert!(matches!(&error, RendezvousError::Unreachable { .. }), "{error}");
}

#[test]
fn unauthenticated_connections_do_not_disturb_a_job() {
    let job = new_job();
    let zero = {
        let job = job.clone();
        spawn(move || join_as(&job, 0, 3, &TIMEOUTS))
    };
    let record = published(&job);
    let key = TokenKey::new(&environment(&job, 0, 3).token, &record.secret);
    let hello = |rank| hello(rank, 3);

    let mut garbage = TestClient::at(record.port);
    garbage.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(garbage.reply(), None);

    let mut large = TestClient::at(record.port);
    large.send(&[0xff, 0xff, 0xff, 0x7f, RendezvousMessageKind::Secure as u8]);
    assert_eq!(large.reply(), None);

    let mut clear = TestClient::at(record.port);
    clear.send(&hello(1));
    assert_eq!(clear.reply(), None, "a request that is not encrypted");

    let wrong = TokenKey::new(&JobToken(b"guessed".to_vec()), &record.secret);
    assert_eq!(TestClient::at(record.port).ask(&wrong, hello(1)), Some(RendezvousMessageKind::Rejected));

    let (_, recorded) = offer(&key, 0).expect("random numbers");
    for _ in 0..2 {
        let mut replayed = TestClient::at(record.port);
        replayed.send(&recorded);
        assert_eq!(replayed.reply().map(|answer| answer[0]), Some(RendezvousMessageKind::Secure as u8));
        replayed.send(&hello(1));
        assert_eq!(replayed.reply(), None, "it does not know the keys of the channel");
    }

    let mut newer = TestClient::at(record.port);
    let mut other_version = recorded.to_vec();
    other_version[5..9].copy_from_slice(&(RENDEZVOUS_VERSION + 1).to_le_bytes());
    newer.send(&other_version);
    let reply = newer.reply().expect("a reason");
    assert_eq!(JoinRejection::read(&reply[1..]), Some(JoinRejection::Version(RENDEZVOUS_VERSION)));

    // One that closes in the middle of its offer, one that stalls there, and many that send nothing.
    let mut half = TestClient::at(record.port);
    half.send(&recorded[..40]);
    drop(half);
    let mut stuck = TestClient::at(record.port);
    stuck.send(&recorded[..40]);
    let _silent: Vec<_> =
        (0..50).map(|_| TcpStream::connect(("127.0.0.1", record.port)).expect("it listens")).collect();

    // A rank outside the job, and a duplicate rank.
    assert_eq!(TestClient::at(record.port).ask(&key, hello(3)), Some(RendezvousMessageKind::Rejected));
    let one = {
        let job = job.clone();
        spawn(move || join_as(&job, 1, 3, &TIMEOUTS))
    };
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(TestClient::at(record.port).ask(&key, hello(1)), Some(RendezvousMessageKind::Rejected));

    let began = Instant::now();
    let two = join_as(&job, 2, 3, &TIMEOUTS).expect("it joins");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let (zero, one) = (zero.join().expect("no panic"), one.join().expect("no panic"));
    let (mut zero, one) = (zero.expect("all ranks joined"), one.expect("all ranks joined"));
    assert_eq!((&zero.table, &one.table), (&two.table, &two.table));
    assert_eq!(zero.failure_detector.turn(), None, "no rank is lost");
}

/// Whoever they are, and however many: one report for each kind.
#[test]
fn rank_zero_reports_at_once_what_of_others_does_not_fit() {
    let job = new_job();
    let timeouts = RendezvousTimeouts { join: Duration::from_secs(4), ..TIMEOUTS };
    let (sender, reports) = std::sync::mpsc::channel();
    let zero = {
        let environment = environment(&job, 0, 4);
        spawn(move || {
            let mut report = |rejected: &_| sender.send(RejectedProcess::clone(rejected)).expect("the test waits");
            join_reporting(&environment, LocalEndpoint::default(), &timeouts, &mut report)
        })
    };
    let record = published(&job);
    let key = TokenKey::new(&environment(&job, 0, 4).token, &record.secret);
    let wrong = TokenKey::new(&JobToken(b"guessed".to_vec()), &record.secret);
    for (key, message) in [(&wrong, hello(1, 4)), (&key, hello(1, 9)), (&wrong, hello(2, 4)), (&key, hello(2, 8))] {
        assert_eq!(TestClient::at(record.port).ask(key, message), Some(RendezvousMessageKind::Rejected));
    }
    let got: Vec<_> = reports.try_iter().map(|report| (report.mismatch, report.claim)).collect();
    assert_eq!(got, [(JoinMismatch::Token, None), (JoinMismatch::Size, Some((1, 9)))], "before any rank gives up");
    // A rank that joined learns the cause as well.
    for error in [join_as(&job, 3, 4, &TIMEOUTS).map(drop), zero.join().expect("no panic").map(drop)] {
        let error = error.expect_err("two are missing").to_string();
        assert!(error.starts_with("ranks 1, 2 did not join"), "{error}");
        assert!(error.contains("2 connections were rejected because of another PLEACH_TOKEN"), "{error}");
        assert!(error.contains("2 connections were rejected because of another PLEACH_SIZE"), "{error}");
    }
}

#[test]
fn a_second_process_with_the_same_rank_fails_with_the_reason() {
    let job = new_job();
    let timeouts = RendezvousTimeouts { join: Duration::from_secs(3), ..TIMEOUTS };
    let began = Instant::now();
    let threads = [0, 1, 1].map(|rank| {
        let job = job.clone();
        spawn(move || join_as(&job, rank, 3, &timeouts))
    });
    let results = threads.map(|thread| thread.join().expect("no panic"));
    let twice = results
        .iter()
        .filter(|result| matches!(result, Err(RendezvousError::Rejected(why)) if why.contains("this rank")))
        .count();
    let missing = results
        .iter()
        .filter(|result| matches!(result, Err(RendezvousError::Missing { ranks, .. }) if ranks[..] == [2]));
    assert_eq!((twice, missing.count()), (1, 2), "{results:?}");
    assert!(began.elapsed() < SOON);
}

#[test]
fn a_rank_that_dies_before_all_have_joined_may_join_again() {
    let job = new_job();
    let zero = {
        let job = job.clone();
        spawn(move || join_as(&job, 0, 3, &TIMEOUTS))
    };
    let record = published(&job);
    let key = TokenKey::new(&environment(&job, 0, 3).token, &record.secret);
    assert_eq!(TestClient::at(record.port).ask(&key, hello(1, 3)), Some(RendezvousMessageKind::Welcome));
    let others = [1, 2].map(|rank| {
        let job = job.clone();
        spawn(move || join_as(&job, rank, 3, &TIMEOUTS))
    });
    assert!(zero.join().expect("no panic").is_ok());
    assert!(others.into_iter().all(|thread| thread.join().expect("no panic").is_ok()));
}

/// Copies one direction of a connection, and keeps what passes.
fn tap(mut from: TcpStream, mut to: TcpStream, seen: Arc<Mutex<Vec<u8>>>) {
    spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            seen.lock().expect("no panic").extend_from_slice(&bytes[..count]);
            if to.write_all(&bytes[..count]).is_err() {
                return;
            }
        }
    });
}

/// Ranks publish the job's key in their records: whoever listens on the network must not learn it.
#[test]
fn an_eavesdropper_sees_neither_records_nor_messages() {
    let (job, marker) = (new_job(), b"the key of the job, in 32 bytes.");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("loopback").port();
    let tap_listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let tap_port = tap_listener.local_addr().expect("bound").port();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tapped = Arc::clone(&seen);
    spawn(move || {
        for near in tap_listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            tap(copy(&near), copy(&far), Arc::clone(&tapped));
            tap(far, near, Arc::clone(&tapped));
        }
    });
    let join = |rank: u32, port: u16| {
        let rendezvous = RendezvousPoint::Address { host: "127.0.0.1".to_owned(), port };
        let environment = JobEnvironment { rendezvous, ..environment(&job, rank, 2) };
        spawn(move || {
            let endpoint = LocalEndpoint { addresses: Vec::new(), extra: marker.to_vec() };
            join(&environment, endpoint, &TIMEOUTS).expect("both ranks join")
        })
    };
    let ranks = [join(0, port), join(1, tap_port)].map(|thread| thread.join().expect("no panic"));
    let [mut zero, mut one] = ranks.map(|joined| joined.failure_detector);
    zero.send(OobTarget::Rank(1), marker).expect("room");
    one.send(OobTarget::Rank(0), marker).expect("room");
    let received = events_of(&mut [&mut zero, &mut one], 1);
    assert_eq!(received[1], [RankEvent::Message { from: 0, bytes: marker.to_vec() }]);
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() > 4 * marker.len(), "the tap sees both directions");
    assert!(!seen.windows(8).any(|window| marker.windows(8).any(|part| part == window)));
}
