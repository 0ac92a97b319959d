//! Checks every cut of `tests::hosts` with plain UDP sockets, and what Linux reports to the owner of such a socket.
//!
//! Times go to standard output: `cargo test -p tests --test hosts -- --nocapture`.

mod kernel_reports;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use namespaces::NamespaceError;
use nix::sys::socket::{setsockopt, sockopt};
use tests::hosts::{Corruption, Direction, HostLink, Hosts, HostsBuilder, Process, Wiring};

const PORT: u16 = 7000;

/// After a heal, the kernel may retry address resolution only a second later.
const HEAL_LIMIT: Duration = Duration::from_secs(4);

/// A datagram takes microseconds; one that has not arrived by now is lost.
const LOSS_LIMIT: Duration = Duration::from_millis(120);

type Cut = fn(HostLink<'_>) -> Result<(), NamespaceError>;

/// One bound socket for each host and link.
struct Sockets<'hosts> {
    hosts: &'hosts Hosts,
    sockets: Vec<Vec<UdpSocket>>,
}

impl<'hosts> Sockets<'hosts> {
    fn v4(hosts: &'hosts Hosts) -> Self {
        Self::open(hosts, |link| link.address().into())
    }

    fn v6(hosts: &'hosts Hosts) -> Self {
        Self::open(hosts, |link| link.address_v6().into())
    }

    fn open(hosts: &'hosts Hosts, address: fn(HostLink<'_>) -> IpAddr) -> Self {
        let socket = |host, link| bind(hosts, host, address(hosts.link(host, link)));
        let of_host = |host| (0..hosts.link_count()).map(|link| socket(host, link)).collect();
        Self { hosts, sockets: (0..hosts.count()).map(of_host).collect() }
    }

    /// Sends every few milliseconds until one datagram arrives.
    fn pass_within(&self, limit: Duration, from: usize, to: usize, link: usize) -> bool {
        let (sender, receiver) = (&self.sockets[from][link], &self.sockets[to][link]);
        drain(receiver);
        let deadline = Instant::now() + limit;
        let mut buffer = [0; 64];
        while Instant::now() < deadline {
            // A send on a cut link may fail.
            let _ = sender.send_to(b"token", receiver.local_addr().unwrap());
            if matches!(receiver.recv(&mut buffer), Ok(5)) {
                return true;
            }
        }
        false
    }

    #[track_caller]
    fn assert_open(&self, from: usize, to: usize, link: usize) {
        assert!(self.pass_within(HEAL_LIMIT, from, to, link), "nothing passes from {from} to {to} on link {link}");
    }

    #[track_caller]
    fn assert_cut(&self, from: usize, to: usize, link: usize) {
        assert!(!self.pass_within(LOSS_LIMIT, from, to, link), "something passes from {from} to {to} on link {link}");
    }

    #[track_caller]
    fn assert_all_open(&self) {
        for link in 0..self.hosts.link_count() {
            for (from, to) in
                (0..self.hosts.count()).flat_map(|from| (0..self.hosts.count()).map(move |to| (from, to)))
            {
                if from != to {
                    self.assert_open(from, to, link);
                }
            }
        }
    }

    /// Sends numbered datagrams of this length in small groups, and returns those that arrive.
    fn send_many(&self, count: u32, length: usize) -> Vec<Vec<u8>> {
        let (sender, receiver) = (&self.sockets[0][1], &self.sockets[1][1]);
        let mut arrived = Vec::new();
        // Ten large ones fit into the receiver's buffer.
        for first in (0..count).step_by(10) {
            for number in first..first + 10 {
                sender.send_to(&numbered(number, length), receiver.local_addr().unwrap()).unwrap();
            }
            let mut buffer = vec![0; length];
            while let Ok(received) = receiver.recv(&mut buffer) {
                arrived.push(buffer[..received].to_vec());
            }
        }
        arrived
    }
}

fn bind(hosts: &Hosts, host: usize, address: IpAddr) -> UdpSocket {
    let socket = hosts.host(host).inside(|| UdpSocket::bind((address, PORT))).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    socket
}

fn drain(socket: &UdpSocket) {
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 64]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
}

fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut datagram = vec![0x5a; length];
    datagram[..4].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// Cuts link 1 of host 0 and heals it; link 0 stays unaffected.
