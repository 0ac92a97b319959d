//! The named cases: each draws rounds of one kind of fault.

use std::time::Duration;

use namespaces::hosts::{Corruption, Direction};

use super::draw::{RoundDraw, between_millis};
use super::plan::{ChaosAction, ChaosPlan, ExpectedOutcome, LinkChange, ProcessRef, RankSet};

/// A kind of round.
pub(super) struct ChaosCase {
    pub name: &'static str,
    /// What happens, and what must come of it.
    pub about: &'static str,
    draw: fn(&mut RoundDraw),
}

impl ChaosCase {
    /// The case of this name.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        CASES.iter().find(|case| case.name == name)
    }

    /// The round of a seed.
    pub(super) fn plan(&self, seed: u64) -> ChaosPlan {
        let mut round = RoundDraw::new(self.name, seed);
        (self.draw)(&mut round);
        round.finish()
    }
}

const fn case(name: &'static str, about: &'static str, draw: fn(&mut RoundDraw)) -> ChaosCase {
    ChaosCase { name, about, draw }
}

/// All cases.
pub(super) const CASES: [ChaosCase; 30] = [
    case("node-killed", "kill -9 of a leaf of the tree: the hosts finish the operation", |round| {
        round.with_nodes(2);
        let leaf = 1 + round.below(u64::from(round.shape.nodes) - 1) as u32;
        round.soon(ChaosAction::Kill(ProcessRef::Node(leaf)));
    }),
    case("root-killed", "kill -9 of the root of the tree", |round| {
        round.with_nodes(1);
        round.soon(ChaosAction::Kill(ProcessRef::Node(0)));
    }),
    case("all-nodes-killed", "kill -9 of all nodes at once", |round| {
        round.with_nodes(2);
        let at = round.moment();
        (0..round.shape.nodes).for_each(|node| round.act(at, ChaosAction::Kill(ProcessRef::Node(node))));
    }),
    case("node-restarted", "the only node is killed and comes back: the job returns to it", |round| {
        round.with_nodes(1);
        (round.shape.nodes, round.shape.algorithm) = (1, Some("aggregation"));
        let node = ProcessRef::Node(0);
        let at = round.moment();
        round.act(at, ChaosAction::Kill(node));
        let back = at + round.duration(200, 2_000);
        round.act(back, ChaosAction::Restart(node));
        round.returns_to = Some(0);
    }),
    case("node-stopped", "SIGSTOP of a node, and SIGCONT some seconds later", |round| {
        round.with_nodes(1);
        let node = ProcessRef::Node(round.below(u64::from(round.shape.nodes)) as u32);
        pause(round, node, 500, 4_000);
    }),
    case("manager-killed", "kill -9 of the manager: running jobs go on", |round| {
        round.with_nodes(1);
        round.soon(ChaosAction::Kill(ProcessRef::Manager));
    }),
    case("manager-restarted", "the manager is killed and comes back", |round| {
        round.with_nodes(1);
        let at = round.moment();
        round.act(at, ChaosAction::Kill(ProcessRef::Manager));
        let back = at + round.duration(200, 2_000);
        round.act(back, ChaosAction::Restart(ProcessRef::Manager));
    }),
    case("rank-killed", "kill -9 of a rank: all others name it", |round| kill_ranks(round, 1)),
    case("rank-zero-killed", "kill -9 of rank 0, which coordinates the job", |round| {
        let at = round.moment();
        round.act(at, ChaosAction::Kill(ProcessRef::Rank(0)));
        round.expectation = ExpectedOutcome::RanksLost(RankSet::from([0]));
    }),
    case("two-ranks-killed", "kill -9 of two ranks at once: all others name the same ranks", |round| {
        round.at_least_ranks(4);
        kill_ranks(round, 2);
    }),
    case("host-killed", "kill -9 of all ranks of a host at once", |round| {
        round.at_least_hosts(3, 2);
        let host = round.host();
        let (at, lost) = (round.moment(), round.shape.ranks_of(&[host]));
        lost.iter().for_each(|rank| round.act(at, ChaosAction::Kill(ProcessRef::Rank(*rank))));
        round.expectation = ExpectedOutcome::RanksLost(lost);
    }),
    case("rank-stopped", "SIGSTOP of a rank for some seconds: it is slow, not lost", |round| {
        let rank = ProcessRef::Rank(round.below(u64::from(round.shape.ranks())) as u32);
        pause(round, rank, 500, 6_000);
    }),
    case("host-cut-off", "a host with two ranks loses all links: the others name both, and both are told", |round| {
        round.at_least_hosts(3, 2);
        let host = round.host();
        divide(round, &[host]);
    }),
    case("partition", "two of five hosts lose the others, not each other: the smaller side is told", |round| {
        round.at_least_hosts(5, 1);
        let first = round.below(4) as u32;
        divide(round, &[first, first + 1]);
    }),
    case("low-hosts-cut-off", "the five hosts with the lowest ranks lose the other six, which go on", |round| {
        round.at_least_hosts(11, 1);
        divide(round, &[0, 1, 2, 3, 4]);
    }),
    case("one-way-partition", "what a host sends is lost on all links, for good: one agreed error", |round| {
        round.at_least_hosts(3, 1);
        let (host, direction) = (round.host(), round.one_direction());
        cut(round, host, direction);
        round.expectation = ExpectedOutcome::OneWay { suspects: round.shape.ranks_of(&[host]) };
    }),
    case("short-partition", "a host loses all links for less than the failure detector waits", |round| {
        let host = round.host();
        let at = cut(round, host, Direction::Both);
        let back = at + round.duration(300, 3_000);
        round.every_link(host, back, &LinkChange::Clear);
    }),
    case("one-way-cut", "one of two links loses what goes in one direction", |round| {
        round.with_two_links();
        let (host, link, direction) = (round.host(), round.link(), round.one_direction());
        round.transient(host as usize, link, LinkChange::Drop(direction), LinkChange::Clear);
    }),
    case("rendezvous-path-lost", "the link over which the ranks met is cut for good; the other works", |round| {
        round.with_two_links();
        let (at, everywhere) = (round.moment(), round.one_in(2));
        let hosts = if everywhere { 0..round.shape.hosts } else { 0..1 };
        hosts.for_each(|host| round.change(at, host as usize, 0, LinkChange::Drop(Direction::Both)));
        round.settle = Duration::from_secs(14);
    }),
    case("links-flap", "two links of a host go down and up in turn", |round| {
        round.with_two_links();
        let (host, period) = (round.host() as usize, round.duration(300, 1_500));
        let mut at = round.moment();
        for turn in 0..6 {
            let (down, up) = (turn % 2, 1 - turn % 2);
            round.change(at, host, up, LinkChange::Up);
            round.change(at, host, down, LinkChange::Down);
            at += period;
        }
        round.change(at, host, 1, LinkChange::Up);
    }),
    case("link-down", "one of two links goes down or is unplugged for a time", |round| {
        round.with_two_links();
        let (host, link) = (round.any_data_host(), round.link());
        let (cut, heal) = round.pick(&[(LinkChange::Down, LinkChange::Up), (LinkChange::Unplug, LinkChange::PlugIn)]);
        round.transient(host, link, cut, heal);
    }),
    case("address-removed", "a host loses the address of one of two links for a time", |round| {
        round.with_two_links();
        let (host, link) = (round.host() as usize, round.link());
        round.transient(host, link, LinkChange::RemoveAddress, LinkChange::RestoreAddress);
    }),
    case("mtu-lowered", "the MTU of a host falls in mid-run, for good: fragments follow it", |round| {
        round.shape.mtu_bytes = 9_000;
        let (host, at, mtu) = (round.any_data_host(), round.moment(), round.pick(&[1_400, 1_500, 4_000]));
        (0..round.shape.links).for_each(|link| round.change(at, host, link, LinkChange::Mtu(mtu)));
        round.settle = Duration::from_secs(3);
    }),
    case("loss", "packets are lost", |round| {
        let one_in = round.pick(&[5, 20, 100]);
        packet_fault(round, &LinkChange::Lose { one_in });
    }),
    case("corruption", "bits flip, and no checksum of the kernel finds it", |round| {
        let corruption = corruption(round);
        packet_fault(round, &LinkChange::Corrupt(corruption));
    }),
    case("duplication", "packets arrive twice", |round| {
        let one_in = round.pick(&[2, 5, 50]);
        packet_fault(round, &LinkChange::Duplicate { one_in });
    }),
    case("reordering", "packets overtake others", |round| {
        let one_in = round.pick(&[3, 10, 50]);
        packet_fault(round, &LinkChange::Reorder { one_in });
    }),
    case("shm-full", "/dev/shm of a host is full: all ranks are told, at once", |round| {
        round.at_least_hosts(2, 2);
        round.shape.small_shm = Some((round.host(), 64 << 10));
        round.expectation = ExpectedOutcome::CannotJoin { because: "/dev/shm is full" };
    }),
    case("few-descriptors", "a rank may open few files: the job completes, or all ranks are told", |round| {
        let rank = round.below(u64::from(round.shape.ranks())) as u32;
        round.shape.few_descriptors = Some((rank, 6 + round.below(26)));
        round.expectation = ExpectedOutcome::CompletesOrCannotJoin;
    }),
    case("mixed", "several of these at once", mixed),
];

