//! Who may come, and what happens if some do not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::spawn;

use super::super::endpoint_record::EndpointRecord;
use super::super::mac::{JoinNonce, TokenKey, random_nonce};
use super::super::message_stream::{RendezvousMessageKind, encode_message};
use super::super::rendezvous::{JoinRequest, RENDEZVOUS_VERSION};
use super::super::rendezvous_file;
use super::*;

#[test]
fn two_hundred_ranks_meet_and_all_have_the_same_table() {
    let began = Instant::now();
    let joined = meet(200);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let table = &joined[0].table;
    assert_eq!(table.size(), 200);
    assert!(joined.iter().all(|joined| joined.table == *table));
    for (rank, card) in (0u32..).zip(table.cards()) {
        assert_eq!((card.rank, &card.extra[..], card.process), (rank, &rank.to_be_bytes()[..], std::process::id()));
    }
    assert_eq!(table.hosts(), [(0..200).collect::<Vec<_>>()]);
}

#[test]
fn a_job_of_one_needs_nobody() {
    let alone = JobEnvironment { meeting: RendezvousPoint::Alone, ..place("alone", 0, 1) };
    let mut joined = join(&alone, LocalEndpoint::default(), &TERMS).expect("nobody is missing");
    assert_eq!((joined.table.size(), joined.lifeline.turn()), (1, None));
    joined.lifeline.leave(SOON);
}

#[test]
fn a_meeting_at_an_address_waits_for_a_late_rank_zero() {
    // Free a moment ago; nothing else on this machine is likely to take it.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("loopback").port();
    let job = new_job();
    let at = move |rank| {
        let meeting = RendezvousPoint::Address { host: "localhost".to_owned(), port };
        JobEnvironment { meeting, ..place(&job, rank, 2) }
    };
    let early = at(1);
    let waiting = spawn(move || join(&early, LocalEndpoint::default(), &TERMS));
    std::thread::sleep(Duration::from_millis(100));
    let zero = join(&at(0), LocalEndpoint::default(), &TERMS).expect("both come");
    assert_eq!(zero.table, waiting.join().expect("no panic").expect("both come").table);
}

#[test]
fn the_ranks_that_do_not_come_are_named_to_all_who_do() {
    let job = new_job();
    let terms = RendezvousTimeouts { patience: Duration::from_millis(400), ..TERMS };
    let (first, second) = (job.clone(), job.clone());
    let others = [spawn(move || enter(&first, 0, 5, &terms)), spawn(move || enter(&second, 2, 5, &TERMS))];
    for thread in others {
        let error = thread.join().expect("no panic").expect_err("three are missing");
        assert!(
            matches!(&error, RendezvousError::Missing { ranks, count: 3, .. } if ranks[..] == [1, 3, 4]),
            "{error}"
        );
        assert_eq!(error.to_string(), "ranks 1, 3, 4 did not come");
    }
    assert!(rendezvous_file::read(&job).expect("no trouble").is_none(), "nothing is left behind");
}

#[test]
fn without_rank_zero_the_others_say_what_to_set() {
    let terms = RendezvousTimeouts { patience: Duration::from_millis(100), ..TERMS };
    let error = enter(&new_job(), 1, 2, &terms).expect_err("nobody is there").to_string();
    assert!(error.contains("PLEACH_RENDEZVOUS=host:port"), "{error}");
}

#[test]
fn whoever_expects_another_number_of_ranks_is_told_at_once() {
    let job = new_job();
    let terms = RendezvousTimeouts { patience: Duration::from_millis(700), ..TERMS };
    let host = job.clone();
    let zero = spawn(move || enter(&host, 0, 2, &terms));
    let error = enter(&job, 1, 3, &TERMS).expect_err("two, not three");
    assert!(matches!(&error, RendezvousError::Refused(why) if why.contains("expects 2 ranks")), "{error}");
    let error = zero.join().expect("no panic").expect_err("nobody came").to_string();
    assert!(error.starts_with("rank 1 did not come") && error.contains("rank 1 of 3"), "{error}");
}

#[test]
fn too_much_on_a_card_is_an_error_at_home() {
    let large = LocalEndpoint { extra: vec![0; 4097], ..LocalEndpoint::default() };
    assert!(matches!(join(&place("large", 0, 2), large, &TERMS), Err(RendezvousError::Offer(_))));
}

/// A process that is up to no good, and what it hears.
struct Stranger {
    tcp: TcpStream,
}

impl Stranger {
    fn at(port: u16) -> (Self, JoinNonce) {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).expect("rank 0 listens");
        tcp.set_read_timeout(Some(SOON)).expect("not zero");
        let mut challenge = [0; 5 + 16];
        tcp.read_exact(&mut challenge).expect("rank 0 asks");
        (Self { tcp }, challenge[5..].try_into().expect("16 bytes"))
    }

    fn say(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).expect("it is open");
    }

    /// The kind of the answer, or nothing if there is none.
    fn answer(mut self) -> Option<u8> {
        let mut head = [0; 5];
        self.tcp.read_exact(&mut head).ok().map(|()| head[4])
    }
}