fn check_cut(wiring: Wiring, cut: Cut, heal: Cut) {
    let Some(hosts) = HostsBuilder::new(2, 2).wiring(wiring).build_or_skip() else { return };
    let sockets = Sockets::v4(&hosts);
    sockets.assert_all_open();
    cut(hosts.link(0, 1)).unwrap();
    for (from, to) in [(0, 1), (1, 0)] {
        sockets.assert_cut(from, to, 1);
        sockets.assert_open(from, to, 0);
    }
    heal(hosts.link(0, 1)).unwrap();
    sockets.assert_all_open();
}

/// Corrupts what host 1 receives on link 1.
fn check_corruption(hosts: &Hosts, sockets: &Sockets<'_>) {
    const LENGTH: usize = 6000;
    sockets.assert_all_open();
    let corruption = Corruption { one_in: 4, bytes: vec![4, 77, 5000], flip: 0x12 };
    let mut changed_at: BTreeMap<usize, u32> = corruption.bytes.iter().map(|&byte| (byte.into(), 0)).collect();
    hosts.link(1, 1).corrupt(Direction::In, corruption).unwrap();
    let arrived = sockets.send_many(800, LENGTH);
    assert_eq!(arrived.len(), 800, "no datagram is lost");
    for (number, datagram) in (0..).zip(&arrived) {
        let sent = numbered(number, LENGTH);
        let changed: Vec<usize> = (0..LENGTH).filter(|&byte| datagram[byte] != sent[byte]).collect();
        match changed[..] {
            [] => {}
            [byte] => {
                assert_eq!(datagram[byte], sent[byte] ^ 0x12);
                *changed_at.get_mut(&byte).expect("a requested offset") += 1;
            }
            _ => panic!("more than one byte changed: {changed:?}"),
        }
    }
    let all: u32 = changed_at.values().sum();
    assert!((120..=280).contains(&all) && changed_at.values().all(|&count| count > 20), "{changed_at:?}");
    hosts.link(1, 1).clear_faults().unwrap();
    let intact: Vec<Vec<u8>> = (0..100).map(|number| numbered(number, LENGTH)).collect();
    assert_eq!(sockets.send_many(100, LENGTH), intact);
}

/// Whether `ip netns` would list the name.
fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

mod between_hosts {
    use super::*;

    #[test]
    fn a_link_that_is_down_is_cut_and_one_that_is_up_is_healed() {
        check_cut(Wiring::Direct, |link| link.down(), |link| link.up());
        check_cut(Wiring::Switched, |link| link.down(), |link| link.up());
    }

    #[test]
    fn an_unplugged_link_is_cut_until_it_is_plugged_in() {
        check_cut(Wiring::Direct, |link| link.unplug(), |link| link.plug_in());
        check_cut(Wiring::Switched, |link| link.unplug(), |link| link.plug_in());
    }

    #[test]
    fn a_link_without_its_address_is_cut_until_it_is_restored() {
        check_cut(Wiring::Direct, |link| link.remove_address(), |link| link.restore_address());
    }

    #[test]
    fn a_silent_drop_cuts_until_the_faults_are_cleared() {
        check_cut(Wiring::Direct, |link| link.drop_silently(Direction::Both), |link| link.clear_faults());
        check_cut(Wiring::Switched, |link| link.drop_silently(Direction::Both), |link| link.clear_faults());
    }

    #[test]
    fn a_cut_of_one_direction_leaves_the_other_open() {
        for wiring in [Wiring::Direct, Wiring::Switched] {
            let Some(hosts) = HostsBuilder::new(2, 2).wiring(wiring).build_or_skip() else { return };
            let sockets = Sockets::v4(&hosts);
            for (direction, cut, open) in [(Direction::Out, (0, 1), (1, 0)), (Direction::In, (1, 0), (0, 1))] {
                sockets.assert_all_open();
                hosts.link(0, 1).drop_silently(direction).unwrap();
                sockets.assert_cut(cut.0, cut.1, 1);
                sockets.assert_open(open.0, open.1, 1);
                sockets.assert_open(cut.0, cut.1, 0);
                hosts.link(0, 1).clear_faults().unwrap();
            }
            sockets.assert_all_open();
        }
    }

    #[test]
    fn healing_undoes_all_cuts_at_once() {
        check_cut(
            Wiring::Switched,
            |link| {
                link.drop_silently(Direction::In)?;
                link.lose(Direction::Both, 3)?;
                link.remove_address()?;
                link.unplug()?;
                link.down()
            },
            |link| link.heal(),
        );
    }