/// Stops a process for a time.
fn pause(round: &mut RoundDraw, process: ProcessRef, least_millis: u64, most_millis: u64) {
    let at = round.moment();
    round.act(at, ChaosAction::Stop(process));
    let back = at + round.duration(least_millis, most_millis);
    round.act(back, ChaosAction::Continue(process));
}

/// Kills so many ranks at once.
fn kill_ranks(round: &mut RoundDraw, count: usize) {
    let (at, mut lost) = (round.moment(), RankSet::new());
    while lost.len() < count {
        lost.insert(round.below(u64::from(round.shape.ranks())) as u32);
    }
    lost.iter().for_each(|rank| round.act(at, ChaosAction::Kill(ProcessRef::Rank(*rank))));
    round.expectation = ExpectedOutcome::RanksLost(lost);
}

/// Cuts a host off on all links; the moment of the cut.
fn cut(round: &mut RoundDraw, host: u32, direction: Direction) -> Duration {
    let at = round.moment();
    round.every_link(host, at, &LinkChange::Drop(direction));
    at
}

/// These hosts, fewer than half, lose all others. If there are several, they still reach each other: their links are moved to a
/// switch of their own.
fn divide(round: &mut RoundDraw, hosts: &[u32]) {
    let at = round.moment();
    for host in hosts {
        round.every_link(*host, at, &LinkChange::MoveToOtherSwitch);
    }
    round.expectation = ExpectedOutcome::Divided { smaller: round.shape.ranks_of(hosts) };
}

