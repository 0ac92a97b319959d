//! The failure detector between hosts with two links each: links are cut, flap and heal, and hosts vanish.
//!
//! Each rank is a thread in the namespace of its host, because connections are opened again later.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bootstrap::{EnvironmentVariables, JobEnvironment, LocalEndpoint, OobTarget, RankEvent, RendezvousTimeouts};
use namespaces::NamespaceError;
use tests::hosts::{Direction, Hosts};

/// The kernel takes whole seconds, and at least three of them.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// Twice as long as it takes to notice a silent host.
const LONG_ENOUGH: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(60);
const UDP_PORT: u16 = 4791;
const RENDEZVOUS_PORT: u16 = 7412;

/// The hosts, or none, after saying why, where there can be none.
fn hosts(count: usize) -> Option<Hosts> {
    match Hosts::new(count, 2) {
        Ok(hosts) => Some(hosts),
        Err(error @ NamespaceError::Missing(_)) => {
            namespaces::skip_test(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A rank in its thread.
struct RunningRank {
    events: Arc<Mutex<Vec<RankEvent>>>,
    outbox: Sender<Vec<u8>>,
}

/// Starts ranks on these hosts and calls `script` while they run.
fn with_ranks(hosts: &Hosts, layout: &[usize], script: impl FnOnce(&[RunningRank])) {
    std::thread::scope(|scope| {
        let ranks: Vec<RunningRank> = layout
            .iter()
            .enumerate()
            .map(|(rank, host)| {
                let events = Arc::new(Mutex::new(Vec::new()));
                let (outbox, inbox) = channel();
                let (seen, size) = (Arc::clone(&events), layout.len());
                scope.spawn(move || {
                    hosts
                        .host(*host)
                        .inside(move || run_rank(hosts, (rank, size, *host), &seen, &inbox))
                        .expect("it moves");
                });
                RunningRank { events, outbox }
            })
            .collect();
        let began = Instant::now();
        while ranks.iter().any(|rank| rank.events().is_empty()) {
            assert!(began.elapsed() < SOON, "the ranks do not join");
            std::thread::sleep(Duration::from_millis(10));
        }
        ranks.iter().for_each(|rank| rank.events.lock().expect("no panic").clear());
        script(&ranks);
    });
}

fn run_rank(
    hosts: &Hosts,
    (rank, size, host): (usize, usize, usize),
    events: &Mutex<Vec<RankEvent>>,
    inbox: &Receiver<Vec<u8>>,
) {
    let rendezvous = SocketAddr::new(hosts.link(0, 0).address().into(), RENDEZVOUS_PORT);
    let variables = [("RANK", rank.to_string()), ("SIZE", size.to_string()), ("RENDEZVOUS", rendezvous.to_string())];
    let variables = variables.into_iter().chain([("JOB", "paths".to_owned())]);
    let variables: EnvironmentVariables = variables.map(|(name, value)| (format!("PLEACH_{name}"), value)).collect();
    let place = JobEnvironment::from_variables(&variables, |_| None).expect("all is said");
    let addresses = (0..2).map(|link| SocketAddr::new(hosts.link(host, link).address().into(), UDP_PORT)).collect();
    let timeouts = RendezvousTimeouts { peer: PEER_TIMEOUT, ..RendezvousTimeouts::default() };
    let joined = bootstrap::join(&place, LocalEndpoint { addresses, extra: Vec::new() }, &timeouts);
    let mut detector = joined.expect("all ranks join").failure_detector;
    events.lock().expect("no panic").push(RankEvent::Left { rank: u32::MAX }); // It has joined.
    loop {
        match inbox.try_recv() {
            Ok(message) if message.is_empty() => return, // Without a goodbye, as a process that is killed.
            Ok(message) => detector.send(OobTarget::All, &message).expect("room"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
        while let Some(event) = detector.turn() {
            events.lock().expect("no panic").push(event);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl RunningRank {
    fn events(&self) -> Vec<RankEvent> {
        self.events.lock().expect("no panic").clone()
    }

    /// Ends it as if its process was killed.
    fn kill(&self) {
        self.outbox.send(Vec::new()).expect("it runs");
    }

    /// Verdicts so far.
    fn losses(&self) -> Vec<RankEvent> {
        let is_loss = |event: &RankEvent| matches!(event, RankEvent::Lost { .. } | RankEvent::CutOff { .. });
        self.events().into_iter().filter(is_loss).collect()
    }
}

/// Waits until these ranks have got a verdict, and returns all of them.
fn verdicts(ranks: &[RunningRank], expected: &[usize]) -> Vec<Vec<RankEvent>> {
    let began = Instant::now();
    while expected.iter().any(|rank| ranks[*rank].losses().is_empty()) {
        assert!(began.elapsed() < SOON, "{:?}", ranks.iter().map(RunningRank::events).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(10));
    }
    expected.iter().map(|rank| ranks[*rank].losses()).collect()
}

/// Every rank sends to all others, and all messages arrive.
fn exchange(ranks: &[RunningRank], text: &str) {
    ranks.iter().for_each(|rank| rank.outbox.send(text.as_bytes().to_vec()).expect("it runs"));
    let count = |rank: &RunningRank| {
        let is_it = |event: &RankEvent| matches!(event, RankEvent::Message { bytes, .. } if bytes == text.as_bytes());
        rank.events().iter().filter(|event| is_it(event)).count()
    };
    let began = Instant::now();
    while ranks.iter().any(|rank| count(rank) < ranks.len() - 1) {
        assert!(began.elapsed() < SOON, "{text}: {:?}", ranks.iter().map(RunningRank::events).collect::<Vec<_>>());
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
    assert!(ranks.iter().all(|rank| count(rank) == ranks.len() - 1), "{text}: a message came twice");
}

fn lost(ranks: &[u32]) -> Vec<RankEvent> {
    vec![RankEvent::Lost { ranks: ranks.to_vec() }]
}

fn cut_off(ranks: &[u32]) -> Vec<RankEvent> {
    vec![RankEvent::CutOff { ranks: ranks.to_vec() }]
}

fn cut(hosts: &Hosts, host: usize, link: usize) {
    hosts.link(host, link).drop_silently(Direction::Both).expect("nftables");
}

mod between_hosts {
    use super::*;

    /// The path of the rendezvous fails, heals, and then the other one fails: nobody is lost, and messages arrive once.
    #[test]
    fn one_path_is_enough() {
        let Some(hosts) = hosts(3) else { return };
        with_ranks(&hosts, &[0, 1, 2], |ranks| {
            exchange(ranks, "both paths");
            (0..3).for_each(|host| cut(&hosts, host, 0));
            exchange(ranks, "just after the cut");
            std::thread::sleep(LONG_ENOUGH);
            exchange(ranks, "on path 1");
            (0..3).for_each(|host| hosts.link(host, 0).heal().expect("nftables"));
            std::thread::sleep(LONG_ENOUGH / 2);
            (0..3).for_each(|host| cut(&hosts, host, 1));
            std::thread::sleep(LONG_ENOUGH);
            exchange(ranks, "on path 0 again");
            assert!(ranks.iter().all(|rank| rank.losses().is_empty()), "nobody is lost");
        });
    }

    /// Links of rank 0's host go down and come back in turn.
    #[test]
    fn flapping_paths_lose_nobody() {
        let Some(hosts) = hosts(2) else { return };
        with_ranks(&hosts, &[0, 1], |ranks| {
            for round in 0..6 {
                let (down, up) = (round % 2, 1 - round % 2);
                hosts.link(0, down).down().expect("ip");
                hosts.link(0, up).up().expect("ip");
                std::thread::sleep(Duration::from_millis(1500));
                exchange(ranks, &format!("round {round}"));
            }
            assert!(ranks.iter().all(|rank| rank.losses().is_empty()), "nobody is lost");
        });
    }

    /// A host with two ranks vanishes: all others name both, at once. The two are told that they are cut off.
    #[test]
    fn the_ranks_of_a_host_that_vanishes_are_one_set() {
        let Some(hosts) = hosts(3) else { return };
        with_ranks(&hosts, &[0, 1, 2, 1, 0], |ranks| {
            (0..2).for_each(|link| cut(&hosts, 1, link));
            assert_eq!(verdicts(ranks, &[0, 2, 4]), vec![lost(&[1, 3]); 3]);
            assert_eq!(verdicts(ranks, &[1, 3]), vec![cut_off(&[0, 2, 4]); 2]);
        });
    }

    /// The coordinator and another rank end at once: the others attach to the next one, on both paths, and name the same ranks.
    #[test]
    fn the_next_rank_follows_a_coordinator_that_ends() {
        let Some(hosts) = hosts(3) else { return };
        with_ranks(&hosts, &[0, 1, 2, 0, 1, 2], |ranks| {
            ranks[0].kill();
            ranks[4].kill();
            let left = [1, 2, 3, 5];
            assert_eq!(verdicts(ranks, &left), vec![lost(&[0, 4]); 4]);
            std::thread::sleep(LONG_ENOUGH / 4);
            ranks[2].outbox.send(b"through rank 1".to_vec()).expect("it runs");
            let message = RankEvent::Message { from: 2, bytes: b"through rank 1".to_vec() };
            let began = Instant::now();
            while [1, 3, 5].iter().any(|rank: &usize| !ranks[*rank].events().contains(&message)) {
                assert!(began.elapsed() < SOON, "{:?}", ranks.iter().map(RunningRank::events).collect::<Vec<_>>());
                std::thread::sleep(Duration::from_millis(5));
            }
            assert!(left.iter().all(|rank| ranks[*rank].losses().len() == 1), "nobody else is lost");
        });
    }

    /// The coordinator's host vanishes: the others go on with the next rank as coordinator.
    #[test]
    fn the_larger_side_goes_on_without_rank_zero() {
        let Some(hosts) = hosts(3) else { return };
        with_ranks(&hosts, &[0, 1, 2, 1], |ranks| {
            (0..2).for_each(|link| cut(&hosts, 0, link));
            assert_eq!(verdicts(ranks, &[1, 2, 3]), vec![lost(&[0]); 3]);
            assert_eq!(verdicts(ranks, &[0]), [cut_off(&[1, 2, 3])]);
            exchange(&ranks[1..], "through rank 1");
        });
    }
}