    #[test]
    fn ipv6_passes_and_is_cut_and_healed_too() {
        let Some(hosts) = HostsBuilder::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v6(&hosts);
        sockets.assert_all_open();
        let cuts: [(Cut, Cut); 3] = [
            (|link| link.down(), |link| link.up()),
            (|link| link.remove_address(), |link| link.restore_address()),
            (|link| link.drop_silently(Direction::Both), |link| link.clear_faults()),
        ];
        for (cut, heal) in cuts {
            cut(hosts.link(0, 1)).unwrap();
            sockets.assert_cut(0, 1, 1);
            sockets.assert_open(0, 1, 0);
            heal(hosts.link(0, 1)).unwrap();
            sockets.assert_all_open();
        }
    }

    #[test]
    fn at_a_switch_a_cut_affects_only_its_own_host() {
        let Some(hosts) = HostsBuilder::new(3, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        let cuts: [Cut; 3] = [|link| link.down(), |link| link.unplug(), |link| link.drop_silently(Direction::Both)];
        for cut in cuts {
            cut(hosts.link(0, 1)).unwrap();
            sockets.assert_cut(0, 1, 1);
            sockets.assert_cut(2, 0, 1);
            sockets.assert_open(1, 2, 1);
            sockets.assert_open(2, 1, 1);
            sockets.assert_open(0, 2, 0);
            hosts.link(0, 1).heal().unwrap();
            sockets.assert_all_open();
        }
    }

    #[test]
    fn an_address_is_not_served_to_another_link() {
        let Some(hosts) = HostsBuilder::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        // The datagram leaves on link 1, where the address of link 0 is foreign.
        let there = sockets.sockets[1][1].local_addr().unwrap();
        sockets.sockets[0][0].send_to(b"astray", there).unwrap();
        assert!(sockets.sockets[1][1].recv(&mut [0; 64]).is_err());
    }

    #[test]
    fn a_lossy_link_loses_about_the_requested_share() {
        let Some(hosts) = HostsBuilder::new(2, 2).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        hosts.link(0, 1).lose(Direction::Out, 4).unwrap();
        let arrived = sockets.send_many(800, 100).len();
        assert!((500..=700).contains(&arrived), "{arrived} of 800 arrived, about 600 should");
        hosts.link(1, 1).lose(Direction::In, 1).unwrap();
        assert_eq!(sockets.send_many(20, 100).len(), 0);
        hosts.link(0, 1).clear_faults().unwrap();
        assert_eq!(sockets.send_many(400, 100).len(), 400);
    }

    #[test]
    fn a_corrupting_link_delivers_changed_bytes() {
        let Some(hosts) = HostsBuilder::new(2, 2).build_or_skip() else { return };
        check_corruption(&hosts, &Sockets::v4(&hosts));
        let Some(hosts) = HostsBuilder::new(2, 2).wiring(Wiring::Switched).build_or_skip() else { return };
        check_corruption(&hosts, &Sockets::v6(&hosts));
    }

    #[test]
    fn a_duplicating_link_delivers_some_datagrams_twice() {
        for wiring in [Wiring::Direct, Wiring::Switched] {
            let Some(hosts) = HostsBuilder::new(2, 2).wiring(wiring).build_or_skip() else { return };
            let sockets = Sockets::v4(&hosts);
            sockets.assert_all_open();
            hosts.link(1, 1).duplicate(Direction::In, 4).unwrap();
            let mut arrived = sockets.send_many(400, 100);
            assert!((450..=600).contains(&arrived.len()), "{} of 400 arrived, about 530 should", arrived.len());
            arrived.sort();
            arrived.dedup();
            assert_eq!(arrived.len(), 400, "none is lost");
            hosts.link(1, 1).clear_faults().unwrap();
            assert_eq!(sockets.send_many(100, 100).len(), 100);
        }
    }

    #[test]
    fn a_reordering_link_loses_nothing() {
        for wiring in [Wiring::Direct, Wiring::Switched] {
            let Some(hosts) = HostsBuilder::new(2, 2).wiring(wiring).build_or_skip() else { return };
            let sockets = Sockets::v4(&hosts);
            sockets.assert_all_open();
            // The second time replaces the first.
            hosts.link(1, 1).reorder(Direction::In, 2).unwrap();
            hosts.link(1, 1).reorder(Direction::In, 4).unwrap();
            let mut arrived = sockets.send_many(400, 6000);
            assert!(!arrived.is_sorted(), "no datagram overtook another");
            arrived.sort();
            assert_eq!(arrived, (0..400).map(|number| numbered(number, 6000)).collect::<Vec<_>>());
            hosts.link(1, 1).clear_faults().unwrap();
            assert!(sockets.send_many(100, 6000).is_sorted());
        }
    }

    #[test]
    fn cables_on_another_switch_reach_only_each_other() {
        let Some(hosts) = HostsBuilder::new(3, 1).build_or_skip() else { return };
        let sockets = Sockets::v4(&hosts);
        sockets.assert_all_open();
        (1..3).for_each(|host| hosts.link(host, 0).move_to_other_switch().unwrap());
        sockets.assert_open(1, 2, 0);
        sockets.assert_cut(0, 1, 0);
        sockets.assert_cut(2, 0, 0);
    }

    #[test]
    fn a_link_with_faults_of_single_datagrams_sends_single_datagrams() {
        let Some(hosts) = HostsBuilder::new(2, 1).wiring(Wiring::Switched).build_or_skip() else { return };
        let segments = || {
            let listed =
                hosts.host(0).command("ip").args(["-details", "link", "show", "dev", "link0"]).output().unwrap();
            let words = String::from_utf8(listed.stdout).unwrap();
            words.split_whitespace().skip_while(|&word| word != "gso_max_segs").nth(1).unwrap().to_owned()
        };
        assert_eq!(segments(), "65535");
        hosts.link(0, 0).lose(Direction::Out, 10).unwrap();
        assert_eq!(segments(), "1");
        hosts.link(0, 0).clear_faults().unwrap();
        assert_eq!(segments(), "65535");
    }

    #[test]
    fn a_host_runs_commands() {
        let Some(hosts) = HostsBuilder::new(2, 2).mtu(1500).build_or_skip() else { return };
        let shown = hosts.host(1).command("ip").args(["address", "show", "dev", "link1"]).output().unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        for part in ["inet 10.7.1.2/24", "inet6 fd00:7:1::2/64", "mtu 1500"] {
            assert!(shown.contains(part), "{shown}");
        }
        let mut process = Process::start(hosts.host(0).command("sleep").arg("60")).unwrap();
        assert!(process.wait_at_most(Duration::from_millis(20)).unwrap().is_none());
        let own = Path::new("/proc").join(process.child().id().to_string());
        drop(process);
        assert!(!own.exists(), "the process outlives its owner");
    }

    #[test]
    fn dropping_the_hosts_deletes_everything() {
        let Some(hosts) = HostsBuilder::new(3, 2).build_or_skip() else { return };
        let names: Vec<String> = hosts.namespaces().into_iter().map(str::to_owned).collect();
        assert_eq!(names.len(), 4);
        assert!(names.iter().all(|name| exists(name)));
        let kept = bind(&hosts, 0, hosts.link(0, 1).address().into());
        drop(hosts);
        assert!(names.iter().all(|name| !exists(name)), "{names:?}");
        // The socket keeps the namespace alive, but the namespace has no links.
        let error = kept.send_to(b"to nowhere", "10.7.1.2:7000").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkUnreachable);
    }