fn corruption(round: &mut RoundDraw) -> Corruption {
    let bytes = (0..4).map(|_| round.below(200) as u16).collect();
    Corruption { one_in: round.pick(&[5, 20, 100]), bytes, flip: 1 << round.below(8) }
}

/// A fault of packets on all links of one or two hosts, for some seconds.
fn packet_fault(round: &mut RoundDraw, change: &LinkChange) {
    for _ in 0..1 + round.below(2) {
        let (host, at) = (round.any_data_host(), round.moment());
        let end = at + between_millis(1_000, 3_000, round.below(u64::MAX));
        for link in 0..round.shape.links {
            round.change(at, host, link, change.clone());
            round.change(end, host, link, LinkChange::Clear);
        }
    }
}

/// Two to four faults that the job must survive, and perhaps lost ranks.
fn mixed(round: &mut RoundDraw) {
    round.with_two_links();
    round.at_least_ranks(3);
    for _ in 0..2 + round.below(3) {
        let node = ProcessRef::Node(round.below(u64::from(round.shape.nodes.max(1))) as u32);
        let (host, link) = (round.host() as usize, round.link());
        match round.below(9) {
            0 if round.shape.nodes > 0 => round.soon(ChaosAction::Kill(node)),
            1 if round.shape.nodes > 0 => pause(round, node, 200, 3_000),
            2 => round.soon(ChaosAction::Kill(ProcessRef::Manager)),
            3 => {
                let rank = ProcessRef::Rank(round.below(u64::from(round.shape.ranks())) as u32);
                pause(round, rank, 200, 3_000);
            }
            4 => round.transient(host, link, LinkChange::Down, LinkChange::Up),
            5 => {
                let direction = round.pick(&[Direction::In, Direction::Out, Direction::Both]);
                round.transient(host, link, LinkChange::Drop(direction), LinkChange::Clear);
            }
            6 => {
                let at = round.moment();
                round.change(at, host, link, LinkChange::Mtu(1_400));
            }
            7 => {
                let corruption = corruption(round);
                packet_fault(round, &LinkChange::Corrupt(corruption));
            }
            _ => {
                let (one_in, kind) = (round.pick(&[5, 20, 100]), round.below(3));
                let changes =
                    [LinkChange::Lose { one_in }, LinkChange::Duplicate { one_in }, LinkChange::Reorder { one_in }];
                packet_fault(round, &changes[kind as usize]);
            }
        }
    }
    if round.one_in(3) {
        kill_ranks(round, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_have_no_spaces() {
        for (index, case) in CASES.iter().enumerate() {
            assert!(case.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", case.name);
            assert!(CASES[index + 1..].iter().all(|other| other.name != case.name), "{}", case.name);
        }
        assert!(ChaosCase::find("mtu-lowered").is_some() && ChaosCase::find("no-such-case").is_none());
    }

    #[test]
    fn the_same_seed_draws_the_same_round() {
        for case in &CASES {
            assert_eq!(case.plan(5), case.plan(5));
            assert_ne!(case.plan(5).to_string(), case.plan(6).to_string(), "{}", case.name);
        }
    }

    /// Otherwise it could do without it.
    #[test]
    fn a_job_returns_to_a_restarted_node_that_is_its_only_one() {
        for seed in 0..50 {
            let plan = ChaosCase::find("node-restarted").expect("a case").plan(seed);
            let is_restarted =
                plan.actions.iter().any(|timed| timed.action == ChaosAction::Restart(ProcessRef::Node(0)));
            assert!(is_restarted && plan.shape.nodes == 1 && plan.returns_to == Some(0), "{plan}");
            assert_eq!(plan.shape.algorithm, Some("aggregation"), "the selector may not want it");
        }
    }

    /// What a plan names exists, and nothing happens to a process twice.
    #[test]
    fn plans_are_possible() {
        for (case, seed) in CASES.iter().flat_map(|case| (0..200).map(move |seed| (case, seed))) {
            let plan = case.plan(seed);
            let text = format!("{} {seed}: {plan}", case.name);
            assert!(plan.actions.is_sorted_by_key(|timed| timed.at), "{text}");
            for timed in &plan.actions {
                match &timed.action {
                    ChaosAction::Link { host, link, .. } => {
                        assert!(*host < plan.shape.all_hosts() && *host != plan.shape.manager_host(), "{text}");
                        assert!(*link < plan.shape.links, "{text}");
                    }
                    ChaosAction::Kill(ProcessRef::Rank(rank)) | ChaosAction::Stop(ProcessRef::Rank(rank)) => {
                        assert!(*rank < plan.shape.ranks(), "{text}");
                    }
                    ChaosAction::Kill(ProcessRef::Node(node)) => assert!(*node < plan.shape.nodes, "{text}"),
                    _ => {}
                }
            }
            if let ExpectedOutcome::Divided { smaller } | ExpectedOutcome::RanksLost(smaller) = &plan.expectation {
                assert!(!smaller.is_empty() && smaller.len() < plan.shape.ranks() as usize, "{text}");
            }
        }
    }
}