#[test]
fn strangers_do_not_harm_a_job() {
    let job = new_job();
    let zero = {
        let job = job.clone();
        spawn(move || enter(&job, 0, 3, &TERMS))
    };
    let posting = loop {
        match rendezvous_file::read(&job).expect("no trouble") {
            Some(posting) => break posting,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let key = TokenKey::new(&place(&job, 0, 3).token, &posting.secret);
    let hello = |rank| JoinRequest {
        version: RENDEZVOUS_VERSION,
        size: 3,
        nonce: random_nonce(),
        card: EndpointRecord::own(rank, vec![], vec![]),
    };

    let (mut garbage, _) = Stranger::at(posting.port);
    garbage.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(garbage.answer(), None);

    let (mut large, _) = Stranger::at(posting.port);
    large.say(&[0xff, 0xff, 0xff, 0x7f, RendezvousMessageKind::Hello as u8]);
    assert_eq!(large.answer(), None);

    let (mut foreign, challenge) = Stranger::at(posting.port);
    let wrong = TokenKey::new(&JobToken(b"guessed".to_vec()), &posting.secret);
    foreign.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(1).to_bytes(&wrong, &challenge)]));
    assert_eq!(foreign.answer(), Some(RendezvousMessageKind::Refused as u8));

    let (mut replayed, other_challenge) = Stranger::at(posting.port);
    assert_ne!(challenge, other_challenge);
    replayed.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(1).to_bytes(&key, &challenge)]));
    assert_eq!(replayed.answer(), Some(RendezvousMessageKind::Refused as u8));

    // One that dies in the middle of its card, one that stays there, and many that say nothing.
    let (mut half, challenge) = Stranger::at(posting.port);
    half.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(2).to_bytes(&key, &challenge)])[..40]);
    drop(half);
    let (mut stuck, challenge) = Stranger::at(posting.port);
    stuck.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(2).to_bytes(&key, &challenge)])[..40]);
    let _silent: Vec<_> =
        (0..50).map(|_| TcpStream::connect(("127.0.0.1", posting.port)).expect("it listens")).collect();

    // A rank that is not there, and one that comes twice.
    let (mut beyond, challenge) = Stranger::at(posting.port);
    beyond.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(3).to_bytes(&key, &challenge)]));
    assert_eq!(beyond.answer(), Some(RendezvousMessageKind::Refused as u8));
    let one = {
        let job = job.clone();
        spawn(move || enter(&job, 1, 3, &TERMS))
    };
    std::thread::sleep(Duration::from_millis(200));
    let (mut twice, challenge) = Stranger::at(posting.port);
    twice.say(&encode_message(RendezvousMessageKind::Hello, &[&hello(1).to_bytes(&key, &challenge)]));
    assert_eq!(twice.answer(), Some(RendezvousMessageKind::Refused as u8));

    let began = Instant::now();
    let two = enter(&job, 2, 3, &TERMS).expect("it may come");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let (zero, one) = (zero.join().expect("no panic"), one.join().expect("no panic"));
    let (mut zero, one) = (zero.expect("all came"), one.expect("all came"));
    assert_eq!((&zero.table, &one.table), (&two.table, &two.table));
    assert_eq!(zero.lifeline.turn(), None, "and nobody is lost");
}

#[test]
fn a_second_process_of_the_same_rank_gives_up_with_the_reason() {
    let job = new_job();
    let terms = RendezvousTimeouts { patience: Duration::from_secs(3), ..TERMS };
    let began = Instant::now();
    let threads = [0, 1, 1].map(|rank| {
        let job = job.clone();
        spawn(move || enter(&job, rank, 3, &terms))
    });
    let results = threads.map(|thread| thread.join().expect("no panic"));
    let twice = results
        .iter()
        .filter(|result| matches!(result, Err(RendezvousError::Refused(why)) if why.contains("this rank")))
        .count();
    let missing = results
        .iter()
        .filter(|result| matches!(result, Err(RendezvousError::Missing { ranks, .. }) if ranks[..] == [2]));
    assert_eq!((twice, missing.count()), (1, 2), "{results:?}");
    assert!(began.elapsed() < SOON);
}

#[test]
fn a_rank_that_dies_before_all_are_there_may_come_again() {
    let job = new_job();
    let zero = {
        let job = job.clone();
        spawn(move || enter(&job, 0, 3, &TERMS))
    };
    let posting = loop {
        match rendezvous_file::read(&job).expect("no trouble") {
            Some(posting) => break posting,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let key = TokenKey::new(&place(&job, 0, 3).token, &posting.secret);
    let (mut dying, challenge) = Stranger::at(posting.port);
    let hello = JoinRequest {
        version: RENDEZVOUS_VERSION,
        size: 3,
        nonce: random_nonce(),
        card: EndpointRecord::own(1, vec![], vec![]),
    };
    dying.say(&encode_message(RendezvousMessageKind::Hello, &[&hello.to_bytes(&key, &challenge)]));
    assert_eq!(dying.answer(), Some(RendezvousMessageKind::Welcome as u8));
    let others = [1, 2].map(|rank| {
        let job = job.clone();
        spawn(move || enter(&job, rank, 3, &TERMS))
    });
    assert!(zero.join().expect("no panic").is_ok());
    assert!(others.into_iter().all(|thread| thread.join().expect("no panic").is_ok()));
}