    #[test]
    fn a_panic_deletes_everything() {
        let mut names = Vec::new();
        let fallen = catch_unwind(AssertUnwindSafe(|| {
            let Some(hosts) = HostsBuilder::new(2, 1).build_or_skip() else { return };
            names.extend(hosts.namespaces().into_iter().map(str::to_owned));
            panic!("a test that fails");
        }));
        if !names.is_empty() {
            assert!(fallen.is_err() && names.iter().all(|name| !exists(name)), "{names:?}");
        }
    }

    #[test]
    fn namespaces_of_a_dead_process_are_deleted() {
        let Some(hosts) = HostsBuilder::new(2, 1).build_or_skip() else { return };
        let mut dead = Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        let left = format!("pleach-net-{}-1-0-host0", dead.id());
        assert!(Command::new("ip").args(["netns", "add", &left]).status().unwrap().success());
        // A process deletes stale namespaces before it creates its first, so this needs another process.
        let mut other = Command::new(std::env::current_exe().unwrap());
        let swept = other.args(["--exact", "between_hosts::a_host_runs_commands"]).output().unwrap();
        assert!(swept.status.success() && !exists(&left), "{left}");
        assert!(hosts.namespaces().iter().all(|name| exists(name)), "namespaces of running processes stay");
    }
}
